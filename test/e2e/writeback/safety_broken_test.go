package writeback

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

// TestSafetyBroken verifies that, on a filesystem that is full, frozen or read-only, the shaker fails or does
// nothing, and that it works again after that.
func TestSafetyBroken(t *testing.T) {
	for _, fs := range filesystemsWithOwners {
		if fs != "ext4" && !*lab.Proof {
			continue
		}
		t.Run(fs, func(t *testing.T) {
			duration := 4 * time.Second
			if *lab.Proof {
				duration = 20 * time.Second
			}
			device := lab.StackedDevice(t)
			lab.Know(t, "dm-0")
			dir := mountAs(t, fs, device)
			for _, c := range []struct {
				name string
				play func(s *arena, mountpoint string)
			}{{"full", full}, {"frozen", frozenVolume}, {"read-only", readOnly}} {
				t.Run(c.name, func(t *testing.T) { c.play(newArena(t, fs, "dm-0", dir, duration), dir) })
			}
		})
	}
}

// full runs the writers while the disk is full again and again, and verifies that no written byte is lost.
func full(s *arena, mountpoint string) {
	filler, spare := s.makes(mountpoint, "filler"), s.makes(mountpoint, "spare")
	k := s.shake()
	// A write to a mapped page for which there is no block would kill the writer.
	c := churning{size: 4 * lab.MiB, without: "mmap,recreate,clone"}
	// Both create their files before the disk is full: XFS creates none without some free blocks.
	last := c
	last.before = func() {
		var st unix.Statfs_t
		err := unix.Statfs(mountpoint, &st)
		if err == nil {
			err = unix.Fallocate(int(spare.Fd()), 0, 0, spareSpace)
		}
		if err = errors.Join(err, takeSpace(filler, int64(st.Bfree)*st.Bsize)); err != nil {
			s.Fatal(err)
		}
	}
	var second func() string
	c.before = func() { second = s.churns("second", s.b, s.a, last) }
	first := s.churns("first", s.a, s.b, c)
	// One of four turns has space. The others also take the space that the churners free:
	// their files are small most of the time, and would otherwise always find enough.
	stop := s.repeat(func(i int) {
		var err error
		if i%4 == 3 {
			err = spare.Truncate(0)
		} else {
			err = takeSpace(spare, spareSpace)
		}
		if err != nil {
			s.Error(err)
		}
	})
	time.Sleep(s.duration)
	did := first() + second()
	stop()
	s.Log(did)
	if !strings.Contains(did, "no space") {
		s.Error("the filesystem never was full: the case cannot show anything")
	}
	s.calm(k, unix.ENOSPC)
}

// spareSpace is the least free space, at times, of a filesystem that is full.
const spareSpace = 512 << 10

// makes makes a file that is beside what is shaken, until the end of the test.
func (s *arena) makes(dir, name string) *os.File {
	s.Helper()
	f, err := os.Create(filepath.Join(dir, name))
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		f.Close()
		os.Remove(f.Name())
	})
	return f
}

// takeSpace gives a file all free space, that for root included, in pieces of at most the
// given size, because there may be less space than statfs reports.
func takeSpace(f *os.File, piece int64) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	for at := info.Size(); piece >= 4<<10; {
		if err := unix.Fallocate(int(f.Fd()), 0, at, piece); errors.Is(err, unix.ENOSPC) {
			piece /= 2
		} else if err != nil {
			return err
		} else {
			at += piece
		}
	}
	return nil
}

// frozenVolume freezes the filesystem while its files are shaken and written to.
func frozenVolume(s *arena, mountpoint string) {
	k := s.shake()
	churns := s.churns("f", s.a, s.b, churning{size: lab.MiB, without: "clone"})
	time.Sleep(s.duration / 4)
	thaw := freeze(s.T, mountpoint)
	before := k.passes.Load()
	time.Sleep(s.duration / 4)
	during := k.passes.Load() - before
	thaw()
	s.goesOn(k)
	s.enough(k)
	s.Logf("%d passes while it was frozen, %s", during, churns())
	s.moved(k)
}

// goesOn waits until the shaker has passed over all files once more, from the first one on.
func (s *arena) goesOn(k *shaker) {
	s.Helper()
	now := k.passes.Load()
	lab.Eventually(s.T, "the shaker has passed over all files twice", func() error {
		if n := k.passes.Load(); n < now+2 {
			return fmt.Errorf("the shaker made %d passes, want 2 more than %d", n, now)
		}
		return nil
	})
}

// readOnly verifies that a remount as read-only writes out the dirty data, and that nothing is written after
// it.
func readOnly(s *arena, mountpoint string) {
	s.b.Writes(filepath.Join(s.dir, "dirty"), 4, "1M")
	s.a.Writes(filepath.Join(s.dir, "dirty"), 4, "1M")
	want := map[string]seen{}
	for _, file := range s.files() {
		want[file] = statx(s.T, file)
	}
	k := s.shake()
	lab.Administer(s.T, "mount", "-o", "remount,ro", mountpoint)
	defer lab.Administer(s.T, "mount", "-o", "remount,rw", mountpoint)
	s.goesOn(k)
	s.calm(k)
	for file, was := range want {
		if now := statx(s.T, file); now != was {
			s.Errorf("%s was %+v, is %+v", file, was, now)
		}
	}
}

// mountAs is mountDisk for any filesystem.
func mountAs(t *testing.T, fs, device string) string {
	t.Helper()
	if fs == "ext4" {
		return mountDisk(t, device)
	}
	dir := t.TempDir()
	lab.Administer(t, "mkfs."+fs, "-q", "-f", device)
	lab.Administer(t, "mount", "-t", fs, device, dir)
	t.Cleanup(func() { lab.Administer(t, "umount", dir) })
	return dir
}
