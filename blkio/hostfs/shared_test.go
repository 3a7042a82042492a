package hostfs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

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
	before, err := VersionOf(dir)
	if err != nil {
		t.Fatal(err)
	}
	waitForClock(t, before)
	if err := ShareDir(dir, os.Getgid()); err != nil {
		t.Fatal(err)
	}
	if after, err := VersionOf(dir); err != nil || after != before {
		t.Errorf("a shared directory was changed: %v, %v, %v", before, after, err)
	}
	// With a symlink, a user who can write the parent directory could make the program share another directory.
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if err := ShareDir(link, os.Getgid()); err == nil {
		t.Error("a symlink was followed")
	}
}

// TestOfferDir verifies that with any umask, the group can read the directory and its files, but not write them.
func TestOfferDir(t *testing.T) {
	old := unix.Umask(0o077)
	t.Cleanup(func() { unix.Umask(old) })
	dir := filepath.Join(t.TempDir(), "offered")
	if err := ShareDir(dir, os.Getgid()); err != nil { // which the group may write
		t.Fatal(err)
	}
	if err := OfferDir(dir, os.Getgid()); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "a")
	for _, want := range []string{"old", "new"} {
		if err := ReplaceOffered(file, []byte(want)); err != nil {
			t.Fatal(err)
		}
		if got, err := ReadShared(file, 3); err != nil || string(got) != want {
			t.Errorf("%q, %v, want %q", got, err, want)
		}
	}
	for name, want := range map[string]fs.FileMode{dir: fs.ModeDir | 0o750, file: 0o644} {
		if info, err := os.Stat(name); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v, want %v", name, info.Mode(), err, want)
		}
	}
	if names, _, _ := SharedNames(dir, 9); !cmp.Equal(names, []string{"a"}) {
		t.Errorf("names %q", names)
	}
	if err := ReplaceOffered(filepath.Join(dir, "absent", "a"), nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("in an absent directory: %v", err)
	}
}

// waitForClock returns when a change would have another time than a version.
func waitForClock(t *testing.T, than Version) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "clock")
	for {
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if v, err := VersionOf(file); err != nil || v.Changed.After(than.Changed) {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// TestReadSharedBelow verifies that a file below a directory is read, and not by a symlink that leads out of the directory, nor
// beyond the limit.
func TestReadSharedBelow(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	err := errors.Join(os.Mkdir(filepath.Join(dir, "state"), 0o700), os.WriteFile(filepath.Join(dir, "state", "a"), []byte("text"), 0o600),
		os.WriteFile(filepath.Join(outside, "a"), []byte("secret"), 0o600), os.Symlink(outside, filepath.Join(dir, "link")),
		os.Symlink(filepath.Join(outside, "a"), filepath.Join(dir, "state", "b")), unix.Mkfifo(filepath.Join(dir, "state", "fifo"), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	if data, err := ReadSharedBelow(dir, "state/a", 4); string(data) != "text" || err != nil {
		t.Errorf("%q, %v", data, err)
	}
	for _, path := range []string{"link/a", "state/b", "state/fifo", "state", "../a"} {
		if data, err := ReadSharedBelow(dir, path, 100); err == nil {
			t.Errorf("%s: %q", path, data)
		}
	}
	if data, err := ReadSharedBelow(dir, "state/a", 3); err == nil {
		t.Errorf("too large: %q", data)
	}
	if _, err := ReadSharedBelow(filepath.Join(dir, "absent"), "a", 1); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("absent: %v", err)
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
		if info, err := os.Stat(file); err != nil || info.Mode()&^0o040 != 0o600 { // the umask may take the group's right
			t.Errorf("mode %v, %v", info.Mode(), err)
		}
	}
	if names, _, _ := SharedNames(dir, 9); !cmp.Equal(names, []string{"a"}) {
		t.Errorf("names %q", names)
	}
	if err := ReplaceFile(filepath.Join(dir, "absent", "a"), nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("in an absent directory: %v", err)
	}
}

// TestReadSharedHostile verifies that everything but a regular file is an error at once.
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
