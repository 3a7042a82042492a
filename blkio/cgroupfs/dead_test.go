package cgroupfs

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
)

func inode(t *testing.T, path string) uint64 {
	t.Helper()
	fi, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return fi.Sys().(*syscall.Stat_t).Ino
}

func TestIDs(t *testing.T) {
	h, dir := newHierarchy(t, map[string]string{"pod/c/container/io.max": "", "pod/d/io.max": ""})
	id := func(path string) uint64 { return inode(t, filepath.Join(dir, path)) }
	for path, want := range map[string][]uint64{
		"pod/c": {id("pod/c"), id("pod/c/container")}, "pod/d": {id("pod/d")},
	} {
		got, err := h.Cgroup(path).IDs()
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v\n%s", path, err, diff)
		}
	}
	for i := range 2 * maxIDs {
		if err := os.Mkdir(filepath.Join(dir, "pod/d", string(rune('a'+i))), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := h.Cgroup("pod/d").IDs(); len(got) != maxIDs || err != nil {
		t.Errorf("%d numbers of a container that makes cgroups, %v", len(got), err)
	}
	if _, err := h.Cgroup("none").IDs(); !errors.Is(err, blkio.ErrGone) {
		t.Errorf("none: %v", err)
	}

	all, err := h.IDs()
	for _, path := range []string{".", "pod", "pod/c", "pod/c/container", "pod/d/a"} {
		if got := all[id(path)]; got != path || err != nil {
			t.Errorf("%s is %q in all, %v", path, got, err)
		}
	}
}

func TestReadDead(t *testing.T) {
	h, _ := newHierarchy(t, map[string]string{
		"a/memory.stat": "anon 1\nfile_mapped 2\nfile_dirty 8192\nfile_writeback 4096\nswapcached 0\n",
		"b/memory.stat": "file_dirty x\n",
	})
	a, b := h.Cgroup("a"), h.Cgroup("b")
	if n, err := a.ReadUnwritten(); n != 12288 || err != nil {
		t.Errorf("unwritten: %d, %v", n, err)
	}
	_, err := b.ReadUnwritten()
	checkError(t, err, `read memory.stat: file_dirty: strconv.ParseUint: parsing "x": invalid syntax (cgroup b)`)
	if _, err := h.Cgroup("c").ReadUnwritten(); !errors.Is(err, blkio.ErrGone) {
		t.Errorf("gone: %v", err)
	}
}

func TestDropCache(t *testing.T) {
	h, dir := newHierarchy(t, map[string]string{
		"a/memory.current": "8192\n", "a/memory.reclaim": "",
		"empty/memory.current": "0\n",
		"old/memory.current":   "8192\n",
		"none/cgroup.events":   "",
	})
	if err := h.Cgroup("a").DropCache(); err != nil {
		t.Error(err)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "a/memory.reclaim")); string(got) != "8192" || err != nil {
		t.Errorf("memory.reclaim is %q, %v", got, err)
	}
	for path, want := range map[string]error{"empty": nil, "old": blkio.ErrNotSupported, "none": blkio.ErrNotSupported, "gone": blkio.ErrGone} {
		if err := h.Cgroup(path).DropCache(); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", path, err, want)
		}
	}
}
