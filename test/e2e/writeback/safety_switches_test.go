package writeback

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/writeback"
	"github.com/nri-blkio/nri-blkio/test/e2e/cgroup"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

// shaker moves files between their writers as fast as it can, by the same calls as the plugin, without
// the plugin's budget and rests.
type shaker struct {
	t      *testing.T
	fs     string
	root   *writeback.Mount
	dev    blkio.Dev
	reader *writeback.OwnerReader
	files  func() []string
	// cgroups have the processes that may have mapped the files.
	cgroups []string

	stop    chan struct{}
	done    sync.WaitGroup
	passes  atomic.Int64
	moves   atomic.Int64
	writers atomic.Int64 // to which a file has moved
	shaken
}

// shaken has the counts of a shaker. It may be read once the shaker has stopped.
type shaken struct {
	seen, gone, slices, pagedOut int
	switches                     map[uint64]int // by new owner
	owners                       map[writeback.Inode]uint64
	errs                         map[string]int // by operation and error
}

// shake starts a shaker, which runs until it is stopped or the test ends.
func shake(t *testing.T, fs, dir string, files func() []string, cgroups ...string) *shaker {
	t.Helper()
	reader, err := writeback.NewOwnerReader()
	if err != nil {
		t.Fatal(err)
	}
	root, err := writeback.OpenMount(dir, fs)
	if err != nil {
		t.Fatal(err)
	}
	s := &shaker{
		t: t, fs: fs, root: root, dev: superBlock(t, dir), reader: reader, files: files, cgroups: cgroups, stop: make(chan struct{}),
		shaken: shaken{switches: map[uint64]int{}, owners: map[writeback.Inode]uint64{}, errs: map[string]int{}},
	}
	s.done.Go(func() {
		for !s.stopped() {
			for _, file := range s.files() {
				if err := s.visit(file); err != nil {
					s.errs[reason(err)]++
				}
				if s.stopped() {
					break
				}
			}
			s.passes.Add(1)
			time.Sleep(time.Millisecond) // there may be no file
		}
	})
	t.Cleanup(func() { s.ends() })
	return s
}

// reason is the operation and the error, without the file, of which there are thousands.
func reason(err error) string {
	errno, ok := errors.AsType[unix.Errno](err)
	if !ok {
		return err.Error()
	}
	op := err.Error()
	for _, cut := range []string{" of ", " inode ", ":"} {
		op, _, _ = strings.Cut(op, cut)
	}
	return op + ": " + errno.Error()
}

func (s *shaker) stopped() bool {
	select {
	case <-s.stop:
		return true
	default:
		return false
	}
}

// ends stops the shaker; a file that it hangs in fails the test.
func (s *shaker) ends() shaken {
	s.t.Helper()
	if s.stopped() {
		return s.shaken
	}
	close(s.stop)
	ended := make(chan struct{})
	go func() { s.done.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(lab.Deadline):
		s.t.Fatalf("the shaker hangs, after %d passes", s.passes.Load())
	}
	s.root.Close()
	s.reader.Close()
	return s.shaken
}

// moved is how often a file has gone from one cgroup to another, in all.
func (s *shaken) moved() (n int) {
	for of := range maps.Values(s.switches) {
		n += of
	}
	return n
}

func (s *shaken) String() string {
	return fmt.Sprintf("%d switches %v of %d inodes in %d visits (%d gone), %d slices, %d ranges paged out, errors %v",
		s.moved(), s.switches, len(s.owners), s.seen, s.gone, s.slices, s.pagedOut, s.errs)
}

// visit does once what moves a file. That it is no more is no error.
func (s *shaker) visit(file string) error {
	in, size, err := s.inode(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	f, err := s.root.Open(in)
	if errors.Is(err, writeback.ErrNoFile) {
		s.gone++
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	s.seen++
	// Small slices are many votes, large ones are what the plugin prefers.
	slice := int64(64 << 10)
	if s.seen%2 == 0 {
		slice = 8 << 10
	}
	for at, n := int64(0), 1; at < size && !s.stopped(); at, n = at+slice, n+1 {
		s.slices++
		if err := f.WriteOut(at, slice); err != nil {
			return err
		}
		if n%16 == 0 {
			if err := s.countSwitch(f, in); err != nil {
				return err
			}
		}
	}
	return errors.Join(s.pageOut(in), f.Drop(0, size), s.countSwitch(f, in))
}

// inode returns the identity of a file, as the plugin gets it from the report of a write, and its size.
func (s *shaker) inode(file string) (writeback.Inode, int64, error) {
	fd, err := unix.Open(file, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return writeback.Inode{}, 0, err
	}
	f := os.NewFile(uintptr(fd), file)
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return writeback.Inode{}, 0, err
	}
	owner, err := s.reader.Owner(f)
	in := writeback.Inode{Dev: s.dev, Number: st.Ino, Generation: owner.Generation}
	if s.fs == "btrfs" {
		in.Root = 5 // BTRFS_FS_TREE_OBJECTID: the volumes have no subvolumes
	}
	return in, st.Size, err
}

// countSwitch counts a change of the owner. A change from or to no owner does not count: then the
// inode was not in memory.
func (s *shaker) countSwitch(f *writeback.File, in writeback.Inode) error {
	owner, err := f.Owner(s.reader)
	if err != nil {
		return err
	}
	if before := s.owners[in]; before != 0 && owner.Cgroup != 0 && before != owner.Cgroup {
		s.switches[owner.Cgroup]++
		s.moves.Add(1)
		s.writers.Store(int64(len(s.switches)))
	}
	s.owners[in] = owner.Cgroup
	return nil
}

// pageOut takes the file out of the mappings of all processes of the writers.
func (s *shaker) pageOut(in writeback.Inode) error {
	var errs []error
	for _, c := range s.cgroups {
		// A removed cgroup, and a process that has ended, have none.
		procs, _ := os.ReadFile(filepath.Join(cgroup.Root, c, "cgroup.procs"))
		for pid := range strings.FieldsSeq(string(procs)) {
			for _, r := range s.mappings(pid, in) {
				errs = append(errs, s.pageOutOf(pid, r))
			}
		}
	}
	return errors.Join(errs...)
}

func (s *shaker) mappings(pid string, in writeback.Inode) (ranges []unix.RemoteIovec) {
	mine := fmt.Sprintf(" %02x:%02x %d ", in.Dev.Major, in.Dev.Minor, in.Number)
	maps, _ := os.ReadFile("/proc/" + pid + "/maps")
	for line := range strings.Lines(string(maps)) {
		var start, end uint64
		if !strings.Contains(line, mine) {
			continue
		}
		if _, err := fmt.Sscanf(line, "%x-%x ", &start, &end); err == nil {
			ranges = append(ranges, unix.RemoteIovec{Base: uintptr(start), Len: int(end - start)})
		}
	}
	return ranges
}

func (s *shaker) pageOutOf(pid string, r unix.RemoteIovec) error {
	n, err := strconv.Atoi(pid)
	if err != nil {
		return err
	}
	fd, err := unix.PidfdOpen(n, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	s.pagedOut++
	_, _, errno := unix.Syscall6(unix.SYS_PROCESS_MADVISE, uintptr(fd), uintptr(unsafe.Pointer(&r)), 1, unix.MADV_PAGEOUT, 0, 0)
	switch errno {
	case 0, unix.ESRCH:
		return nil
	case unix.ENOMEM: // it was unmapped meanwhile
		return nil
	}
	return fmt.Errorf("page out: %w", errno)
}
