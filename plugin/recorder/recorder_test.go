package recorder

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/sirupsen/logrus/hooks/test"

	"github.com/nri-blkio/nri-blkio/plugin/mailbox"
	"github.com/nri-blkio/nri-blkio/plugin/podevent"
)

// podOf returns the n-th pod of a test.
func podOf(n int) podevent.Pod {
	return podevent.Pod{UID: fmt.Sprintf("0f9bd3ce-7a4e-4b0c-9f52-%012d", n), Namespace: "prod", Name: fmt.Sprintf("db-%d", n)}
}

// recorderTest runs a recorder, in a bubble of synctest.
type recorderTest struct {
	*testing.T
	*Recorder
	log     *test.Hook
	present atomic.Pointer[map[string]bool] // the UIDs of the node's pods; nil while they are not known
	stop    func()
}

func start(t *testing.T, dir string) *recorderTest {
	t.Helper()
	log, hook := test.NewNullLogger()
	r := &recorderTest{T: t, Recorder: New(Config{Dir: dir, Log: log}), log: hook}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Recorder.Run(ctx, func() map[string]bool {
			// A sweep may be due at the moment at which the test continues.
			if p := r.present.Load(); p != nil {
				return *p
			}
			return nil
		})
	}()
	r.stop = func() { cancel(); <-done }
	synctest.Wait()
	return r
}

// file returns the events in the file of a pod as lines, and "" without a file.
func (r *recorderTest) file(n int) string {
	r.Helper()
	time.Sleep(2 * pause)
	synctest.Wait()
	d, err := podevent.Format().Read(r.Dir, podOf(n).UID)
	if os.IsNotExist(err) {
		return ""
	}
	if err != nil {
		r.Fatal(err)
	}
	if d.Pod != podOf(n) {
		r.Errorf("the file is that of %v", d.Pod)
	}
	var out []string
	for _, e := range d.Events {
		out = append(out, fmt.Sprintf("%s %q x%d over %v", e.Reason, e.Note, e.Count, e.Last.Sub(e.First)))
	}
	return strings.Join(out, "\n")
}

// kept returns the numbers of events and of pods in memory.
func (r *recorderTest) kept() (events, pods int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.total, len(r.pods)
}

func (r *recorderTest) has(what string, n int, want ...string) {
	r.Helper()
	if d := cmp.Diff(strings.Join(want, "\n"), r.file(n)); d != "" {
		r.Errorf("%s: -want +got:\n%s", what, d)
	}
}

// TestRecorder verifies that an event that occurs again is counted, that a fact is not, that hostile text is escaped, and that
// the next process continues.
func TestRecorder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		r := start(t, dir)
		r.Note(podOf(0), podevent.Refused, podevent.KeyOf("a"), "a")
		r.has("once", 0, `BlkioRefused "a" x1 over 0s`)
		time.Sleep(8 * time.Second)
		r.Note(podOf(0), podevent.Refused, podevent.KeyOf("a"), "a")
		r.Note(podOf(0), podevent.Refused, podevent.KeyOf("a\n\x1b[2J\u202e\xff"), "a\n\x1b[2J\u202e\xff")
		r.Note(podOf(0), podevent.NoMemoryLimit, podevent.KeyOf("fact"), "fact")
		r.Note(podOf(0), podevent.NoMemoryLimit, podevent.KeyOf("fact"), "fact")
		r.Note(podOf(1), podevent.Refused, podevent.KeyOf("a"), "a")
		r.Note(podevent.Pod{UID: "../../etc/passwd", Namespace: "prod", Name: "db-0"}, podevent.Refused, podevent.KeyOf("a"), "a")
		first := []string{`BlkioRefused "a" x2 over 10s`, `BlkioRefused "a\\n\\x1b[2J\\u202e\\xff" x1 over 0s`, `BlkioNoMemoryLimit "fact" x1 over 0s`}
		r.has("twice", 0, first...)
		r.has("another pod", 1, `BlkioRefused "a" x1 over 0s`)
		r.stop()

		r = start(t, dir)
		defer func() { r.stop() }()
		r.has("after a restart", 0, first...)
		r.Note(podOf(0), podevent.NoMemoryLimit, podevent.KeyOf("fact"), "fact")
		r.Note(podOf(0), podevent.Changed, podevent.KeyOf("b"), "b")
		r.has("more", 0, append(first, `BlkioChanged "b" x1 over 0s`)...)
		time.Sleep(2 * keepGone)
		r.has("nothing is known", 0, append(first, `BlkioChanged "b" x1 over 0s`)...)
		r.present.Store(&map[string]bool{podOf(1).UID: true})
		time.Sleep(keepGone)
		r.has("gone for some time", 0, append(first, `BlkioChanged "b" x1 over 0s`)...)
		time.Sleep(2 * sweep)
		r.has("gone", 0)
		r.has("there", 1, `BlkioRefused "a" x1 over 0s`)
		if n, pods := r.kept(); n != 1 || pods != 1 {
			t.Errorf("%d events of %d pods are kept", n, pods)
		}
	})
}

// TestEarlyEvents verifies that events that are noted before those of the earlier process are read are added to them.
func TestEarlyEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		r := start(t, dir)
		r.Note(podOf(0), podevent.Refused, podevent.KeyOf("a"), "a")
		r.Note(podOf(0), podevent.Observed, podevent.KeyOf("fact"), "fact")
		r.stop()
		log, _ := test.NewNullLogger()
		late := &recorderTest{T: t, Recorder: New(Config{Dir: dir, Log: log})}
		late.Note(podOf(0), podevent.Refused, podevent.KeyOf("b"), "b")
		late.Note(podOf(0), podevent.Refused, podevent.KeyOf("a"), "a")
		late.Note(podOf(0), podevent.Observed, podevent.KeyOf("fact"), "fact")
		if err := late.load(); err != nil {
			t.Fatal(err)
		}
		if err := late.save(); err != nil {
			t.Fatal(err)
		}
		late.has("both", 0, `BlkioRefused "a" x2 over 0s`, `BlkioObserved "fact" x1 over 0s`, `BlkioRefused "b" x1 over 0s`)
		if n, _ := late.kept(); n != 3 {
			t.Errorf("%d events are counted", n)
		}
	})
}

// TestDirectory verifies that files that cannot be read are removed, that no other file is, and that a directory that cannot
// be written is reported once, and then written.
func TestDirectory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "events")
		r := start(t, dir)
		r.Note(podOf(0), podevent.Refused, podevent.KeyOf("a"), "a")
		time.Sleep(5 * sweep)
		if n := len(r.log.AllEntries()); n != 2 { // of reading and of writing
			t.Errorf("%d lines are logged", n)
		}
		if err := os.Mkdir(dir, 0o750); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * sweep)
		r.has("with a directory", 0, `BlkioRefused "a" x1 over 0s`)
		r.stop()
		broken, next := mailbox.FileName(podOf(1).UID), mailbox.FileName(podOf(2).UID)+".new"
		for _, name := range []string{broken, next, "other"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(`{"version":2}`), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		r = start(t, dir)
		defer func() { r.stop() }()
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) != 2 || entries[0].Name() != mailbox.FileName(podOf(0).UID) || entries[1].Name() != "other" {
			t.Errorf("%v, %v", entries, err)
		}
	})
}

// TestBounds verifies that the events of a pod displace its own ones, that a pod with many does not displace those of others,
// and that all this is counted.
func TestBounds(t *testing.T) {
	log, _ := test.NewNullLogger()
	r := New(Config{Dir: t.TempDir(), Log: log})
	r.Note(podOf(0), podevent.Refused, podevent.KeyOf("victim"), "victim")
	note := func(n, events int) {
		for i := range events {
			r.Note(podOf(n), podevent.ChangeRejected, podevent.KeyOf(fmt.Sprint(i)), fmt.Sprint(i))
		}
	}
	note(1, 1000)
	if p := r.pods[podOf(1).UID]; len(p.Events) != podevent.MaxEvents || p.Events[len(p.Events)-1].Note != "999" {
		t.Errorf("%d events of a pod", len(p.Events))
	}
	for n := range podevent.MaxPods {
		note(n+1, 8)
	}
	note(1, 1000)
	if len(r.pods) != podevent.MaxPods || r.total != podevent.MaxTotal {
		t.Errorf("%d events of %d pods", r.total, len(r.pods))
	}
	if p := r.pods[podOf(0).UID]; p == nil || len(p.Events) != 1 || p.Events[0].Note != "victim" {
		t.Errorf("the events of another pod are displaced: %v", p)
	}
	present := map[string]bool{}
	for n := range podevent.MaxPods {
		present[podOf(n).UID] = n != 7
	}
	r.missing(time.Now(), present)
	r.Note(podOf(5000), podevent.Refused, podevent.KeyOf("a"), "a") // in place of one that is gone
	r.Note(podOf(5001), podevent.Refused, podevent.KeyOf("a"), "a")
	if r.pods[podOf(5000).UID] == nil || r.pods[podOf(7).UID] != nil || r.pods[podOf(5001).UID] != nil {
		t.Error("a pod that is gone keeps its place, or another one loses it")
	}
	if err := r.save(); err != nil {
		t.Fatal(err)
	}
	names, err := os.ReadDir(r.Dir)
	if err != nil || len(names) != podevent.MaxPods {
		t.Errorf("%d files, %v", len(names), err)
	}
	noted := 1 + 1000 + 8*podevent.MaxPods + 1000 + 2
	want := fmt.Sprintf("# HELP nri_blkio_events_total Times that something was noted about a pod for its Events.\n# TYPE nri_blkio_events_total counter\nnri_blkio_events_total %d\n", noted)
	if err := testutil.CollectAndCompare(r, strings.NewReader(want), "nri_blkio_events_total"); err != nil {
		t.Error(err)
	}
	if r.dropped < noted-podevent.MaxTotal-2*podevent.MaxEvents {
		t.Errorf("%d are counted as dropped", r.dropped)
	}
}

// BenchmarkNote measures what an event of the runtime waits for.
func BenchmarkNote(b *testing.B) {
	log, _ := test.NewNullLogger()
	r := New(Config{Log: log})
	line := "container db: nri-blkio: " + strings.Repeat("x", 375)
	for i := range podevent.MaxEvents {
		r.Note(podOf(0), podevent.Refused, podevent.KeyOf(fmt.Sprint(line, i)), fmt.Sprint(line, i))
	}
	for b.Loop() {
		r.Note(podOf(0), podevent.Refused, podevent.KeyOf(line+"15"), line+"15")
	}
}

// TestSince verifies that an event counts for a time after it occurred last, and while the node has its pod.
func TestSince(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, t.TempDir())
		defer r.stop()
		note := func(n int, reason podevent.Reason) { r.Note(podOf(n), reason, podevent.KeyOf("a"), "a") }
		check := func(when string, want ...podevent.Pod) {
			t.Helper()
			var got []podevent.Pod
			for _, d := range r.Since(time.Now().Add(-6*time.Minute), podevent.Refused) {
				got = append(got, d.Pod)
				if len(d.Events) != 1 || d.Events[0].Reason != podevent.Refused {
					t.Errorf("%s: events %v", when, d.Events)
				}
			}
			slices.SortFunc(got, func(a, b podevent.Pod) int { return strings.Compare(a.Name, b.Name) })
			if !slices.Equal(got, want) {
				t.Errorf("%s: %v, want %v", when, got, want)
			}
		}
		present := map[string]bool{podOf(1).UID: true, podOf(2).UID: true}
		r.present.Store(&present)
		note(1, podevent.Refused)
		note(1, podevent.NotInForce)
		note(2, podevent.Refused)
		check("rejected", podOf(1), podOf(2))
		time.Sleep(5 * time.Minute)
		note(2, podevent.Refused)
		time.Sleep(2 * time.Minute)
		check("one again", podOf(2))
		gone := map[string]bool{podOf(1).UID: true}
		r.present.Store(&gone)
		time.Sleep(2 * sweep)
		check("removed")
	})
}
