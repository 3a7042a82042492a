package exchange

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	logtest "github.com/sirupsen/logrus/hooks/test"

	"github.com/nri-blkio/nri-blkio/blkio/hostfs"
	"github.com/nri-blkio/nri-blkio/plugin/poddoc"
)

// fixture is a reader of a directory, and what it reports.
type fixture struct {
	*Reader
	t        *testing.T
	reported []string // "UID wbps=..." or "UID gone"
	logged   *logtest.Hook
}

func newFixture(t *testing.T) *fixture {
	f := &fixture{t: t}
	log, hook := logtest.NewNullLogger()
	f.logged = hook
	f.Reader = New(Config{Dir: filepath.Join(t.TempDir(), "exchange"), Every: time.Millisecond, Log: log, Changed: func(uid string, d *poddoc.Document) {
		text := "gone"
		if d != nil {
			text = d.Annotations[key]
		}
		f.reported = append(f.reported, uid[:8]+" "+text)
	}})
	return f
}

const key = "limits.blkio.noderesource.dev/containers"

// uid returns the UID of a pod. Its first eight characters are the number.
func uid(n int) string { return fmt.Sprintf("%08d-7a4e-4b0c-9f52-8d1d5f1c2b3a", n) }

// put writes the document of a pod as the cluster part does.
func (f *fixture) put(n int, value string) {
	f.t.Helper()
	d := &poddoc.Document{UID: uid(n), Namespace: "prod", Name: "db-0", Annotations: map[string]string{key: value}}
	d.Bound()
	data, err := poddoc.Encode(d)
	if err == nil {
		err = os.MkdirAll(f.Dir, 0o770)
	}
	if err == nil {
		err = hostfs.ReplaceFile(filepath.Join(f.Dir, poddoc.FileName(d.UID)), data)
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) remove(n int) {
	f.t.Helper()
	if err := os.Remove(filepath.Join(f.Dir, poddoc.FileName(uid(n)))); err != nil {
		f.t.Fatal(err)
	}
}

// want reads, and compares what was reported since the last call.
func (f *fixture) want(when string, want ...string) {
	f.t.Helper()
	f.Read()
	slices.Sort(f.reported)
	if d := cmp.Diff(want, f.reported); d != "" {
		f.t.Errorf("%s: -want +got:\n%s", when, d)
	}
	f.reported = nil
}

// TestReader verifies that each document is reported once for each of its versions, and its removal, and that a missing
// directory changes nothing.
func TestReader(t *testing.T) {
	f := newFixture(t)
	f.want("no directory")
	f.put(1, "a")
	f.put(2, "b")
	f.want("two", "00000001 a", "00000002 b")
	f.want("the same")
	for i := range 20 { // within one step of the clock
		f.put(1, fmt.Sprint("v", i))
		f.want("changed", fmt.Sprint("00000001 v", i))
	}
	f.remove(2)
	f.want("removed", "00000002 gone")
	if err := os.Rename(f.Dir, f.Dir+".away"); err != nil {
		t.Fatal(err)
	}
	f.want("away")
	if err := os.Rename(f.Dir+".away", f.Dir); err != nil {
		t.Fatal(err)
	}
	f.put(1, "again")
	f.want("here again", "00000001 again")
	if err := os.RemoveAll(f.Dir); err != nil {
		t.Fatal(err)
	}
	f.put(3, "c")
	f.want("another directory", "00000001 gone", "00000003 c")
	if len(f.logged.AllEntries()) > 0 {
		t.Errorf("logged %v", f.logged.LastEntry())
	}
}

// TestReaderLooksOnly verifies that the files are not read while the directory is unchanged, and that they are after some
// time: a file that is changed in its place changes no directory.
func TestReaderLooksOnly(t *testing.T) {
	f := newFixture(t)
	f.put(1, "a")
	f.want("first", "00000001 a")
	data, err := os.ReadFile(filepath.Join(f.Dir, poddoc.FileName(uid(1))))
	if err != nil {
		t.Fatal(err)
	}
	put := strings.Replace(string(data), `:"a"`, `:"changed"`, 1)
	if err := os.WriteFile(filepath.Join(f.Dir, poddoc.FileName(uid(1))), []byte(put), 0o600); err != nil {
		t.Fatal(err)
	}
	later := time.Now().Add(2 * settling)
	f.place.compared = later
	if err := f.read(later); err != nil || len(f.reported) > 0 {
		t.Errorf("unchanged: %v, %v", f.reported, err)
	}
	if err := f.read(later.Add(resync + time.Second)); err != nil || len(f.reported) != 1 {
		t.Errorf("after a while: %v, %v", f.reported, err)
	}
}

// TestReaderHostile verifies that an unreadable document changes nothing for its pod and no other document, is reported
// while it lasts, and that nothing else in the directory is read.
func TestReaderHostile(t *testing.T) {
	f := newFixture(t)
	f.put(1, "a")
	f.put(2, "b")
	f.want("first", "00000001 a", "00000002 b")
	broken := filepath.Join(f.Dir, poddoc.FileName(uid(1)))
	if err := hostfs.ReplaceFile(broken, []byte(`{"version":1}`)); err != nil {
		t.Fatal(err)
	}
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(secret, filepath.Join(f.Dir, poddoc.FileName(uid(3)))); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"other.json", "x.new", "..json", strings.Repeat("a", 200) + ".json"} {
		if err := os.WriteFile(filepath.Join(f.Dir, name), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f.want("broken")
	f.want("still")
	if n := len(f.logged.AllEntries()); n != 1 || !strings.Contains(fmt.Sprint(f.logged.LastEntry().Data["error"]), "and 1 others") {
		t.Errorf("%d lines are logged: %v", n, f.logged.LastEntry())
	}
	const want = `
# HELP nri_blkio_pod_documents Documents of the cluster part, by whether the limits part can use them. For one that it cannot use, an earlier version counts.
# TYPE nri_blkio_pod_documents gauge
nri_blkio_pod_documents{state="read"} 2
nri_blkio_pod_documents{state="unreadable"} 2
`
	if err := testutil.CollectAndCompare(f.Reader, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	f.put(1, "mended")
	f.remove(3)
	f.want("mended", "00000001 mended")
	if f.unreadable.Load() != 0 {
		t.Error("unreadable documents are counted still")
	}
}

// TestReaderBounded verifies that documents beyond the bound are not kept, and that there is room again for others once
// some are removed.
func TestReaderBounded(t *testing.T) {
	f := newFixture(t)
	f.put(1, "a")
	f.want("first", "00000001 a")
	f.kept = maxKept
	f.put(2, "b")
	f.want("no room")
	f.put(1, "")
	f.want("smaller", "00000001 ")
	f.kept = 0
	f.known[uid(1)].size = 0
	f.put(2, "b")
	f.want("room", "00000002 b")
}

// TestReaderShares verifies that a directory that was removed is shared again after some time, and no sooner.
func TestReaderShares(t *testing.T) {
	f := newFixture(t)
	shared := 0
	f.Share = func() {
		shared++
		if err := os.MkdirAll(f.Dir, 0o770); err != nil {
			t.Error(err)
		}
	}
	now := time.Now()
	for _, tt := range []struct {
		after time.Duration
		want  int
	}{{0, 1}, {resync - 1, 1}, {resync, 2}, {resync + 1, 2}, {2 * resync, 3}} {
		if err := os.RemoveAll(f.Dir); err != nil {
			t.Fatal(err)
		}
		if err := f.read(now.Add(tt.after)); err != nil || shared != tt.want {
			t.Errorf("after %v it was shared %d times, %v", tt.after, shared, err)
		}
	}
}

// TestSizeOf verifies that each text of a document counts, because a receiver keeps it.
func TestSizeOf(t *testing.T) {
	class := func(name string) *poddoc.Class {
		return &poddoc.Class{Name: name, Rates: map[string]string{"wbps": "1Mi"}}
	}
	d := &poddoc.Document{
		Annotations: map[string]string{"a": "bc"}, Labels: map[string]string{"d": ""}, NamespaceLabels: map[string]string{"e": "f"}, ContainerKinds: map[string]string{"setup": "init"},
		Volumes: []poddoc.Volume{
			{Name: "v", Claim: "data", Limits: new("wbps=1Mi"), Mounts: []poddoc.Mount{{Container: "db", Path: "/data"}}, Class: class("fast")},
			{Name: "w", Claim: "x"},
		},
	}
	if got, want := sizeOf(d), 9*entrySize+3+1+2+9+(1+4+8+7+4+7)+2; got != want {
		t.Errorf("%d bytes, want %d", got, want)
	}
}

// TestReaderRun verifies that Run reports a change by itself.
func TestReaderRun(t *testing.T) {
	f := newFixture(t)
	changed := make(chan string)
	f.Changed = func(uid string, _ *poddoc.Document) { changed <- uid }
	go f.Run(t.Context())
	f.put(1, "a")
	select {
	case got := <-changed:
		if got != uid(1) {
			t.Errorf("%s", got)
		}
	case <-time.After(time.Minute):
		t.Fatal("no change in a minute")
	}
}
