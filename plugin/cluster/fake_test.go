package cluster

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// fakeAPI is an API server that has the objects that a test puts there.
type fakeAPI struct {
	*fakeEventAPI
	*fakeReportAPI

	mu       sync.Mutex // guards the fields below
	version  int
	pods     map[string]*corev1.Pod
	objects  map[Ref]runtime.Object
	watches  map[*fakeEvents]bool
	requests map[Ref]int
	err      map[Kind]error // of all requests
	old      bool           // it cannot send the initial state with a watch
}

func newFakeAPI() *fakeAPI {
	return &fakeAPI{
		fakeEventAPI: &fakeEventAPI{events: map[string]int{}}, fakeReportAPI: &fakeReportAPI{},
		pods: map[string]*corev1.Pod{}, objects: map[Ref]runtime.Object{}, watches: map[*fakeEvents]bool{},
		requests: map[Ref]int{}, err: map[Kind]error{},
	}
}

// fakeEvents is one watch.
type fakeEvents struct {
	api  *fakeAPI
	ref  Ref
	c    chan watch.Event
	ends sync.Once
}

// Next implements Events.
func (e *fakeEvents) Next() (watch.Event, error) {
	event, open := <-e.c
	if !open {
		return event, io.EOF
	}
	return event, nil
}

// Close implements Events.
func (e *fakeEvents) Close() error { e.Stop(); return nil }

// Stop ends the watch.
func (e *fakeEvents) Stop() {
	e.ends.Do(func() {
		e.api.mu.Lock()
		defer e.api.mu.Unlock()
		delete(e.api.watches, e)
		close(e.c)
	})
}

// set creates, replaces or (nil) deletes an object, and sends the event.
func (a *fakeAPI) set(ref Ref, o runtime.Object) {
	a.mu.Lock()
	defer a.mu.Unlock()
	event, old := watch.Event{Type: watch.Added, Object: o}, a.objects[ref]
	if ref.Kind == Pods {
		if pod := a.pods[ref.Name]; pod != nil {
			old = pod
		}
	}
	switch {
	case o == nil:
		event = watch.Event{Type: watch.Deleted, Object: old.DeepCopyObject()}
	case old != nil:
		event.Type = watch.Modified
	}
	a.version++
	m, _ := meta.Accessor(event.Object)
	m.SetResourceVersion(strconv.Itoa(a.version))
	switch {
	case ref.Kind != Pods && o == nil:
		delete(a.objects, ref)
	case ref.Kind != Pods:
		a.objects[ref] = o
	case o == nil:
		delete(a.pods, ref.Name)
	default:
		a.pods[ref.Name] = o.(*corev1.Pod)
	}
	if pod, ok := event.Object.(*corev1.Pod); ok {
		event.Object = reported(pod)
	}
	for w := range a.watches {
		if w.ref == ref || w.ref.Kind == Pods && ref.Kind == Pods {
			w.c <- event
		}
	}
}

// fail has all requests for a kind fail, or (nil) succeed, and ends the watches.
func (a *fakeAPI) fail(err error, kinds ...Kind) {
	for _, w := range a.failing(err, kinds) {
		w.Stop()
	}
}

func (a *fakeAPI) failing(err error, kinds []Kind) (out []*fakeEvents) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, kind := range kinds {
		a.err[kind] = err
	}
	for w := range a.watches {
		if slices.Contains(kinds, w.ref.Kind) {
			out = append(out, w)
		}
	}
	return out
}

// send sends an event to the watches of an object.
func (a *fakeAPI) send(ref Ref, event watch.Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for w := range a.watches {
		if w.ref == ref {
			w.c <- event
		}
	}
}

// put puts an object without an event.
func (a *fakeAPI) put(ref Ref, o runtime.Object) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.objects[ref] = o
}

func (a *fakeAPI) request(ref Ref) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.requests[ref]++
	return a.err[ref.Kind]
}

func (a *fakeAPI) count(ref Ref) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.requests[ref]
}

// watched returns what is watched, without the pods.
func (a *fakeAPI) watched() []Ref {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := map[Ref]bool{}
	for w := range a.watches {
		out[w.ref] = true
	}
	delete(out, Ref{Kind: Pods})
	return slices.SortedFunc(maps.Keys(out), Ref.compare)
}

// List implements API.
func (a *fakeAPI) List(_ context.Context, ref Ref, each func(runtime.Object)) (string, error) {
	if err := a.request(ref); err != nil {
		return "", err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, o := range a.state(ref) {
		each(o)
	}
	return strconv.Itoa(a.version), nil
}

// state returns the objects that a list has. It is called with the lock.
func (a *fakeAPI) state(ref Ref) (out []runtime.Object) {
	if ref.Kind == Pods {
		for _, name := range slices.Sorted(maps.Keys(a.pods)) {
			out = append(out, reported(a.pods[name]))
		}
	} else if o := a.objects[ref]; o != nil {
		out = append(out, o)
	}
	return out
}

// Watch implements API.
func (a *fakeAPI) Watch(ctx context.Context, ref Ref, version string) (Events, error) {
	if err := a.request(ref); err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if version == "" && a.old {
		return nil, apierrors.NewInvalid(schema.GroupKind{}, "sendInitialEvents", nil)
	}
	var initial []watch.Event
	if version == "" {
		for _, o := range a.state(ref) {
			initial = append(initial, watch.Event{Type: watch.Added, Object: o})
		}
		end := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: strconv.Itoa(a.version), Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}}
		initial = append(initial, watch.Event{Type: watch.Bookmark, Object: end})
	}
	return a.events(ctx, ref, initial), nil
}

// events is called with the lock.
func (a *fakeAPI) events(ctx context.Context, ref Ref, initial []watch.Event) *fakeEvents {
	e := &fakeEvents{api: a, ref: ref, c: make(chan watch.Event, 64+len(initial))}
	for _, event := range initial {
		e.c <- event
	}
	a.watches[e] = true
	context.AfterFunc(ctx, e.Stop)
	return e
}

// reported returns a pod as the part reads it.
func reported(pod *corev1.Pod) *podObject {
	data, err := pod.Marshal()
	if err != nil {
		panic(err)
	}
	out, err := decodePod(data)
	if err != nil {
		panic(err)
	}
	return out
}

func (r Ref) compare(o Ref) int {
	return cmp.Or(strings.Compare(string(r.Kind), string(o.Kind)), strings.Compare(r.Namespace, o.Namespace), strings.Compare(r.Name, o.Name))
}

const testUID = "0f9bd3ce-7a4e-4b0c-9f52-8d1d5f1c2b3a"

// uidOf returns the UID of the n-th pod of a test.
func uidOf(n int) string {
	return fmt.Sprintf("%s%012d", testUID[:24], n)
}

// newTestPod returns a pod with claims.
func newTestPod(name, uid string, claims ...string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "prod", Name: name, UID: types.UID(uid), Annotations: map[string]string{"limits." + annotation.Domain + "/containers": "* wbps=20Mi"},
	}}
	c := corev1.Container{Name: "db"}
	for _, claim := range claims {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "v-" + claim, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		}})
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "v-" + claim, MountPath: "/" + claim})
	}
	pod.Spec.Containers = []corev1.Container{c}
	return pod
}

func podRef(name string) Ref { return Ref{Pods, "prod", name} }

// testNode is the node whose attachments are read.
const testNode = "worker-1"

func namespaceRef() Ref { return Ref{Namespaces, "", "prod"} }

func claimRef(name string) Ref { return Ref{Claims, "prod", name} }

func newNamespace(labels map[string]string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "prod", Labels: labels}}
}

func newClaim(limits string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"limits." + annotation.Domain: limits}}}
}

// equal reports a difference.
func equal(t *testing.T, what string, want, got any) {
	t.Helper()
	if d := gocmp.Diff(want, got); d != "" {
		t.Errorf("%s: -want +got:\n%s", what, d)
	}
}
