package exchange

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio/hostfs"
	"github.com/nri-blkio/nri-blkio/plugin/poddoc"
)

// hostile writes a file with the name of the document of a pod.
func (f *fixture) hostile(n int, text string) {
	f.t.Helper()
	err := os.MkdirAll(f.Dir, 0o770)
	if err == nil {
		err = hostfs.ReplaceFile(filepath.Join(f.Dir, poddoc.FileName(uid(n))), []byte(text))
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

// TestReadManyNames verifies that a writer that replaces all of too many files again and again does not make the reader, or
// its receiver, keep more and more.
func TestReadManyNames(t *testing.T) {
	f := newFixture(t)
	kept := map[string]bool{}
	f.Changed = func(uid string, d *poddoc.Document) {
		if kept[uid] = true; d == nil {
			delete(kept, uid)
		}
	}
	const more = poddoc.MaxDocuments + 1
	for round := range 3 {
		for i := range more {
			f.hostile(round*more+i, fmt.Sprintf(`{"version":1,"uid":%q,"namespace":"prod","name":"db-0"}`+"\n", uid(round*more+i)))
			if round > 0 {
				f.remove((round-1)*more + i)
			}
		}
		f.Read()
		if len(f.known) > poddoc.MaxDocuments || len(kept) > poddoc.MaxDocuments {
			t.Fatalf("round %d: the reader keeps %d files, the receiver %d documents", round, len(f.known), len(kept))
		}
	}
	if len(kept) == 0 {
		t.Error("no document was read")
	}
	if e := f.logged.LastEntry(); e == nil || !strings.Contains(fmt.Sprint(e.Data["error"]), "too many files") {
		t.Errorf("logged %v", e)
	}
}

// TestReadLongErrors verifies that what a writer puts into an error is bounded.
func TestReadLongErrors(t *testing.T) {
	f := newFixture(t)
	f.hostile(1, fmt.Sprintf(`{"version":1,%q:1}`, strings.Repeat("x", 60<<10)))
	var many strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&many, `,"k%d":1`, i)
	}
	f.hostile(2, `{"version":1`+many.String()+"}")
	f.Read()
	for uid, file := range f.known {
		if file.err == nil || len(file.err.Error()) > 1024 {
			t.Errorf("%s: error of %d bytes", uid, len(file.err.Error()))
		}
	}
}

// TestReadLabelMemory verifies that what a receiver keeps of all documents takes about the memory that the reader counts.
func TestReadLabelMemory(t *testing.T) {
	f := newFixture(t)
	kept := map[string]map[string]string{}
	f.Changed = func(uid string, d *poddoc.Document) {
		if d != nil {
			kept[uid] = maps.Clone(d.Labels)
		}
	}
	labels := ""
	for i := range 480 { // as many as the node keeps
		if labels != "" {
			labels += ","
		}
		labels += fmt.Sprintf(`"%03d":""`, i)
	}
	for i := range 1000 {
		f.hostile(i, fmt.Sprintf(`{"version":1,"uid":%q,"namespace":"prod","name":"db-0","labels":{%s}}`+"\n", uid(i), labels))
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for range 3 {
		f.Read()
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	t.Logf("%d documents of %d labels, the reader counts %d KiB, and they take %d KiB", len(kept), 480, f.kept>>10, (after.HeapAlloc-before.HeapAlloc)>>10)
	if grown := after.HeapAlloc - before.HeapAlloc; grown > maxKept+2<<20 { // the files and their errors beside it
		t.Errorf("%d KiB are kept, and the bound is %d KiB", grown>>10, maxKept>>10)
	}
	runtime.KeepAlive(kept)
}

// TestReadErrorsStarve verifies that files that cannot be read do not keep the others from being read. The first names are read
// again with each look.
func TestReadErrorsStarve(t *testing.T) {
	f := newFixture(t)
	long := fmt.Sprintf("%*s", poddoc.MaxSize, "x")
	for i := range maxKept/poddoc.MaxSize + 10 {
		f.hostile(i, long)
	}
	const last = 99999999
	f.put(last, "a")
	for range 10 {
		f.Read()
	}
	if len(f.reported) == 0 {
		t.Error("a document that can be read is never read")
	}
}
