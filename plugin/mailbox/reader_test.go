package mailbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio/hostfs"
)

// readerTest is a reader of a directory, and what it reports.
type readerTest struct {
	*Reader[document]
	t        *testing.T
	reported []string // "NUMBER text" or "NUMBER gone"
	warned   []error
}

func newReaderTest(t *testing.T) *readerTest {
	r := &readerTest{t: t}
	r.Reader = NewReader(Config[document]{
		Dir: filepath.Join(t.TempDir(), "mailbox"), Format: format(),
		Changed: func(uid string, d *document) {
			text := "gone"
			if d != nil {
				text = d.Text
			}
			r.reported = append(r.reported, strings.TrimLeft(uid[:8], "0")+" "+text)
		},
		Warn: func(err error) { r.warned = append(r.warned, err) },
	})
	return r
}

// file returns the path of the document of a pod.
func (r *readerTest) file(n int) string { return filepath.Join(r.Dir, FileName(testUID(n))) }

// put writes the document of a pod as a writer does.
func (r *readerTest) put(n int, text string) {
	r.t.Helper()
	r.putBytes(n, encoded(r.t, &document{Version: 1, UID: testUID(n), Namespace: "prod", Text: text}))
}

func (r *readerTest) putBytes(n int, data []byte) {
	r.t.Helper()
	r.must(os.MkdirAll(r.Dir, 0o770))
	r.must(hostfs.ReplaceFile(r.file(n), data))
}

func (r *readerTest) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// want reads, and compares what was reported since the last call.
func (r *readerTest) want(when string, want ...string) {
	r.t.Helper()
	r.Read(time.Now())
	r.got(when, want...)
}

func (r *readerTest) got(when string, want ...string) {
	r.t.Helper()
	slices.Sort(r.reported)
	equal(r.t, when, want, r.reported)
	r.reported = nil
}

// counts compares the numbers for metrics.
func (r *readerTest) wantCounts(when string, usable, unreadable int64) {
	r.t.Helper()
	if u, n := r.Counts(); u != usable || n != unreadable {
		r.t.Errorf("%s: %d documents are in use and %d unreadable, want %d and %d", when, u, n, usable, unreadable)
	}
}

// TestReader verifies that each document is reported once for each of its versions, and its removal, and that a missing
// directory changes nothing.
func TestReader(t *testing.T) {
	r := newReaderTest(t)
	r.want("no directory")
	r.put(1, "a")
	r.put(2, "b")
	r.want("two", "1 a", "2 b")
	r.want("the same")
	for i := range 20 { // within one step of the clock
		r.put(1, fmt.Sprint("v", i))
		r.want("changed", fmt.Sprint("1 v", i))
	}
	r.must(os.Remove(r.file(2)))
	r.want("removed", "2 gone")
	r.must(os.Rename(r.Dir, r.Dir+".away"))
	r.want("away")
	r.must(os.Rename(r.Dir+".away", r.Dir))
	r.put(1, "again")
	r.want("here again", "1 again")
	r.must(os.RemoveAll(r.Dir))
	r.put(3, "c")
	r.want("another directory", "1 gone", "3 c")
	if len(r.warned) > 0 {
		t.Errorf("warned of %v", r.warned)
	}
}

// TestReaderLooksOnly verifies that the files are not read while the directory is unchanged, and that they are after some
// time: a file that is changed in its place changes no directory.
func TestReaderLooksOnly(t *testing.T) {
	r := newReaderTest(t)
	r.put(1, "a")
	r.want("first", "1 a")
	data, err := os.ReadFile(r.file(1))
	r.must(err)
	r.must(os.WriteFile(r.file(1), []byte(strings.Replace(string(data), `:"a"`, `:"changed"`, 1)), 0o600))
	later := time.Now().Add(2 * settling)
	r.place.compared = later
	r.Read(later)
	r.got("unchanged")
	r.Read(later.Add(Resync + time.Second))
	r.got("after a while", "1 changed")
}

// TestReaderUnreadable verifies that an unreadable document changes nothing for its pod and no other document, that it is
// reported once while it lasts, and that nothing else in the directory is read.
func TestReaderUnreadable(t *testing.T) {
	r := newReaderTest(t)
	r.put(1, "a")
	r.put(2, "b")
	r.want("first", "1 a", "2 b")
	r.putBytes(1, []byte(`{"version":1}`))
	secret := filepath.Join(t.TempDir(), "secret")
	r.must(os.WriteFile(secret, []byte("{}"), 0o600))
	r.must(os.Symlink(secret, r.file(3)))
	for _, name := range []string{"other.json", "x.new", "..json", strings.Repeat("a", 200) + ".json"} {
		r.must(os.WriteFile(filepath.Join(r.Dir, name), []byte("{"), 0o600))
	}
	r.want("broken")
	r.want("still")
	r.wantCounts("broken", 2, 2)
	if len(r.warned) != 1 || !strings.Contains(r.warned[0].Error(), "and 1 others") {
		t.Errorf("warned of %v", r.warned)
	}
	r.put(1, "mended")
	r.must(os.Remove(r.file(3)))
	r.want("mended", "1 mended")
	r.wantCounts("mended", 2, 0)
}

// TestReaderWarnings verifies that errors that the writer changes all the time are logged once in some time, and one that
// lasts is logged again.
func TestReaderWarnings(t *testing.T) {
	r := newReaderTest(t)
	now := time.Now()
	for i := range 40 {
		r.putBytes(i%7, fmt.Appendf(nil, `{"version":1,"k%d":1}`, i))
		r.Read(now.Add(time.Duration(i) * time.Second))
	}
	if len(r.warned) != 2 {
		t.Errorf("%d warnings in 40 s", len(r.warned))
	}
	r.warned = nil
	for i := range 20 {
		r.Read(now.Add(time.Duration(i+1) * time.Minute))
	}
	if len(r.warned) < 1 || len(r.warned) > 3 {
		t.Errorf("%d warnings in 20 minutes of the same error", len(r.warned))
	}
}

// TestReaderVanished verifies that a file that is removed while the directory is read is no error, and that its document stays
// until the next look.
func TestReaderVanished(t *testing.T) {
	r := newReaderTest(t)
	r.put(1, "a")
	r.want("first", "1 a")
	r.must(os.Remove(r.file(1)))
	for _, n := range []int{1, 2} {
		r.take(testUID(n), hostfs.Version{Inode: 1})
	}
	if err := r.unusable(); err != nil {
		t.Error(err)
	}
	r.wantCounts("vanished", 1, 0)
	r.want("next look", "1 gone")
}

// TestReaderShares verifies that a directory that was removed is shared again after some time, and no sooner.
func TestReaderShares(t *testing.T) {
	r := newReaderTest(t)
	shared := 0
	r.Share = func() {
		shared++
		r.must(os.MkdirAll(r.Dir, 0o770))
	}
	now := time.Now()
	for _, tt := range []struct {
		after time.Duration
		want  int
	}{{0, 1}, {Resync - 1, 1}, {Resync, 2}, {Resync + 1, 2}, {2 * Resync, 3}} {
		r.must(os.RemoveAll(r.Dir))
		if r.Read(now.Add(tt.after)); shared != tt.want || len(r.warned) > 0 {
			t.Errorf("after %v it was shared %d times, %v", tt.after, shared, r.warned)
		}
	}
}

// TestReaderNoDirectory verifies that a path that is no directory is an error, and changes nothing.
func TestReaderNoDirectory(t *testing.T) {
	r := newReaderTest(t)
	r.put(1, "a")
	r.want("first", "1 a")
	r.must(os.Rename(r.Dir, r.Dir+".away"))
	r.must(os.WriteFile(r.Dir, nil, 0o600))
	r.want("a file")
	if len(r.warned) != 1 || !errors.Is(r.warned[0], os.ErrInvalid) && !strings.Contains(r.warned[0].Error(), "not a directory") {
		t.Errorf("warned of %v", r.warned)
	}
	r.wantCounts("a file", 1, 0)
}

// TestReaderBounded verifies that a document for which there is no room is reported, that what it replaces stays, and that
// it is in use once there is room.
func TestReaderBounded(t *testing.T) {
	r := newReaderTest(t)
	r.Format.MaxKept = 600
	a, b, c := strings.Repeat("a", 250), strings.Repeat("b", 350), strings.Repeat("c", 351)
	r.put(1, a)
	r.put(2, b)
	r.want("both", "1 "+a, "2 "+b)
	r.put(2, c)
	r.want("no room")
	r.wantCounts("no room", 2, 1)
	if len(r.warned) != 1 || !strings.Contains(r.warned[0].Error(), "more than 600 bytes together") {
		t.Errorf("warned of %v", r.warned)
	}
	r.put(1, "less")
	r.want("smaller", "1 less", "2 "+c)
	r.must(os.Remove(r.file(2)))
	r.put(3, a)
	r.want("removed", "2 gone", "3 "+a)
	r.wantCounts("removed", 2, 0)
}
