package cgroupfs

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// TestReadHeld verifies that a held file has the text that is there now, also of a cgroup that was made again, and that
// files are closed that are not read any more.
func TestReadHeld(t *testing.T) {
	h, dir := newHierarchy(t, map[string]string{"a/io.max": "1", "b/io.max": "1"})
	a, buf := h.Cgroup("a"), make([]byte, 0, 16)
	check := func(want string) {
		t.Helper()
		text, err := a.ReadHeld("io.max", buf)
		if err != nil || string(text) != want {
			t.Errorf("%q, %v, want %q", text, err, want)
		}
		if again, err := a.ReadText("io.max", nil); err != nil || string(again) != want {
			t.Errorf("ReadText: %q, %v, want %q", again, err, want)
		}
	}
	set := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "a/io.max"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	check("1")
	check("1")
	set("22")
	check("22")
	set(strings.Repeat("3", 16))
	check(strings.Repeat("3", 16))
	check(strings.Repeat("3", 16))
	set("4")
	check("4")
	if err := os.RemoveAll(filepath.Join(dir, "a")); err != nil {
		t.Fatal(err)
	}
	if text, err := a.ReadHeld("io.max", buf); !errors.Is(err, blkio.ErrGone) {
		t.Errorf("a removed cgroup: %q, %v", text, err)
	}
	if err := os.Mkdir(filepath.Join(dir, "a"), 0o755); err != nil {
		t.Fatal(err)
	}
	if text, err := a.ReadHeld("io.max", buf); !errors.Is(err, blkio.ErrNotSupported) {
		t.Errorf("a cgroup without the file: %q, %v", text, err)
	}
	set("5")
	check("5")
	check("5")
	h.CloseUnread()
	if _, err := h.Cgroup("b").ReadHeld("io.max", buf); err != nil || len(h.held.files) != 2 {
		t.Errorf("%v, %d files are held, want 2", err, len(h.held.files))
	}
	h.CloseUnread()
	if len(h.held.files) != 1 {
		t.Errorf("%d files are held, want that of b", len(h.held.files))
	}
	check("5")
}

// TestReadHeldConcurrently lets the race detector check readers beside a pass that closes files.
func TestReadHeldConcurrently(t *testing.T) {
	h, _ := newHierarchy(t, map[string]string{"a/io.max": "a", "b/io.max": "b"})
	var all sync.WaitGroup
	for _, name := range []string{"a", "b", "a", "b"} {
		all.Go(func() {
			for range 200 {
				if text, err := h.Cgroup(name).ReadHeld("io.max", make([]byte, 0, 16)); err != nil || string(text) != name {
					t.Errorf("%s: %q, %v", name, text, err)
				}
			}
		})
	}
	for range 200 {
		h.CloseUnread()
	}
	all.Wait()
}

// BenchmarkReadHeld compares it with ReadText.
func BenchmarkReadHeld(b *testing.B) {
	h, _ := newHierarchy(b, map[string]string{"kubepods.slice/a.slice/b.scope/io.max": "8:0 rbps=max wbps=1048576 riops=max wiops=max\n"})
	c, buf := h.Cgroup("kubepods.slice/a.slice/b.scope"), make([]byte, 0, 4096)
	for name, read := range map[string]func(string, []byte) ([]byte, error){"held": c.ReadHeld, "opened": c.ReadText} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := read("io.max", buf); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
