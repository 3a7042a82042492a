package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus/hooks/test"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/nri-blkio/nri-blkio/plugin/health"
	"github.com/nri-blkio/nri-blkio/plugin/mailbox"
	"github.com/nri-blkio/nri-blkio/plugin/poddoc"
	"github.com/nri-blkio/nri-blkio/plugin/podfacts"
)

// partTest runs a part, in a bubble of synctest.
type partTest struct {
	*testing.T
	*Part
	api  *fakeAPI
	log  *test.Hook
	stop func()
}

// start starts a part on a directory.
func start(t *testing.T, api *fakeAPI, dir string) *partTest {
	t.Helper()
	p := startWith(t, Config{Dir: dir, API: api})
	p.api = api
	return p
}

// startWith starts a part.
func startWith(t *testing.T, c Config) *partTest {
	t.Helper()
	log, hook := test.NewNullLogger()
	c.Log = log
	p := &partTest{T: t, log: hook, Part: New(c)}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- p.Part.Run(ctx) }()
	p.stop = func() {
		t.Helper()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	synctest.Wait()
	return p
}

// document returns the document of a pod, nil if there is none.
func (p *partTest) document(uid string) *poddoc.Document {
	p.Helper()
	synctest.Wait()
	d, err := poddoc.Format().Read(p.Dir, uid)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		p.Fatal(err)
	}
	return d
}

// limitsOf returns the limits of the first claim of a pod, "no document" or "no limits".
func (p *partTest) limitsOf(uid string) string {
	p.Helper()
	d := p.document(uid)
	switch {
	case d == nil:
		return "no document"
	case len(d.Volumes) == 0 || d.Volumes[0].Limits == nil:
		return "no limits"
	}
	return *d.Volumes[0].Limits
}

// has fails the test unless the limits of a pod are these.
func (p *partTest) has(what, uid, want string) {
	p.Helper()
	if got := p.limitsOf(uid); got != want {
		p.Errorf("%s: %s, want %s", what, got, want)
	}
}

// newTestAPI has a pod with a claim.
func newTestAPI() *fakeAPI {
	api := newFakeAPI()
	api.set(namespaceRef(), newNamespace(nil))
	api.set(claimRef("a"), newClaim("wbps=1Mi"))
	api.set(podRef("db-0"), newTestPod("db-0", testUID, "a"))
	return api
}

// TestPart verifies that the document of a pod appears with all it needs, follows the changes, and goes with the
// pod.
func TestPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, newTestAPI(), t.TempDir())
		defer p.stop()
		p.has("at once", testUID, "wbps=1Mi")
		p.api.set(claimRef("a"), newClaim("wbps=2Mi"))
		p.has("claim", testUID, "wbps=2Mi")
		p.api.set(namespaceRef(), newNamespace(map[string]string{"tier": "gold"}))
		equal(t, "labels", map[string]string{"tier": "gold"}, p.document(testUID).NamespaceLabels)
		pod := newTestPod("db-0", testUID, "a")
		pod.Annotations = nil
		p.api.set(podRef("db-0"), pod)
		if d := p.document(testUID); d.Annotations == nil || len(d.Annotations) > 0 {
			t.Errorf("annotations %v", d.Annotations)
		}
		p.api.set(podRef("db-0"), newTestPod("db-0", uidOf(1), "b"))
		p.has("replaced", testUID, "no document")
		p.has("by", uidOf(1), "no limits")
		equal(t, "watched", []Ref{namespaceRef(), claimRef("b")}, p.api.watched())
		p.api.set(podRef("db-0"), nil)
		p.has("deleted", uidOf(1), "no document")
		if left := p.api.watched(); len(left) > 0 {
			t.Errorf("watched: %v", left)
		}
		want := map[string]float64{
			"nri_blkio_cluster_connected": 1, "nri_blkio_cluster_documents": 0, "nri_blkio_cluster_objects": 0,
			"nri_blkio_cluster_documents_written_total": 5, "nri_blkio_cluster_requests_total": 4,
			"nri_blkio_cluster_events_total": 0, "nri_blkio_cluster_events_pending": 0,
		}
		got := metrics(t, p.Part)
		const written = "nri_blkio_cluster_documents_written_total"
		if n := got[written]; n == 6 || n == 7 { // the claim of the first or the last pod was known after its namespace
			got[written] = 5
		}
		const requests = "nri_blkio_cluster_requests_total"
		if got[requests] == 5 { // the first pod was gone before the last one was known, so the namespace was asked for again
			got[requests] = 4
		}
		equal(t, "metrics", want, got)
	})
}

// TestPartLists verifies that the part knows the pods of an API server that cannot send their state with a watch, also after a
// watch has expired.
func TestPartLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newTestAPI()
		api.old = true
		p := start(t, api, t.TempDir())
		defer p.stop()
		time.Sleep(2 * maxPause)
		p.has("listed", testUID, "wbps=1Mi")
		api.set(podRef("db-1"), newTestPod("db-1", uidOf(1), "a"))
		p.has("watched", uidOf(1), "wbps=1Mi")
		gone := apierrors.NewResourceExpired("too old").Status()
		api.send(Ref{Kind: Pods}, watch.Event{Type: watch.Error, Object: &gone})
		synctest.Wait()
		api.set(podRef("db-1"), nil) // while nothing is watched
		p.has("unseen", uidOf(1), "wbps=1Mi")
		time.Sleep(2 * maxPause)
		p.has("gone", uidOf(1), "no document")
		p.has("there", testUID, "wbps=1Mi")
	})
}

// TestPartWaits verifies that a document has the current labels of the namespace before all of its claims are known, and then the
// rest of what was there, and that there is none before the namespace is known.
func TestPartWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, dir := newTestAPI(), t.TempDir()
		api.set(namespaceRef(), newNamespace(map[string]string{"tier": "gold"}))
		api.fail(errors.New("overloaded"), Claims, Namespaces)
		p := start(t, api, dir)
		time.Sleep(time.Minute)
		p.has("unknown namespace", testUID, "no document")
		api.fail(nil, Namespaces)
		time.Sleep(2 * maxPause)
		p.has("unknown claim", testUID, "no limits")
		d := p.document(testUID)
		equal(t, "labels", map[string]string{"tier": "gold"}, d.NamespaceLabels)
		if d.Annotations != nil || d.Labels != nil || d.Volumes != nil || d.Omitted != nil {
			t.Errorf("the document has more: %+v", d)
		}
		if r := p.Health(); r.State != health.Connected || r.Reason != "1 objects cannot be read: overloaded" {
			t.Errorf("%s: %s", r.State, r.Reason)
		}
		api.fail(nil, Claims)
		time.Sleep(2 * maxPause)
		p.has("known claim", testUID, "wbps=1Mi")
		p.stop()
		api.fail(errors.New("overloaded"), Claims)
		p = start(t, api, dir)
		defer p.stop()
		time.Sleep(time.Minute)
		p.has("unknown claim after a restart", testUID, "wbps=1Mi")
		api.set(namespaceRef(), newNamespace(map[string]string{"tier": "tin"}))
		p.has("another label", testUID, "wbps=1Mi")
		equal(t, "labels", map[string]string{"tier": "tin"}, p.document(testUID).NamespaceLabels)
	})
}

// TestPartAway verifies that while the API server is away, nothing is written or removed, whether the part
// restarts or not. After that the documents are complete again.
func TestPartAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, dir := newTestAPI(), t.TempDir()
		api.set(podRef("gone"), newTestPod("gone", uidOf(1), "a"))
		p := start(t, api, dir)
		p.has("at first", testUID, "wbps=1Mi")
		away := []Kind{Pods, Claims, Namespaces}
		api.fail(errors.New("connection refused"), away...)
		api.set(podRef("gone"), nil)
		api.set(claimRef("a"), newClaim("wbps=2Mi"))
		stays := func(what string) {
			t.Helper()
			time.Sleep(time.Hour)
			p.has(what, testUID, "wbps=1Mi")
			p.has(what, uidOf(1), "wbps=1Mi")
			if r := p.Health(); r.State != health.Disconnected || !strings.Contains(r.Reason, "connection refused") {
				t.Errorf("%s: %s: %s", what, r.State, r.Reason)
			}
		}
		stays("away")
		if n := len(p.log.AllEntries()); n == 0 || n > 7 {
			t.Errorf("%d lines are logged in an hour", n)
		}
		if requests := api.count(claimRef("a")); requests > 3 {
			t.Errorf("%d requests for an object in an hour", requests)
		}
		p.stop()
		p = start(t, api, dir)
		stays("away after a restart")
		api.fail(nil, away...)
		time.Sleep(3 * maxPause)
		p.has("back", testUID, "wbps=2Mi")
		p.has("gone meanwhile", uidOf(1), "no document")
		if r := p.Health(); r.State != health.Connected || r.Reason != "" || r.Pods != 1 {
			t.Errorf("back: %+v", r)
		}
		p.stop()
	})
}

// TestPartDirectory verifies that what is missing in the directory is written again, and a directory that cannot be
// written is reported until it can.
func TestPartDirectory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "exchange") // absent
		p := start(t, newTestAPI(), dir)
		defer p.stop()
		time.Sleep(time.Minute)
		if r := p.Health(); r.State != health.Disconnected || !strings.Contains(r.Reason, "no such file or directory") {
			t.Errorf("without a directory: %s: %s", r.State, r.Reason)
		}
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		p.has("with a directory", testUID, "wbps=1Mi")
		if r := p.Health(); r.State != health.Connected || r.Reason != "" {
			t.Errorf("with a directory: %s: %s", r.State, r.Reason)
		}
		if err := os.Remove(filepath.Join(dir, mailbox.FileName(testUID))); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		p.has("removed by another program", testUID, "wbps=1Mi")
	})
}

// TestPartBounds verifies that pods that name more claims than there is room for have documents without them.
func TestPartBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newFakeAPI()
		const pods, claims, most = 5, 20, 90
		for i := range pods {
			names := make([]string, claims)
			for j := range names {
				names[j] = uidOf(i*claims + j)
			}
			api.set(podRef(uidOf(i)), newTestPod(uidOf(i), uidOf(i), names...))
		}
		api.fail(errors.New("away"), Pods)
		p := start(t, api, t.TempDir())
		defer p.stop()
		p.objects.most = most // before the pods are known
		api.fail(nil, Pods)
		time.Sleep(time.Hour)
		without := 0
		for i := range pods {
			d := p.document(uidOf(i))
			if d == nil {
				t.Fatalf("pod %d has no document", i)
			}
			if d.Omitted[podfacts.PartVolumes] != "" {
				without++
			}
		}
		if want := pods - most/(1+claims); without != want {
			t.Errorf("%d of %d pods are without claims, want %d", without, pods, want)
		}
	})
}

// TestPartShares verifies that a pod whose claims made room for those of another namespace has a document without them, and
// that the other one has a document with its claims.
func TestPartShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newFakeAPI()
		pod := func(namespace, uid string, claims int) (*corev1.Pod, Ref) {
			names := make([]string, claims)
			for i := range names {
				names[i] = fmt.Sprint("c", uid[len(uid)-1:], i)
			}
			out := newTestPod(uid, uid, names...)
			out.Namespace = namespace
			return out, Ref{Pods, namespace, uid}
		}
		p := start(t, api, t.TempDir())
		defer p.stop()
		p.objects.most = 50
		for i := range 2 {
			o, ref := pod("prod", uidOf(i), 20)
			api.set(ref, o)
		}
		time.Sleep(time.Hour)
		other, ref := pod("tenant", uidOf(2), 20)
		api.set(ref, other)
		time.Sleep(time.Hour)
		var omitted []bool
		for i := range 3 {
			d := p.document(uidOf(i))
			if d == nil {
				t.Fatalf("pod %d has no document", i)
			}
			omitted = append(omitted, d.Omitted[podfacts.PartVolumes] != "")
		}
		equal(t, "without claims", []bool{true, false, false}, omitted)
	})
}

// TestHealth verifies that the state and its start are reported.
func TestHealth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, _ := test.NewNullLogger()
		p := New(Config{API: newFakeAPI(), Log: log})
		is := func(state, reason string, since time.Time) {
			t.Helper()
			r := p.Health()
			if r.Part != health.Cluster || r.State != state || r.Reason != reason || !r.Since.Equal(since) {
				t.Errorf("%+v, want %s: %s since %v", r, state, reason, since)
			}
			connected := 0.0
			if state == health.Connected {
				connected = 1
			}
			if got := metrics(t, p)["nri_blkio_cluster_connected"]; got != connected {
				t.Errorf("metric %v, want %v", got, connected)
			}
		}
		at := time.Now()
		is(health.Disconnected, "no answer of the API server yet", at)
		time.Sleep(time.Second)
		p.answered(t.Context(), errors.New("refused"))
		is(health.Disconnected, "the API server does not answer: refused", at)
		p.answered(t.Context(), nil)
		is(health.Connected, "", time.Now())
		time.Sleep(time.Second)
		p.status.wrote(time.Now(), errors.New("no space"))
		is(health.Disconnected, "no space", time.Now())
		time.Sleep(time.Second)
		p.status.wrote(time.Now(), nil)
		is(health.Connected, "", time.Now())
	})
}

// metrics returns the sum of each metric.
func metrics(t *testing.T, c prometheus.Collector) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			out[f.GetName()] += m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return out
}
