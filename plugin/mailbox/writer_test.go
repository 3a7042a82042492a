package mailbox

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio/hostfs"
)

// writerTest has a directory.
type writerTest struct {
	*testing.T
	*Writer[document]
}

func newWriterTest(t *testing.T) *writerTest {
	return &writerTest{t, NewWriter(t.TempDir(), format(), hostfs.ReplaceFile)}
}

func (w *writerTest) put(name, data string) {
	w.Helper()
	if err := os.WriteFile(filepath.Join(w.dir, name), []byte(data), 0o600); err != nil {
		w.Fatal(err)
	}
}

// equal reports a difference.
func equal(t *testing.T, what string, want, got any) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s: -want +got:\n%s", what, d)
	}
}

// writes fails the test unless the document is written, or not.
func (w *writerTest) writes(what, uid, data string, want bool) {
	w.Helper()
	if written, err := w.Write(uid, []byte(data)); written != want || err != nil {
		w.Errorf("%s: %t, %v", what, written, err)
	}
	if got, err := os.ReadFile(filepath.Join(w.dir, FileName(uid))); err != nil || string(got) != data {
		w.Errorf("%s: %q, %v", what, got, err)
	}
}

func (w *writerTest) lists(what string, want ...string) {
	w.Helper()
	entries, err := os.ReadDir(w.dir)
	if err != nil {
		w.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	slices.Sort(want)
	equal(w.T, what, want, got)
}

// TestWriterUnchanged verifies that a document is written only if its bytes change, even after a restart.
func TestWriterUnchanged(t *testing.T) {
	w := newWriterTest(t)
	w.writes("new", testUID(0), "a", true)
	w.writes("unchanged", testUID(0), "a", false)
	w.writes("changed", testUID(0), "b", true)
	w.Writer = NewWriter(w.dir, format(), hostfs.ReplaceFile)
	w.writes("after a restart", testUID(0), "b", false)
	w.writes("then changed", testUID(0), "c", true)
	for range 2 {
		if err := w.Remove(testUID(0)); err != nil {
			t.Error(err)
		}
	}
	w.lists("removed")
	w.writes("again", testUID(0), "c", true)
}

// TestWriterClean verifies that files of pods that do not exist are removed, documents that are missing are
// reported, and other files are not touched.
func TestWriterClean(t *testing.T) {
	w := newWriterTest(t)
	exists := func(uid string) bool { return uid != testUID(9) }
	for _, uid := range []string{testUID(1), testUID(2)} {
		w.writes("new", uid, "a", true)
	}
	for _, name := range []string{FileName(testUID(9)), FileName(testUID(1)) + ".new", "other.json", "other.json.new", "x"} {
		w.put(name, "x")
	}
	if err := os.Remove(filepath.Join(w.dir, FileName(testUID(2)))); err != nil {
		t.Fatal(err)
	}
	missing, err := w.Clean(exists)
	equal(t, "missing", []string{testUID(2)}, missing)
	if err != nil {
		t.Error(err)
	}
	w.lists("compared", FileName(testUID(1)), "other.json", "other.json.new", "x")
	w.writes("missing", testUID(2), "a", true)
	if missing, err := w.Clean(exists); len(missing) > 0 || err != nil {
		t.Errorf("again: %q, %v", missing, err)
	}
}

// TestWriterFails verifies that what cannot be written is written later, whatever is there.
func TestWriterFails(t *testing.T) {
	w := newWriterTest(t)
	w.writes("new", testUID(0), "a", true)
	file := filepath.Join(w.dir, FileName(testUID(0)))
	if err := os.Mkdir(file+".new", 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(testUID(0), []byte("b")); err == nil {
		t.Fatal("written over a directory")
	}
	if err := os.Remove(file + ".new"); err != nil {
		t.Fatal(err)
	}
	w.writes("later", testUID(0), "b", true)
	w.dir = filepath.Join(w.dir, "absent")
	if _, err := w.Clean(nil); err == nil {
		t.Error("no error without a directory")
	}
	if err := os.WriteFile(w.dir, []byte(strings.Repeat("x", 9)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(testUID(1), []byte("a")); err == nil {
		t.Error("written below a file")
	}
}

// TestWriterCleanMany verifies that in a directory with too many files, what is not listed does not count as missing.
func TestWriterCleanMany(t *testing.T) {
	w := newWriterTest(t)
	for i := range format().MaxFiles {
		w.put(fmt.Sprint("other", i), "x")
	}
	w.writes("one more", testUID(1), "a", true)
	missing, err := w.Clean(func(string) bool { return true })
	if len(missing) > 0 || w.Documents() != 1 {
		t.Errorf("missing %q, %d documents", missing, w.Documents())
	}
	has(t, "many", err, "too many files")
}

// TestWriterRead verifies that a writer that restarts can read what it has written, and keep what it can read.
func TestWriterRead(t *testing.T) {
	w := newWriterTest(t)
	d := &document{Version: 1, UID: testUID(1), Text: "a"}
	w.writes("valid", testUID(1), string(encoded(t, d)), true)
	w.put(FileName(testUID(2)), `{"version":2}`)
	w.Writer = NewWriter(w.dir, format(), hostfs.ReplaceOffered)
	var got []*document
	_, err := w.Clean(func(uid string) bool {
		d, err := w.Read(uid)
		if err == nil {
			got = append(got, d)
		}
		return err == nil
	})
	has(t, "clean", err, "")
	equal(t, "read", []*document{d}, got)
	w.lists("cleaned", FileName(testUID(1)))
	w.writes("unchanged", testUID(1), string(encoded(t, d)), false)
}
