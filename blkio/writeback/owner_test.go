package writeback

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// testOwners loads the program that reads owners; nil where this process may not. The
// node's tests run where it may.
func testOwners(t *testing.T) *OwnerReader {
	t.Helper()
	r, err := NewOwnerReader()
	if errors.Is(err, ErrUnavailable) {
		t.Log("not tried: ", err)
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// TestOwner verifies that the program finds the inode of each kind of descriptor.
func TestOwner(t *testing.T) {
	r := testOwners(t)
	if r == nil {
		return
	}
	dir := t.TempDir()
	name := filepath.Join(dir, "f")
	if err := os.WriteFile(name, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	fstype := typeOf(t, dir)
	for what, flags := range map[string]int{
		"f": unix.O_RDONLY, "fifo": unix.O_PATH, ".": unix.O_RDONLY,
	} {
		f, err := os.OpenFile(filepath.Join(dir, what), flags, 0)
		if err != nil {
			t.Fatal(err)
		}
		o, err := r.Owner(f)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if fstype == "ext4" || fstype == "xfs" { // others have numbers of their own in stat(2)
			var st unix.Stat_t
			if err := unix.Fstat(int(f.Fd()), &st); err != nil {
				t.Fatal(err)
			}
			if want := (blkio.Dev{Major: unix.Major(st.Dev), Minor: unix.Minor(st.Dev)}); o.Dev != want {
				t.Errorf("%s is on %s, want %s", what, o.Dev, want)
			}
			if in := inodeOf(t, filepath.Join(dir, what), fstype); o.Generation != in.Generation {
				t.Errorf("%s has generation %d, want %d", what, o.Generation, in.Generation)
			}
		}
		// The same by way of a File, as passes read it.
		file := &File{file: f, mount: dir}
		if again, err := file.Owner(r); err != nil || again.Dev != o.Dev || again.Generation != o.Generation {
			t.Errorf("%s: %+v, %v, want %+v", what, again, err, o)
		}
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
		if o, err := r.Owner(f); err == nil {
			t.Errorf("%s is closed, and its owner %+v", what, o)
		}
	}
}

// TestOwnerWritten verifies that a file that was written has an owner, where the filesystem has writeback by
// cgroup.
func TestOwnerWritten(t *testing.T) {
	r := testOwners(t)
	if r == nil {
		return
	}
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	o, err := r.Owner(f)
	if err != nil {
		t.Fatal(err)
	}
	if o.Cgroup == 0 {
		t.Log("not tried: there is no writeback by cgroup here")
		return
	}
	if o.Bandwidth == 0 {
		t.Errorf("the bandwidth of %+v is not known", o)
	}
	if o.Foreign() > 16 {
		t.Errorf("%d of 16 votes are foreign", o.Foreign())
	}
}

// TestOwnerTogether verifies that the program has one answer, and each caller gets its own.
func TestOwnerTogether(t *testing.T) {
	r := testOwners(t)
	if r == nil {
		return
	}
	dir := t.TempDir()
	var callers sync.WaitGroup
	for _, name := range []string{dir, "/proc", "/sys", "/"} {
		f, err := os.OpenFile(name, unix.O_PATH, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		want, err := r.Owner(f)
		if err != nil {
			t.Fatal(err)
		}
		callers.Go(func() {
			for range 100 {
				if got, err := r.Owner(f); err != nil || got.Dev != want.Dev {
					t.Errorf("%s: got %+v, %v, want %+v", name, got, err, want)
				}
			}
		})
	}
	callers.Wait()
}

// TestWatch verifies that writes are counted while their filesystem is watched, and that no program runs in the
// kernel while none is.
func TestWatch(t *testing.T) {
	o := newCountingObserver(t)
	dir := t.TempDir()
	if o == nil || typeOf(t, dir) == "" {
		t.Log("not tried: no BPF here, or files here may have no writeback")
		return
	}
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		t.Fatal(err)
	}
	here, elsewhere := blkio.Dev{Major: unix.Major(st.Dev), Minor: unix.Minor(st.Dev)}, blkio.Dev{Major: 1 << 11, Minor: 7}
	for i, step := range []struct {
		watch         []blkio.Dev
		counted, runs bool
	}{
		{[]blkio.Dev{elsewhere}, false, true},
		{[]blkio.Dev{elsewhere, here}, true, true},
		{[]blkio.Dev{here}, true, true},
		{[]blkio.Dev{here, here}, true, true},
		{nil, false, false},
		{nil, false, false},
		{[]blkio.Dev{here}, true, true},
	} {
		if err := o.Watch(step.watch); err != nil {
			t.Fatal(err)
		}
		runs, counted := writeWatched(t, o, filepath.Join(dir, "f"))
		if runs != step.runs {
			t.Errorf("step %d: the program runs: %v", i, runs)
		}
		if (counted > 0) != step.counted {
			t.Errorf("step %d: %d bytes are counted", i, counted)
		}
	}
}

// newCountingObserver returns an Observer whose runs the kernel counts, until the test ends. It
// returns nil if the kernel does not let this process have one.
func newCountingObserver(t *testing.T) *Observer {
	t.Helper()
	o, err := NewObserver()
	if errors.Is(err, ErrUnavailable) {
		t.Log(err)
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	})
	stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		t.Log(err)
		return nil
	}
	t.Cleanup(func() { stats.Close() })
	return o
}

// writeWatched writes a file and removes it. It reports whether the program ran meanwhile, and
// how many bytes of the file it counted.
func writeWatched(t *testing.T, o *Observer, file string) (runs bool, counted uint64) {
	t.Helper()
	before := statsOf(t, o)
	if err := os.WriteFile(file, make([]byte, 64<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	after := statsOf(t, o)
	counted = bytesOf(t, o, file)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	return after.RunCount > before.RunCount, counted
}
