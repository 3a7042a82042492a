package storage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// mountPlace is a directory in a mount namespace that only the thread of the test has.
type mountPlace struct {
	dir    string
	source *mountSource
}

// newMountPlace binds the test to a thread of its own, which ends with it. Where that
// is not allowed, or the kernel has no listmount, the test is skipped.
func newMountPlace(t testing.TB) *mountPlace {
	t.Helper()
	p := &mountPlace{dir: filepath.Join(t.TempDir(), "place")}
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_FS); err != nil {
		t.Skipf("NOT TESTED: a mount namespace of its own needs root: %v", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	p.mkdir(t, "")
	p.mount(t, "none", "", "tmpfs", 0)
	t.Cleanup(func() { _ = unix.Unmount(p.dir, unix.MNT_DETACH) }) // with all below; the namespace ends anyway
	src, err := openMountSource(fmt.Sprintf("/proc/self/task/%d/mountinfo", unix.Gettid()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { src.Close() })
	p.source = src
	if _, err := p.source.changed(); err != nil {
		t.Fatal(err)
	}
	if err := p.source.list(); errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.ENOTTY) || errors.Is(err, unix.EPERM) {
		t.Skipf("NOT TESTED: this kernel does not list mounts: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *mountPlace) mkdir(t testing.TB, name string) string {
	t.Helper()
	dir := filepath.Join(p.dir, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func (p *mountPlace) mount(t testing.TB, source, at, fstype string, flags uintptr) {
	t.Helper()
	if err := unix.Mount(source, filepath.Join(p.dir, at), fstype, flags, ""); err != nil {
		t.Fatalf("mount %s on %s: %v", source, at, err)
	}
}

// check compares the table with the text of the kernel.
func (p *mountPlace) check(t *testing.T, what string, got *MountTable) {
	t.Helper()
	want, err := p.source.text()
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want.All(), got.All()); d != "" {
		t.Fatalf("after %s (-text +list):\n%s", what, d)
	}
	for _, m := range want.All() { // also hidden mounts, and the order of stacks
		w, _ := want.Find(m.Mountpoint)
		if g, _ := got.Find(m.Mountpoint); g == nil || w.ID != g.ID {
			t.Fatalf("after %s: %s is mount %+v, want %+v", what, m.Mountpoint, g, w)
		}
	}
}

func (p *mountPlace) read(t testing.TB) *MountTable {
	t.Helper()
	changed, err := p.source.changed()
	if err != nil {
		t.Fatal(err)
	}
	if !changed {
		return p.source.lister.table
	}
	c, err := p.source.read()
	if err := errors.Join(err, p.source.lost()); err != nil {
		t.Fatal(err)
	}
	return c.table
}

func (p *mountPlace) recheck(t testing.TB) *MountTable {
	t.Helper()
	for first, more := 0, true; more; first += 16 {
		var err error
		if _, more, err = p.source.recheck(first, 16); err != nil {
			t.Fatal(err)
		}
	}
	return p.source.lister.table
}

// step changes the mounts in one way, and returns its name. Many changes fail, by their nature: the kernel
// refuses them, and nothing has changed.
func (p *mountPlace) step(t testing.TB, r *rand.Rand, shared bool) string {
	t.Helper()
	name := func() string { return fmt.Sprintf("%c/%c", 'a'+r.IntN(4), 'a'+r.IntN(3)) }
	from, to := p.mkdir(t, name()), p.mkdir(t, name())
	mount := func(flags uintptr) error { return unix.Mount(from, to, "", flags, "") }
	steps := map[string]func() error{
		"bind":        func() error { return mount(unix.MS_BIND) },
		"rbind":       func() error { return mount(unix.MS_BIND | unix.MS_REC) },
		"move":        func() error { return mount(unix.MS_MOVE) },
		"tmpfs":       func() error { return unix.Mount("some source", to, "tmpfs", 0, "size=1m") },
		"read-only":   func() error { return unix.Mount("", to, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, "") },
		"unmount":     func() error { return unix.Unmount(to, 0) },
		"detach":      func() error { return unix.Unmount(to, unix.MNT_DETACH) },
		"beneath":     func() error { return p.beneath(from, to) },
		"many layers": func() error { return p.manyLayers(t, to) },
		"overlay": func() error {
			return unix.Mount("overlay", to, "overlay", 0, "lowerdir="+p.mkdir(t, "lower one")+":"+p.mkdir(t, "lower")+",upperdir="+p.mkdir(t, "upper")+",workdir="+p.mkdir(t, "work"))
		},
	}
	if shared {
		steps["share"] = func() error { return unix.Mount("", to, "", unix.MS_SHARED, "") }
		steps["slave"] = func() error { return unix.Mount("", to, "", unix.MS_SLAVE, "") }
		steps["private"] = func() error { return unix.Mount("", to, "", unix.MS_PRIVATE, "") }
		steps["rename"] = func() error { return os.Rename(filepath.Dir(from), filepath.Dir(to)+" moved") }
	}
	names := make([]string, 0, len(steps))
	for n := range steps {
		names = append(names, n)
	}
	slices.Sort(names)
	n := names[r.IntN(len(names))]
	return fmt.Sprintf("%s %s %s: %v", n, from, to, steps[n]())
}

// manyLayers mounts an overlay whose options are longer than PATH_MAX.
func (p *mountPlace) manyLayers(t testing.TB, to string) error {
	t.Helper()
	fs, err := unix.Fsopen("overlay", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(fs)
	for i := range 60 {
		layer := p.mkdir(t, fmt.Sprintf("layers/%s/%d", strings.Repeat("l", 200), i))
		if err := unix.FsconfigSetString(fs, "lowerdir+", layer); err != nil {
			return err
		}
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return err
	}
	fd, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.MoveMount(fd, "", unix.AT_FDCWD, to, unix.MOVE_MOUNT_F_EMPTY_PATH)
}

// beneath mounts a copy of from under the topmost mount on to.
func (p *mountPlace) beneath(from, to string) error {
	fd, err := unix.OpenTree(unix.AT_FDCWD, from, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	const moveMountBeneath = 0x200
	return unix.MoveMount(fd, "", unix.AT_FDCWD, to, unix.MOVE_MOUNT_F_EMPTY_PATH|moveMountBeneath)
}

// TestMountListerSteps verifies that after each step, the list alone gives the table of the text.
func TestMountListerSteps(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			p := newMountPlace(t)
			r := rand.New(rand.NewPCG(seed, 1))
			for i := range 60 {
				what := fmt.Sprintf("step %d, %s", i, p.step(t, r, false))
				p.check(t, what, p.read(t))
			}
		})
	}
}

// TestMountListerFuzz verifies that the list and a search through all mounts give the table of the text, after
// some steps of all kinds.
func TestMountListerFuzz(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			p := newMountPlace(t)
			r := rand.New(rand.NewPCG(seed, 2))
			for range 40 {
				var what []string
				for range 1 + r.IntN(5) {
					what = append(what, p.step(t, r, true))
				}
				p.read(t)
				p.check(t, strings.Join(what, "\n"), p.recheck(t))
			}
		})
	}
}

// TestMountListerLongRoot covers a mount with a directory that is renamed to below a deep one, as a tenant can
// do with that of a subPath.
func TestMountListerLongRoot(t *testing.T) {
	p := newMountPlace(t)
	from, to := p.mkdir(t, "vol/a"), p.mkdir(t, "sub")
	p.mount(t, from, "sub", "", unix.MS_BIND)
	p.check(t, "the mount", p.read(t))
	p.deepen(t, "vol", "a", 300)
	p.mount(t, "none", "sub", "tmpfs", 0) // a change, to read the table again
	p.read(t)
	table := p.recheck(t)
	p.check(t, "the renaming", table)
	i := slices.IndexFunc(table.All(), func(m *Mount) bool { return m.Mountpoint == to })
	if m := table.All()[i]; m.Root != "" || m.Unreadable != "" {
		t.Errorf("got %+v", m)
	}
}

// deepen moves a directory of dir to below n others.
func (p *mountPlace) deepen(t testing.TB, dir, name string, n int) {
	t.Helper()
	top, err := unix.Open(filepath.Join(p.dir, dir), unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(top)
	deep := top
	for range n {
		long := strings.Repeat("d", 250)
		if err := unix.Mkdirat(deep, long, 0o755); err != nil {
			t.Fatal(err)
		}
		next, err := unix.Openat(deep, long, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		if deep != top {
			unix.Close(deep)
		}
		deep = next
	}
	defer unix.Close(deep)
	if err := unix.Renameat(top, name, deep, name); err != nil {
		t.Fatal(err)
	}
}

// TestMountListerLost verifies that the text is read if the list fails, and that the reason is reported once.
func TestMountListerLost(t *testing.T) {
	p := newMountPlace(t)
	p.source.lister.namespace = 1 // there is none
	c, err := p.source.read()
	if err != nil {
		t.Fatal(err)
	}
	p.check(t, "the loss", c.table)
	if err := p.source.lost(); !errors.Is(err, unix.ENOENT) {
		t.Errorf("got %v", err)
	}
	if err := p.source.lost(); err != nil {
		t.Errorf("the loss is reported a second time: %v", err)
	}
}

func TestListMountsUnsupported(t *testing.T) {
	n := newFakeNode(t, nodeMounts)
	if err := n.ListMounts(t.Context()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	checkError(t, n.Refresh(t.Context()), "")
}

// BenchmarkRefreshAddedMount is a refresh after one mount was added to 5,000.
func BenchmarkRefreshAddedMount(b *testing.B) {
	for _, isListed := range []bool{true, false} {
		b.Run(fmt.Sprintf("listed=%t", isListed), func(b *testing.B) {
			p := newMountPlace(b)
			s := p.storage(b, isListed)
			from := p.mkdir(b, "a")
			for i := range 5000 {
				p.mkdir(b, fmt.Sprintf("volumes/%08x-98b4-4e53-8c3e-7d8d2d5a5b1b/pvc-%d", i/20, i))
				p.mount(b, from, fmt.Sprintf("volumes/%08x-98b4-4e53-8c3e-7d8d2d5a5b1b/pvc-%d", i/20, i), "", unix.MS_BIND)
			}
			p.mkdir(b, "one more")
			refresh := func() {
				if err := s.Refresh(context.Background()); err != nil {
					b.Fatal(err)
				}
			}
			refresh()
			for b.Loop() {
				b.StopTimer()
				p.mount(b, from, "one more", "", unix.MS_BIND)
				b.StartTimer()
				refresh()
				b.StopTimer()
				if err := unix.Unmount(p.dir+"/one more", 0); err != nil {
					b.Fatal(err)
				}
				refresh()
				b.StartTimer()
			}
		})
	}
}

// BenchmarkLongRoots is a whole reading of 3,000 mounts whose lines have 60 KB.
func BenchmarkLongRoots(b *testing.B) {
	p := newMountPlace(b)
	from := p.mkdir(b, "vol/a")
	for i := range 3000 {
		p.mkdir(b, fmt.Sprint("sub/", i))
		p.mount(b, from, fmt.Sprint("sub/", i), "", unix.MS_BIND)
	}
	p.deepen(b, "vol", "a", 240)
	p.read(b)
	for _, isListed := range []bool{true, false} {
		b.Run(fmt.Sprintf("listed=%t", isListed), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				var err error
				if isListed {
					_, _, err = p.source.lister.recheck(0, len(p.source.lister.known))
				} else {
					_, err = p.source.text()
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func (p *mountPlace) storage(b *testing.B, isListed bool) *Storage {
	b.Helper()
	s, err := Open(Config{Sys: os.DirFS("/sys"), Mountinfo: p.source.name, HostRoot: "/"})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	if isListed {
		if err := s.ListMounts(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
	return s
}
