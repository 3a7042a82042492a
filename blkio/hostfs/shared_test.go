package hostfs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func TestShareDir(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "absent", "shared")
	for range 2 { // it may exist
		if err := ShareDir(dir, os.Getgid()); err != nil {
			t.Fatal(err)
		}
	}
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		t.Fatal(err)
	}
	if st.Mode&0o7777 != 0o770 || st.Gid != uint32(os.Getgid()) {
		t.Errorf("mode %o, group %d", st.Mode, st.Gid)
	}
	// Whoever can write the directory above could have another one shared.
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if err := ShareDir(link, os.Getgid()); err == nil {
		t.Error("a symlink was followed")
	}
}

func TestReplaceFile(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "a")
	for _, want := range []string{"old", "new"} {
		if err := ReplaceFile(file, []byte(want)); err != nil {
			t.Fatal(err)
		}
		got, err := ReadShared(file, 3)
		if err != nil || string(got) != want {
			t.Errorf("%q, %v, want %q", got, err, want)
		}
	}
	if names, _, _ := SharedNames(dir, 9); !cmp.Equal(names, []string{"a"}) {
		t.Errorf("names %q", names)
	}
	if err := ReplaceFile(filepath.Join(dir, "absent", "a"), nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("in an absent directory: %v", err)
	}
}

// TestReadSharedHostile verifies that what is no regular file is an error, and is not waited for.
func TestReadSharedHostile(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, err := range []error{
		os.WriteFile(at("large"), []byte("12345"), 0o600), os.Symlink("large", at("link")),
		os.Symlink("/dev/zero", at("endless")), unix.Mkfifo(at("fifo"), 0o600), os.Mkdir(at("dir"), 0o700),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{
		"large": "larger than 4 bytes", "link": "too many levels", "endless": "too many levels",
		"fifo": "not a regular file", "dir": "not a regular file", "absent": "no such file",
	} {
		data, err := ReadShared(at(name), 4)
		if data != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q, %v, want %q", name, data, err, want)
		}
	}
	if _, err := ReadShared(at("absent"), 4); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("absent: %v", err)
	}
}

func TestSharedNames(t *testing.T) {
	dir := t.TempDir()
	if names, more, err := SharedNames(dir, 2); len(names) != 0 || more || err != nil {
		t.Errorf("empty: %q, %t, %v", names, more, err)
	}
	for _, name := range []string{"b", "a"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if names, more, err := SharedNames(dir, 2); !cmp.Equal(names, []string{"a", "b"}) || more || err != nil {
		t.Errorf("%q, %t, %v", names, more, err)
	}
	if names, more, err := SharedNames(dir, 1); len(names) != 1 || !more || err != nil {
		t.Errorf("one: %q, %t, %v", names, more, err)
	}
	if _, _, err := SharedNames(filepath.Join(dir, "absent"), 1); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("absent: %v", err)
	}
}

func TestRemoveIn(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // it may be gone
		if err := RemoveIn(dir, "a"); err != nil {
			t.Error(err)
		}
	}
	if err := RemoveIn(filepath.Join(dir, "below"), "../a"); err == nil {
		t.Error("a path was removed")
	}
}
