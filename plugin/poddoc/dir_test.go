package poddoc

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio/hostfs"
)

func TestIsUID(t *testing.T) {
	for s, want := range map[string]bool{
		testUID: true, "d41d8cd98f00b204e9800998ecf8427e": true,
		"": false, ".": false, "..": false, "a": false, "../" + testUID: false, testUID + "/..": false, testUID + "\n": false,
		strings.ToUpper(testUID): false, testUID + ".json": false, strings.Repeat("-", 36): false, testUID + "\x00": false,
	} {
		if got := IsUID(s); got != want {
			t.Errorf("%q: %t", s, got)
		}
	}
}

func TestReadDocument(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, FileName(testUID))
	if _, err := Read(dir, testUID); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a file: %v", err)
	}
	if err := hostfs.ReplaceFile(file, encoded(t, sample())); err != nil {
		t.Fatal(err)
	}
	got, err := Read(dir, testUID)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, sample(), got)
	if !got.IsOf(testUID, "prod", "db-0") || got.IsOf(testUID, "other", "db-0") || got.IsOf(testUID, "prod", "db-1") {
		t.Error("the document is of another pod")
	}
}

// TestReadHostile verifies that the reader has more privileges than a writer that has been taken over.
func TestReadHostile(t *testing.T) {
	other := sample()
	other.UID = "d41d8cd98f00b204e9800998ecf8427e"
	for name, tt := range map[string]struct {
		make func(file string) error
		want string
	}{
		"symlink":   {func(file string) error { return os.Symlink("/etc/passwd", file) }, "too many levels"},
		"directory": {func(file string) error { return os.Mkdir(file, 0o700) }, "not a regular file"},
		"large":     {func(file string) error { return os.WriteFile(file, make([]byte, MaxSize+1), 0o600) }, "larger than 76800 bytes"},
		"broken":    {func(file string) error { return os.WriteFile(file, []byte("{"), 0o600) }, "unexpected end"},
		"other pod": {func(file string) error { return os.WriteFile(file, encoded(t, other), 0o600) }, `uid: invalid value "d41d8`},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := tt.make(filepath.Join(dir, FileName(testUID))); err != nil {
				t.Fatal(err)
			}
			_, err := Read(dir, testUID)
			contains(t, err, tt.want)
		})
	}
	_, err := Read(t.TempDir(), "../x")
	contains(t, err, "uid: invalid value")
}

func TestNames(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{FileName(testUID), FileName(testUID) + ".new", "other.json", "x.json", testUID, ".json"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	uids, more, err := Names(dir)
	if err != nil || more {
		t.Errorf("%t, %v", more, err)
	}
	equal(t, []string{testUID}, uids)
	for i := range MaxDocuments {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, more, err := Names(dir); !more || err != nil {
		t.Errorf("a full directory: %t, %v", more, err)
	}
	if _, _, err := Names(filepath.Join(dir, "absent")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("absent: %v", err)
	}
}
