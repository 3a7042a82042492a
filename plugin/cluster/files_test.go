package cluster

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/plugin/poddoc"
)

// filesTest has an exchange directory.
type filesTest struct {
	*testing.T
	*files
}

func newFilesTest(t *testing.T) *filesTest { return &filesTest{t, newFiles(t.TempDir())} }

func (f *filesTest) put(name, data string) {
	f.Helper()
	if err := os.WriteFile(filepath.Join(f.dir, name), []byte(data), 0o600); err != nil {
		f.Fatal(err)
	}
}

// writes fails the test unless the document is written, or not.
func (f *filesTest) writes(what, uid, data string, want bool) {
	f.Helper()
	if written, err := f.write(uid, []byte(data)); written != want || err != nil {
		f.Errorf("%s: %t, %v", what, written, err)
	}
	if got, err := os.ReadFile(filepath.Join(f.dir, poddoc.FileName(uid))); err != nil || string(got) != data {
		f.Errorf("%s: %q, %v", what, got, err)
	}
}

func (f *filesTest) has(what string, want ...string) {
	f.Helper()
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		f.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	slices.Sort(want)
	equal(f.T, what, want, got)
}

// TestFilesUnchanged verifies that a document is written only if its bytes change, even after a restart.
func TestFilesUnchanged(t *testing.T) {
	f := newFilesTest(t)
	f.writes("new", testUID, "a", true)
	f.writes("unchanged", testUID, "a", false)
	f.writes("changed", testUID, "b", true)
	f.files = newFiles(f.dir)
	f.writes("after a restart", testUID, "b", false)
	f.writes("then changed", testUID, "c", true)
	for range 2 {
		if err := f.remove(testUID); err != nil {
			t.Error(err)
		}
	}
	f.has("removed")
	f.writes("again", testUID, "c", true)
}

// TestFilesCompare verifies that files of pods that do not exist are removed, documents that are missing are
// reported, and other files are not touched.
func TestFilesCompare(t *testing.T) {
	f := newFilesTest(t)
	exists := func(uid string) bool { return uid != uidOf(9) }
	for _, uid := range []string{uidOf(1), uidOf(2)} {
		f.writes("new", uid, "a", true)
	}
	for _, name := range []string{poddoc.FileName(uidOf(9)), poddoc.FileName(uidOf(1)) + ".new", "other.json", "other.json.new", "x"} {
		f.put(name, "x")
	}
	if err := os.Remove(filepath.Join(f.dir, poddoc.FileName(uidOf(2)))); err != nil {
		t.Fatal(err)
	}
	missing, err := f.compare(exists)
	equal(t, "missing", []string{uidOf(2)}, missing)
	if err != nil {
		t.Error(err)
	}
	f.has("compared", poddoc.FileName(uidOf(1)), "other.json", "other.json.new", "x")
	f.writes("missing", uidOf(2), "a", true)
	if missing, err := f.compare(exists); len(missing) > 0 || err != nil {
		t.Errorf("again: %q, %v", missing, err)
	}
}

// TestFilesFail verifies that what cannot be written is written later, whatever is there.
func TestFilesFail(t *testing.T) {
	f := newFilesTest(t)
	f.writes("new", testUID, "a", true)
	file := filepath.Join(f.dir, poddoc.FileName(testUID))
	if err := os.Mkdir(file+".new", 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := f.write(testUID, []byte("b")); err == nil {
		t.Fatal("written over a directory")
	}
	if err := os.Remove(file + ".new"); err != nil {
		t.Fatal(err)
	}
	f.writes("later", testUID, "b", true)
	f.dir = filepath.Join(f.dir, "absent")
	if _, err := f.compare(nil); err == nil {
		t.Error("no error without a directory")
	}
	if err := os.WriteFile(f.dir, []byte(strings.Repeat("x", 9)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := f.write(uidOf(1), []byte("a")); err == nil {
		t.Error("written below a file")
	}
}

func TestQueue(t *testing.T) {
	q := newQueue()
	q.put("c")
	select {
	case <-q.wake:
		t.Error("put wakes the loop")
	default:
	}
	for _, uid := range []string{"b", "a", "b"} {
		q.add(uid)
	}
	select {
	case <-q.wake:
	case <-time.After(time.Minute):
		t.Fatal("add does not wake the loop")
	}
	equal(t, "taken", []string{"a", "b", "c"}, q.take())
	if again := q.take(); len(again) > 0 {
		t.Errorf("taken again: %q", again)
	}
}
