package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// objectsTest has objects whose watches a test controls.
type objectsTest struct {
	*objects
	mu      sync.Mutex // guards the fields below
	watched map[Ref]*object
	changed []string
}

func newObjectsTest() *objectsTest {
	o := &objectsTest{watched: map[Ref]*object{}}
	o.objects = newObjects(func(ctx context.Context, object *object) {
		o.note(object.ref, object)
		<-ctx.Done()
		o.note(object.ref, nil)
	}, o.notify)
	return o
}

func (o *objectsTest) note(ref Ref, object *object) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.watched[ref] = object; object == nil {
		delete(o.watched, ref)
	}
}

func (o *objectsTest) notify(uid string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.changed = append(o.changed, uid)
}

// TestObjects verifies that an object is watched once for all pods that need it, and as long as one does.
func TestObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		o := newObjectsTest()
		ns, a, b := namespaceRef(), claimRef("a"), claimRef("b")
		for _, step := range []struct {
			uid  string
			refs []Ref
			want []Ref // watched
		}{
			{"1", []Ref{ns, a}, []Ref{ns, a}},
			{"2", []Ref{ns, b}, []Ref{ns, a, b}},
			{"1", []Ref{ns}, []Ref{ns, b}},
			{"1", []Ref{ns, a}, []Ref{ns, a, b}},
			{"2", nil, []Ref{ns, a}},
			{"2", nil, []Ref{ns, a}},
			{"1", nil, nil},
		} {
			if !o.need(ctx, step.uid, step.refs) {
				t.Fatal("no room")
			}
			synctest.Wait()
			var got []Ref
			for ref := range o.watched {
				got = append(got, ref)
			}
			slices.SortFunc(got, Ref.compare)
			slices.SortFunc(step.want, Ref.compare)
			equal(t, "watched", step.want, got)
		}
		if len(o.byPod) != 0 || len(o.byRef) != 0 {
			t.Errorf("kept: %v, %v", o.byPod, o.byRef)
		}
		o.need(ctx, "1", []Ref{a})
		cancel()
		o.wait()
	})
}

// TestObjectKnown verifies that an object is not known before the API server has answered, and its pods are
// notified then.
func TestObjectKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		o, ref := newObjectsTest(), claimRef("a")
		for _, uid := range []string{"1", "2"} {
			o.need(ctx, uid, []Ref{ref})
		}
		synctest.Wait()
		if value, known := o.get(ref); value != nil || known {
			t.Errorf("known at once: %v", value)
		}
		o.watched[ref].failed(errors.New("b"))
		if _, known := o.get(ref); known {
			t.Error("known after a failure")
		}
		o.watched[ref].set(nil)
		if value, known := o.get(ref); value != nil || !known {
			t.Errorf("absent: %v, %t", value, known)
		}
		o.watched[ref].set("x")
		if value, _ := o.get(ref); value != "x" {
			t.Errorf("value %v", value)
		}
		slices.Sort(o.changed)
		equal(t, "notified", []string{"1", "1", "2", "2"}, o.changed)
		if _, known := o.get(claimRef("other")); known {
			t.Error("an object that is not watched is known")
		}
		if n, failed, err := o.problem(); n != 1 || failed != 1 || err.Error() != "b" {
			t.Errorf("problem: %d, %d, %v", n, failed, err)
		}
		o.watched[ref].failed(nil)
		if _, failed, err := o.problem(); failed != 0 || err != nil {
			t.Errorf("problem: %d, %v", failed, err)
		}
	})
}

// TestObjectsBounded verifies that pods with many claims cannot take the watches of the other pods.
func TestObjectsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		o := newObjectsTest()
		o.most = 256
		refs := func(pod string, n int) (out []Ref) {
			for i := range n {
				out = append(out, claimRef(fmt.Sprint(pod, "-", i)))
			}
			return out
		}
		pods := 0
		for ; o.need(ctx, fmt.Sprint(pods), refs(fmt.Sprint(pods), 16)); pods++ {
		}
		if pods != o.most/16 {
			t.Errorf("%d pods with 16 claims", pods)
		}
		if !o.need(ctx, "few", refs("few", ownObjects)) {
			t.Error("a pod with few claims has no room")
		}
		if !o.need(ctx, "0", refs("0", 15)) || !o.need(ctx, "shared", refs("0", 15)) {
			t.Error("no room for what is watched already")
		}
		if o.need(ctx, "few", refs("many", ownObjects+1)) {
			t.Error("room for more")
		}
		equal(t, "after that", refs("few", ownObjects), o.byPod["few"])
	})
}

// tenantRefs returns what a pod with claims of its own needs: its namespace comes first.
func tenantRefs(tenant, pod string, claims int) []Ref {
	out := []Ref{{Namespaces, "", tenant}}
	for i := range claims {
		out = append(out, Ref{Claims, tenant, fmt.Sprint(pod, "-", i)})
	}
	return out
}

// TestObjectsShared verifies that while the objects are full, each namespace has an equal part of them: the claims of one do
// not keep those of another out, whichever came first, and pods do not displace one another in turns.
func TestObjectsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		o := newObjectsTest()
		o.most = 300
		need := func(want bool, tenant, pod string, claims int, displaced ...string) {
			t.Helper()
			o.changed = nil
			if got := o.need(ctx, pod, tenantRefs(tenant, pod, claims)); got != want {
				t.Errorf("%s of %s has room: %t", pod, tenant, got)
			}
			equal(t, "displaced by "+pod, displaced, o.changed)
		}
		for i := range 10 { // one namespace takes all but a few
			need(true, "many", fmt.Sprint("m", i), 29)
		}
		need(false, "many", "m10", 29)
		need(true, "few", "f0", 20, "m0")
		need(true, "few", "f1", 20, "m1")
		need(true, "other", "o0", 50, "m2")
		need(true, "other", "o1", 40, "m3", "m4")
		equal(t, "what a displaced pod keeps", tenantRefs("many", "m3", 0), o.byPod["m3"])
		for range 3 { // as after each change of a pod
			need(false, "many", "m0", 29)
			need(false, "other", "o2", 29)
			need(true, "few", "f0", 20)
		}
		need(true, "few", "f2", 50, "m5")
		need(false, "few", "f3", 20)
		if n := len(o.byRef); n > o.most {
			t.Errorf("%d objects", n)
		}
		need(true, "last", "tiny", ownObjects-1)
		o.need(ctx, "f2", nil)
		need(true, "many", "m0", 29)
	})
}

// TestObjectsOfMany verifies that pods with few claims are not displaced, even by a namespace that has none.
func TestObjectsOfMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		o := newObjectsTest()
		o.most = 64
		for i := range 20 {
			var refs []Ref
			for j := range ownObjects {
				refs = append(refs, claimRef(fmt.Sprint(i, "-", j)))
			}
			o.need(ctx, fmt.Sprint(i), refs)
		}
		refs := []Ref{{Namespaces, "", "b"}}
		for i := range ownObjects {
			refs = append(refs, Ref{Claims, "b", fmt.Sprint(i)})
		}
		if o.need(ctx, "b", refs) {
			t.Error("there is room")
		}
		equal(t, "displaced", []string(nil), o.changed)
	})
}

// TestContact verifies that requests wait while the API server does not answer.
func TestContact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newContact(time.Now())
		ctx, cancel := context.WithCancel(t.Context())
		waits := func() <-chan error {
			done := make(chan error, 1)
			go func() { done <- c.wait(ctx) }()
			synctest.Wait()
			return done
		}
		first := waits()
		select {
		case err := <-first:
			t.Fatalf("it does not wait before the first answer: %v", err)
		default:
		}
		time.Sleep(time.Second)
		c.report(time.Now(), nil)
		if err := <-first; err != nil {
			t.Error(err)
		}
		opened := time.Now()
		time.Sleep(time.Second)
		c.report(time.Now(), nil)
		if answers, since, err := c.state(); !answers || !since.Equal(opened) || err != nil {
			t.Errorf("%t, %v, %v", answers, since, err)
		}
		for _, text := range []string{"a", "b"} {
			c.report(time.Now(), errors.New(text))
		}
		if answers, since, err := c.state(); answers || since.Equal(opened) || err.Error() != "b" {
			t.Errorf("%t, %v, %v", answers, since, err)
		}
		last := waits()
		cancel()
		if err := <-last; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// TestObjectsOfAll verifies that a pod that other ones have displaced does not displace them again, if they share an object of the
// cluster, such as a class.
func TestObjectsOfAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		o := newObjectsTest()
		o.most = 30
		need := func(tenant, pod string, claims int, shared bool) bool {
			o.changed = nil
			refs := tenantRefs(tenant, pod, claims)
			if shared {
				refs = append(refs, Ref{AttributesClasses, "", "s"})
			}
			return o.need(ctx, pod, refs)
		}
		for i, shared := range []bool{true, false, false} {
			need("a", fmt.Sprint("a", i), 9, shared)
		}
		for range 3 {
			has := need("b", "b0", 14, true)
			displaced := o.changed
			need("a", "a0", 9, true)
			if !has && len(displaced) > 0 {
				t.Errorf("%q are displaced for nothing", displaced)
			}
		}
	})
}
