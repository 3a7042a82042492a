package repair

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/writeback"
)

// What a pass goes by.
const (
	// slice is what one vote writes out, or less: it is written early.
	slice, smallest = 64 << 10, 8 << 10
	// maxSlices of a file are looked at in one pass; longer ranges have longer ones.
	maxSlices = 128
	// look is after how many rounds the verdict is looked at.
	look = 8
	// moments are the rounds of what becomes dirty during a pass.
	moment, moments = 3 * time.Millisecond, 12
	// around is how much of a file is dropped before and after what was written:
	// who rewrites there goes on there.
	around = 32 << 20
)

// visit is what a pass is to do with one file. It is made from a task, and shares
// nothing with the ledger.
type visit struct {
	writeback.Inode
	work    work
	ownerID uint64
	// first and last are where it was written to, lately.
	first, last int64
	// votes: what was written counts for who it is to belong to; drops: it is
	// charged to others.
	votes, drops bool
	writers      []string // their cgroups, if they write through mappings
	fresh        uint64   // bytes that may be dirty
}

// outcome is what came of it.
type outcome struct {
	writeback.Inode
	owner   uint64
	path    string // on the host; "" if the kernel does not tell
	written uint64 // bytes that were written out early, at most
	err     error
}

// worker passes over the files of one filesystem. A disk that does not answer
// keeps it, and nobody else.
type worker struct {
	reader   *writeback.OwnerReader
	fs       *filesystem
	hostRoot string
	procs    *mappings
}

// passed is what a pass took, and its outcomes.
type passed struct {
	fs       *filesystem
	cpu      time.Duration
	outcomes []outcome
	err      error // nothing could be done
}

// pass does what there is to do with a few files. allowance are bytes that may be
// written out early.
func (w *worker) pass(visits []visit, allowance uint64) passed {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := threadTime()
	out := passed{fs: w.fs}
	defer func() { out.cpu = threadTime() - before }()
	// The descriptor keeps the filesystem from being unmounted, as each file's does.
	root, err := os.Open(hostPath(w.hostRoot, w.fs.mountpoint))
	if err != nil {
		out.err = err
		return out
	}
	defer root.Close()
	if out.err = w.same(root); out.err != nil {
		return out
	}
	for i := range visits {
		o := w.visit(root, &visits[i], allowance)
		allowance -= min(allowance, o.written)
		out.outcomes = append(out.outcomes, o)
	}
	return out
}

// threadTime is what the thread has had of a CPU.
func threadTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// errOtherMount says that something else is mounted there now.
var errOtherMount = errors.New("another filesystem is mounted there")

// same looks whether the filesystem is the one: numbers of files mean nothing in
// another one.
func (w *worker) same(root *os.File) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(root.Fd()), &st); err != nil {
		return err
	}
	dev := blkio.Dev{Major: unix.Major(st.Dev), Minor: unix.Minor(st.Dev)}
	// On btrfs each subvolume has a number of its own.
	if dev != w.fs.dev && w.fs.fstype != "btrfs" {
		return errOtherMount
	}
	return nil
}

func (w *worker) visit(root *os.File, v *visit, allowance uint64) outcome {
	out := outcome{Inode: v.Inode}
	f, err := writeback.Open(root, w.fs.fstype, v.Inode)
	if err != nil {
		out.err = err
		return out
	}
	defer f.Close()
	owner, err := w.reader.Owner(f)
	switch {
	case err != nil:
		out.err = err
		return out
	case owner.Generation != v.Generation:
		out.err = writeback.ErrNoFile
		return out
	}
	out.owner, out.path = owner.Cgroup, w.pathOf(f)
	if v.work == move && owner.Cgroup != v.ownerID {
		return out // it has moved: to be decided on anew
	}
	if v.work == move && v.votes {
		out.written, err = w.vote(f, v, owner, allowance)
	}
	if v.drops && err == nil {
		err = w.drop(f, v)
	}
	out.err = err
	return out
}

// pathOf is where a file is below its filesystem's mountpoint. One that nobody has
// opened by its name has no path that is known.
func (w *worker) pathOf(f *os.File) string {
	name, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(int(f.Fd())))
	below, ok := strings.CutPrefix(name, strings.TrimSuffix(hostPath(w.hostRoot, w.fs.mountpoint), "/")+"/")
	if err != nil || !ok {
		return ""
	}
	return filepath.Join(w.fs.mountpoint, below)
}

// vote has rounds of writeback made until there have been enough for the verdict: to
// go on would write out what the cache would have merged. First of what is dirty,
// slice by slice, then of what becomes dirty meanwhile, moment by moment: who
// writes and syncs leaves nothing dirty to be sliced.
func (w *worker) vote(f *os.File, v *visit, owner writeback.Owner, allowance uint64) (written uint64, err error) {
	size, rounds := sliceFor(v, owner), 0
	round := func(at, length int64, dirty uint64) (more bool) {
		if written+dirty > allowance {
			return false
		}
		if err = writeback.WriteOut(f, at, length); err != nil {
			return false
		}
		written += dirty
		if rounds++; rounds%look == 0 {
			owner, err = w.reader.Owner(f)
			return err == nil && owner.Cgroup == v.ownerID && !owner.Decided()
		}
		return true
	}
	for at := v.first - v.first%size; at <= v.last; at += size {
		if !round(at, size, min(uint64(size), v.fresh-written)) { // the other slices are clean
			return written, err
		}
	}
	for range moments {
		time.Sleep(moment)
		if !round(v.first, v.last+around-v.first, uint64(size)) {
			return written, err
		}
	}
	return written, nil
}

// sliceFor is the size of slices, the largest of which what was written lately has
// as many as votes are missing.
func sliceFor(v *visit, owner writeback.Owner) int64 {
	size := int64(slice)
	for ; size > smallest; size /= 2 {
		round := writeback.RoundTime(uint64(size)/uint64(os.Getpagesize()), owner.Bandwidth)
		if uint64(owner.Missing(round))*uint64(size) <= v.fresh {
			break
		}
	}
	for (v.last-v.first)/size >= maxSlices {
		size *= 2
	}
	return size
}

func (w *worker) drop(f *os.File, v *visit) error {
	from := max(0, v.first-around)
	if err := writeback.Drop(f, from, v.last-from+around); err != nil {
		return err
	}
	if len(v.writers) == 0 {
		return nil
	}
	return w.procs.pageOut(v.Inode, v.writers, from, v.last+around)
}
