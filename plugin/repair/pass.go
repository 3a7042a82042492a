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
	// look is after how many slices the verdict is looked at.
	look = 16
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

// vote writes out what was written lately, slice by slice, until there have been
// enough rounds for the verdict: to slice on would write out what the cache would
// have merged.
func (w *worker) vote(f *os.File, v *visit, owner writeback.Owner, allowance uint64) (written uint64, err error) {
	size := sliceFor(v, owner)
	for at, looked := v.first-v.first%size, 1; at <= v.last; at, looked = at+size, looked+1 {
		next := min(written+uint64(size), v.fresh) // the rest of the slices is clean
		if next > allowance {
			return written, nil
		}
		if err := writeback.WriteOut(f, at, size); err != nil {
			return written, err
		}
		written = next
		if looked%look != 0 {
			continue
		}
		if owner, err = w.reader.Owner(f); err != nil || owner.Cgroup != v.ownerID || owner.Decided() {
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
