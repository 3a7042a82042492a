package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nri-blkio/nri-blkio/blkio/hostfs"
	"github.com/nri-blkio/nri-blkio/plugin/mailbox"
	"github.com/nri-blkio/nri-blkio/plugin/podevent"
)

// fakeEventAPI has the Events that were created, by name, and the requests.
type fakeEventAPI struct {
	mu       sync.Mutex // guards the fields below
	events   map[string]int
	requests []string
	err      func(of podevent.Pod) error // of a request; nil for none
}

func (a *fakeEventAPI) request(kind string, of podevent.Pod, e *podevent.Event) error {
	a.requests = append(a.requests, fmt.Sprintf("%s %s %s x%d", kind, of.Name, e.Note, e.Count))
	if a.err == nil {
		return nil
	}
	return a.err(of)
}

func (a *fakeEventAPI) CreateEvent(_ context.Context, of podevent.Pod, e *podevent.Event) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.request("create", of, e); err != nil {
		return err
	}
	if a.events[of.ObjectName(e)] > 0 {
		return apierrors.NewAlreadyExists(schema.GroupResource{}, "e")
	}
	a.events[of.ObjectName(e)] = e.Count
	return nil
}

func (a *fakeEventAPI) CountEvent(_ context.Context, of podevent.Pod, e *podevent.Event) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.request("count", of, e); err != nil {
		return err
	}
	if e.Count < 2 {
		return apierrors.NewInvalid(schema.GroupKind{}, "series.count", nil)
	}
	if a.events[of.ObjectName(e)] == 0 {
		return apierrors.NewNotFound(schema.GroupResource{}, "e")
	}
	a.events[of.ObjectName(e)] = e.Count
	return nil
}

// fail has all requests fail by a function.
func (a *fakeEventAPI) fail(err func(podevent.Pod) error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.err = err
}

// forget drops all Events, as the API server does after an hour.
func (a *fakeEventAPI) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.events)
}

// take returns the requests since the last call, sorted.
func (a *fakeEventAPI) take() (out []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	out, a.requests = a.requests, nil
	slices.Sort(out)
	return out
}

// senderTest runs a part with events of pods, in a bubble of synctest.
type senderTest struct {
	*partTest
	pods   *fakeAPI
	events *fakeEventAPI
	dir    string
}

func startSender(t *testing.T, pods int) *senderTest {
	t.Helper()
	s := &senderTest{pods: newFakeAPI(), dir: t.TempDir()}
	s.events = s.pods.fakeEventAPI
	s.pods.set(namespaceRef(), newNamespace(nil))
	for i := range pods {
		s.pods.set(podRef(podNames(i)), newTestPod(podNames(i), uidOf(i)))
	}
	s.restart(t)
	return s
}

// restart starts the part anew.
func (s *senderTest) restart(t *testing.T) {
	t.Helper()
	if s.partTest != nil {
		s.stop()
	}
	s.partTest = startWith(t, Config{Dir: t.TempDir(), API: s.pods, EventsDir: s.dir})
}

func podNames(i int) string { return fmt.Sprintf("db-%d", i) }

// note writes the document of a pod, with these notes.
func (s *senderTest) note(pod, count int, notes ...string) {
	s.Helper()
	now := podevent.Time(time.Now())
	d := podevent.Document{Version: podevent.Version, Pod: podevent.Pod{UID: uidOf(pod), Namespace: "prod", Name: podNames(pod)}}
	for _, n := range notes {
		d.Events = append(d.Events, podevent.Event{Reason: podevent.Refused, Key: podevent.KeyOf(n), Note: n, Count: count, First: now, Last: now})
	}
	s.write(&d)
}

func (s *senderTest) write(d *podevent.Document) {
	s.Helper()
	data, err := podevent.Format().Encode(d)
	if err != nil {
		s.Fatal(err)
	}
	if err := hostfs.ReplaceOffered(filepath.Join(s.dir, mailbox.FileName(d.UID)), data); err != nil {
		s.Fatal(err)
	}
}

// sends compares the requests in a time.
func (s *senderTest) sends(what string, d time.Duration, want ...string) {
	s.Helper()
	time.Sleep(d)
	synctest.Wait()
	equal(s.T, what, want, s.events.take())
}

// TestSender verifies that an event has one Event, whose count follows, and that neither a restart of the part, nor an Event
// that the API server has dropped, makes another one.
func TestSender(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startSender(t, 2)
		defer func() { s.stop() }()
		s.sends("nothing", time.Minute)
		s.note(0, 1, "a")
		s.note(1, 7, "a", "b")
		s.sends("first", mailbox.Resync+lookEvery, "create db-0 a x1", "create db-1 a x7", "create db-1 b x7")
		s.note(0, 2, "a", "new")
		s.sends("soon", time.Minute, "create db-0 new x2")
		s.note(0, 9, "a", "new")
		s.sends("later", countEvery, "count db-0 a x9", "count db-0 new x9")
		s.sends("unchanged", time.Hour/2)
		s.restart(t)
		s.sends("restart", time.Minute, "count db-0 a x9", "count db-0 new x9", "count db-1 a x7", "count db-1 b x7",
			"create db-0 a x9", "create db-0 new x9", "create db-1 a x7", "create db-1 b x7")
		equal(t, "Events", 4, len(s.events.events))
		s.events.forget()
		s.note(0, 10, "a", "new")
		s.sends("dropped by the API server", countEvery+mailbox.Resync, "count db-0 a x10", "count db-0 new x10", "create db-0 a x10", "create db-0 new x10")
		time.Sleep(maxEventAge)
		s.restart(t)
		s.sends("old", time.Hour)
		got := metrics(t, s.Part)
		if got["nri_blkio_cluster_events_pending"] != 0 || got["nri_blkio_cluster_events_total"] != 0 {
			t.Errorf("metrics %v", got)
		}
	})
}

// TestSenderAway verifies that while the API server is away, one request at a time is tried, and that then each event is sent
// once, with its count.
func TestSenderAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startSender(t, 3)
		defer func() { s.stop() }()
		away := errors.New("connection refused")
		s.events.fail(func(podevent.Pod) error { return away })
		for i := range 60 {
			for pod := range 3 {
				s.note(pod, 1+i, "a", "b")
			}
			time.Sleep(time.Minute)
		}
		synctest.Wait()
		if n := len(s.events.take()); n > 130 || n < 60 {
			t.Errorf("%d requests in an hour", n)
		}
		if got := metrics(t, s.Part)["nri_blkio_cluster_events_pending"]; got != 6 {
			t.Errorf("%v events wait", got)
		}
		if n := len(s.log.AllEntries()); n < 2 || n > 7 {
			t.Errorf("%d lines are logged in an hour", n)
		}
		s.pods.fail(away, Pods)
		s.sends("no contact", 10*time.Minute)
		s.pods.fail(nil, Pods)
		s.events.fail(nil)
		s.sends("back", 3*maxPause, "create db-0 a x60", "create db-0 b x60", "create db-1 a x60", "create db-1 b x60", "create db-2 a x60", "create db-2 b x60")
	})
}

// TestSenderRefused verifies that an Event that the API server refuses is tried again later, and that those of other pods do
// not wait.
func TestSenderRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startSender(t, 2)
		defer func() { s.stop() }()
		s.events.fail(func(of podevent.Pod) error {
			if of.Name == "db-0" {
				return apierrors.NewForbidden(schema.GroupResource{}, "e", errors.New("the namespace is being terminated"))
			}
			return nil
		})
		s.note(0, 1, "a")
		s.note(1, 1, "b")
		s.sends("refused", time.Minute, "create db-0 a x1", "create db-1 b x1")
		s.sends("again", countEvery, "create db-0 a x1")
		if got := metrics(t, s.Part)["nri_blkio_cluster_events_total"]; got != 3 {
			t.Errorf("%v are counted", got)
		}
		s.events.fail(nil)
		s.sends("accepted", countEvery, "create db-0 a x1")
		s.sends("done", time.Hour)
	})
}

// TestSenderRates verifies that a pod with many events delays those of another pod little, and that a node sends no more than
// its rate.
func TestSenderRates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pods = 20
		s := startSender(t, pods)
		defer func() { s.stop() }()
		notes := func(from, n int) (out []string) {
			for i := range n {
				out = append(out, fmt.Sprint(from+i))
			}
			return out
		}
		for i := range 10 {
			s.note(0, 1, notes(10*i, podevent.MaxEvents)...)
			time.Sleep(mailbox.Resync + lookEvery)
		}
		synctest.Wait()
		if n := len(s.events.take()); n < eventsOfPodAtOnce || n > eventsOfPodAtOnce+11 {
			t.Errorf("%d requests for a pod in five minutes", n)
		}
		for i := 1; i < pods; i++ {
			s.note(i, 1, notes(0, podevent.MaxEvents)...)
		}
		time.Sleep(mailbox.Resync + lookEvery + 40*time.Second)
		synctest.Wait()
		sent := s.events.take()
		if n := len(sent); n < 40 || n > eventsAtOnce+75 {
			t.Errorf("%d requests of the node in 71 s", n)
		}
		for i := range pods {
			if !slices.ContainsFunc(sent, func(r string) bool { return strings.Contains(r, " "+podNames(i)+" ") }) {
				t.Errorf("pod %d had no turn", i)
			}
		}
	})
}

// TestSenderForeign verifies that pods that the API server does not have on this node, by their UID and their names, get no
// Events, and that documents that cannot be read are reported and change nothing.
func TestSenderForeign(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := startSender(t, 2)
		defer func() { s.stop() }()
		now := podevent.Time(time.Now())
		events := []podevent.Event{{Reason: podevent.Changed, Key: podevent.KeyOf("a"), Note: "a", Count: 1, First: now, Last: now}}
		for uid, pod := range map[string][2]string{uidOf(0): {"other", "db-0"}, uidOf(7): {"prod", "db-0"}, uidOf(1): {"prod", "db-0"}} {
			s.write(&podevent.Document{Version: 1, Pod: podevent.Pod{UID: uid, Namespace: pod[0], Name: pod[1]}, Events: events})
		}
		if err := os.WriteFile(filepath.Join(s.dir, mailbox.FileName(uidOf(8))), []byte(`{"version":2}`), 0o600); err != nil {
			t.Fatal(err)
		}
		s.sends("foreign", time.Minute)
		if last := s.log.LastEntry(); last == nil || last.Message != "Some events of pods cannot be read: they are not sent" {
			t.Errorf("logged: %v", last)
		}
		s.pods.set(podRef("db-7"), newTestPod("db-7", uidOf(7)))
		s.note(7, 1, "late") // the limits part can know a pod before the API server's answer
		s.sends("known by now", time.Minute, "create db-7 late x1")
		if err := os.RemoveAll(s.dir); err != nil {
			t.Fatal(err)
		}
		s.sends("no directory", time.Minute)
	})
}

// TestNewEvent verifies the fields that the API server validates, and the requests.
func TestNewEvent(t *testing.T) {
	at := time.Unix(1e9, 5000).UTC()
	of := podevent.Pod{UID: testUID, Namespace: "prod", Name: "db-0"}
	e := &podevent.Event{Reason: podevent.ChangeRejected, Key: podevent.KeyOf("n"), Note: "n", Count: 1, First: at, Last: at.Add(time.Second)}
	got := newEvent("worker-1", of, e)
	if got.Series != nil || got.Type != "Warning" || got.Reason != "BlkioChangeRejected" || got.Action == "" || got.ReportingInstance != "worker-1" ||
		got.Namespace != "prod" || got.Regarding != (corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "prod", Name: "db-0", UID: testUID}) {
		t.Errorf("%+v", got)
	}
	e.Count = 1 << 40
	if got := newEvent("worker-1", of, e); got.Series.Count != 1<<31-1 || !got.Series.LastObservedTime.Time.Equal(e.Last) {
		t.Errorf("series %+v", got.Series)
	}
	e.Count = 3
	var requests []string
	c := newTestClient(t, func(w http.ResponseWriter, r *http.Request) {
		requests = append(requests, r.Method+" "+r.URL.Path+" "+r.Header.Get("Content-Type"))
		w.WriteHeader(http.StatusCreated)
	})
	if err := errors.Join(c.CreateEvent(t.Context(), of, e), c.CountEvent(t.Context(), of, e)); err != nil {
		t.Error(err)
	}
	const path = "/apis/events.k8s.io/v1/namespaces/prod/events"
	equal(t, "requests", []string{"POST " + path + " application/vnd.kubernetes.protobuf", "PATCH " + path + "/" + of.ObjectName(e) + " application/merge-patch+json"}, requests)
	for status, want := range map[int]bool{403: true, 404: true, 422: true, 401: false, 429: false, 500: false, 503: false, 504: false} {
		c := newTestClient(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
		patience := time.Second // client-go repeats a request unless it was refused
		if want {
			patience = time.Minute
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		if err := c.CreateEvent(ctx, of, e); err == nil || isRefusal(err) != want {
			t.Errorf("status %d: %v, refused %t", status, err, !want)
		}
		cancel()
	}
}
