package hostfs

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// node makes a node's root directory of these files and symlinks.
func node(t *testing.T, files, links map[string]string) Root {
	t.Helper()
	dir := t.TempDir()
	for name, data := range files {
		put(t, filepath.Join(dir, name), data)
	}
	for name, target := range links {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, name); err != nil {
			t.Fatal(err)
		}
	}
	return Root(dir)
}

func put(t *testing.T, name, data string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(data), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestReadFile verifies that symlinks have the same targets as on the node, and never lead out of its root.
func TestReadFile(t *testing.T) {
	r := node(t, map[string]string{"etc/real": "here", "etc/large": strings.Repeat("x", MaxFile+1)}, map[string]string{
		"etc/absolute": "/etc/real", "etc/relative": "real", "etc/above": "../../../../etc/real", "etc/loop": "loop", "run": "/etc",
	})
	for _, name := range []string{"/etc/real", "etc/real", "/etc/absolute", "/etc/relative", "/etc/above", "/run/real", "/../etc/real"} {
		if data, err := r.ReadFile(name); err != nil || string(data) != "here" {
			t.Errorf("%s: %q, %v", name, data, err)
		}
		if !r.Exists(name) || r.IsDir(name) {
			t.Errorf("%s is not a file", name)
		}
	}
	if !r.IsDir("/run") || r.Exists("/etc/loop") || r.Exists("/none") {
		t.Error("wrong kinds of files")
	}
	if _, err := r.ReadFile("/none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("absent: %v", err)
	}
	if _, err := r.ReadFile("/etc/loop"); err == nil {
		t.Error("a loop of symlinks was read")
	}
	if _, err := r.ReadFile("/etc/large"); err == nil || err.Error() != "read /etc/large: larger than 1048576 bytes" {
		t.Errorf("too large: %v", err)
	}
}

// TestFS verifies that a Root is a file system for fs.Glob and fs.WalkDir.
func TestFS(t *testing.T) {
	r := node(t, map[string]string{"etc/conf.d/b": "", "etc/conf.d/a": ""}, map[string]string{"etc/link": "/etc/conf.d"})
	got, err := fs.Glob(r, Name("/etc/link/*"))
	if d := cmp.Diff([]string{"etc/link/a", "etc/link/b"}, got); d != "" || err != nil {
		t.Errorf("%v; -want +got:\n%s", err, d)
	}
}

func TestName(t *testing.T) {
	for p, want := range map[string]string{"/etc/x": "etc/x", "etc/x": "etc/x", "/a/../b/": "b", "/../x": "x", "/": ""} {
		if got := Name(p); got != want {
			t.Errorf("%q: %q, want %q", p, got, want)
		}
	}
}

func TestNames(t *testing.T) {
	r := node(t, map[string]string{"pods/b/x": "", "pods/a/x": "", "pods/file": ""}, map[string]string{"pods/link": "/none"})
	for dir, want := range map[string][]string{"/pods": {"a", "b", "file", "link"}, "/none": nil, "/pods/file": nil} {
		got, err := r.Names(dir)
		if d := cmp.Diff(want, got); d != "" || err != nil {
			t.Errorf("%s: %v; -want +got:\n%s", dir, err, d)
		}
	}
}

func TestTimes(t *testing.T) {
	r := node(t, map[string]string{"dir/x": ""}, map[string]string{"link": "dir"})
	past := time.Unix(1e9, 0)
	if err := os.Chtimes(filepath.Join(string(r), "dir"), past, past); err != nil {
		t.Fatal(err)
	}
	if at, ok := r.ModTime("/dir"); !ok || !at.Equal(past) {
		t.Errorf("mtime of a directory: %v %v", at, ok)
	}
	for _, name := range []string{"/dir/x", "/link", "/none"} {
		if _, ok := r.ModTime(name); ok {
			t.Errorf("%s counts as a directory", name)
		}
	}
	if at, err := r.ChangeTime("/dir"); err != nil || !at.After(past) {
		t.Errorf("ctime was set back: %v, %v", at, err)
	}
	if _, err := r.ChangeTime("/none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("ctime of an absent file: %v", err)
	}
	if boot := BootTime(); !boot.Before(time.Now()) {
		t.Errorf("the node starts at %v", boot)
	}
}

// TestLock verifies that a flock belongs to the open file, so two in one process exclude each other.
func TestLock(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lock")
	first, err := TryLock(file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := TryLock(file); !errors.Is(err, ErrLocked) {
		t.Errorf("a second lock: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := TryLock(file)
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
	link := file + ".link"
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	if _, err := TryLock(link); err == nil || errors.Is(err, ErrLocked) {
		t.Errorf("a symlink was locked: %v", err)
	}
}

// TestStillThere verifies that a lock of a file that was replaced locks nothing.
func TestStillThere(t *testing.T) {
	name := filepath.Join(t.TempDir(), "lock")
	put(t, name, "")
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := stillThere(f); err != nil {
		t.Error(err)
	}
	for change, do := range map[string]func() error{
		"replaced": func() error { put(t, name+".new", ""); return os.Rename(name+".new", name) },
		"removed":  func() error { return os.RemoveAll(name) },
	} {
		if err := do(); err != nil {
			t.Fatal(err)
		}
		if err := stillThere(f); !errors.Is(err, ErrLocked) {
			t.Errorf("%s: %v", change, err)
		}
	}
}

func TestJSON(t *testing.T) {
	file := filepath.Join(t.TempDir(), "new", "dir", "state.json")
	var got map[string]int
	if found, err := ReadJSON(file, &got); found || err != nil {
		t.Errorf("absent: %v %v", found, err)
	}
	for _, n := range []int{1, 2} {
		if err := WriteJSON(file, map[string]int{"n": n}); err != nil {
			t.Fatal(err)
		}
		if found, err := ReadJSON(file, &got); !found || err != nil || got["n"] != n {
			t.Errorf("read %v, %v %v", got, found, err)
		}
	}
	names, err := filepath.Glob(filepath.Dir(file) + "/*")
	if err != nil || len(names) != 1 {
		t.Errorf("left behind: %v, %v", names, err)
	}
	if err := WriteJSON(file, func() {}); err == nil {
		t.Error("a function was written")
	}
	put(t, file, "{")
	if found, err := ReadJSON(file, &got); found || err == nil || !strings.HasPrefix(err.Error(), "read "+file) {
		t.Errorf("no JSON: %v %v", found, err)
	}
	if err := Remove(file); err != nil {
		t.Error(err)
	}
	if err := WriteJSON(filepath.Join(file, "below"), 1); err != nil {
		t.Error(err)
	}
	if err := WriteJSON(filepath.Join(file, "below", "a file"), 1); err == nil {
		t.Error("a file became a directory")
	}
}

// TestWrongKind verifies that a directory in place of a file is an error of each function, not a panic or an
// empty result.
func TestWrongKind(t *testing.T) {
	r := node(t, map[string]string{"dir/x": ""}, nil)
	dir := filepath.Join(string(r), "dir")
	if _, err := r.ReadFile("/dir"); err == nil {
		t.Error("a directory was read as a file")
	}
	if found, err := ReadJSON(dir, new(int)); found || err == nil {
		t.Errorf("a directory was read as JSON: %v", err)
	}
	if err := WriteJSON(dir, 1); err == nil {
		t.Error("a directory was replaced by a file")
	}
	if _, err := TryLock(dir); err == nil || errors.Is(err, ErrLocked) {
		t.Errorf("a directory was locked: %v", err)
	}
	if err := Remove(dir); err == nil {
		t.Error("a directory with files was removed")
	}
	if err := Remove(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an absent file was removed: %v", err)
	}
}

// TestExistsSocket verifies that a socket exists, although it cannot be opened.
func TestExistsSocket(t *testing.T) {
	r := node(t, map[string]string{"run/.keep": ""}, nil)
	l, err := net.Listen("unix", filepath.Join(string(r), "run/s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if !r.Exists("/run/s") || r.IsDir("/run/s") {
		t.Error("the socket was not found")
	}
	if file, err := r.Resolve("/run/s"); err != nil || file != filepath.Join(string(r), "run/s") {
		t.Errorf("resolved to %s, %v", file, err)
	}
}
