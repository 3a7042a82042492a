package cluster

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/sirupsen/logrus/hooks/test"
)

// followTest follows one claim, in a bubble of synctest.
type followTest struct {
	*testing.T
	*Part
	api *fakeAPI
}

func newFollowTest(t *testing.T) *followTest {
	log, _ := test.NewNullLogger()
	f := &followTest{T: t, api: newFakeAPI()}
	f.Part = New(Config{Dir: t.TempDir(), API: f.api, Log: log})
	f.contact.report(time.Now(), nil)
	return f
}

// start needs the claim until the end of the test.
func (f *followTest) start() {
	ctx, cancel := context.WithCancel(f.Context())
	f.Cleanup(func() {
		cancel()
		f.objects.wait()
	})
	f.objects.need(ctx, "1", []Ref{claimRef("a")})
	synctest.Wait()
}

// has fails the test unless the state of the claim is known, with this text in its annotation.
func (f *followTest) has(what, want string) {
	f.Helper()
	synctest.Wait()
	value, known := f.objects.get(claimRef("a"))
	got := "absent"
	switch c := claimOf(value, known); {
	case !known:
		got = "unknown"
	case c != nil && c.limits != nil:
		got = *c.limits
	}
	if got != want {
		f.Errorf("%s: %s, want %s", what, got, want)
	}
}

// TestFollow verifies that an object is known with its absence, and follows each change, on API servers with and
// without the initial state of a watch.
func TestFollow(t *testing.T) {
	for name, old := range map[string]bool{"new API server": false, "old API server": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFollowTest(t)
				f.api.old = old
				f.start()
				time.Sleep(2 * minPause) // an old one refuses the first request
				f.has("at first", "absent")
				for _, text := range []string{"wbps=1Mi", "wbps=2Mi"} {
					f.api.set(claimRef("a"), newClaim(text))
					f.has("set", text)
				}
				f.api.set(claimRef("a"), nil)
				f.has("deleted", "absent")
				want := 1
				if old {
					want = 3
				}
				if n := f.api.count(claimRef("a")); n != want {
					t.Errorf("%d requests, want %d", n, want)
				}
			})
		})
	}
}

// TestFollowExists verifies that an object that exists is not absent in between.
func TestFollowExists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFollowTest(t)
		f.api.set(claimRef("a"), newClaim("wbps=1Mi"))
		f.start()
		f.has("at once", "wbps=1Mi")
		// The watch ends as it should, and the next one continues from there.
		time.Sleep(time.Hour)
		f.api.fail(nil, Claims)
		f.has("after the end of a watch", "wbps=1Mi")
		f.api.set(claimRef("a"), newClaim("wbps=2Mi"))
		f.has("changed", "wbps=2Mi")
		if n := f.api.count(claimRef("a")); n != 2 {
			t.Errorf("%d requests, want 2", n)
		}
	})
}

// TestFollowFails verifies that what is known stays while requests fail, and the pauses between them grow.
func TestFollowFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFollowTest(t)
		f.api.set(claimRef("a"), newClaim("wbps=1Mi"))
		f.start()
		f.api.fail(errors.New("forbidden"), Claims)
		time.Sleep(time.Hour)
		f.has("while requests fail", "wbps=1Mi")
		if _, failed, err := f.objects.problem(); failed != 1 || err.Error() != "forbidden" {
			t.Errorf("%d failed, %v", failed, err)
		}
		if n := f.api.count(claimRef("a")); n < 60 || n > 130 {
			t.Errorf("%d requests in an hour", n)
		}
		f.api.set(claimRef("a"), newClaim("wbps=2Mi"))
		f.api.fail(nil, Claims)
		time.Sleep(2 * maxPause)
		// The watch continues at an old version: the API server sends what has happened since. This
		// fake one does not.
		f.api.set(claimRef("a"), newClaim("wbps=3Mi"))
		f.has("after that", "wbps=3Mi")
		if _, failed, _ := f.objects.problem(); failed != 0 {
			t.Error("it has failed")
		}
	})
}

// TestFollowExpired verifies that if the API server does not know the version any more, the state is read again.
func TestFollowExpired(t *testing.T) {
	expired := apierrors.NewResourceExpired("too old")
	for name, expire := range map[string]func(f *followTest){
		"as the answer": func(f *followTest) {
			f.api.fail(expired, Claims)
			time.Sleep(maxPause)
			f.api.fail(nil, Claims)
		},
		"as an event": func(f *followTest) {
			status := expired.Status()
			f.api.send(claimRef("a"), watch.Event{Type: watch.Error, Object: &status})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFollowTest(t)
				f.start()
				time.Sleep(time.Hour)
				f.api.put(claimRef("a"), newClaim("wbps=1Mi"))
				expire(f)
				time.Sleep(2 * maxPause)
				f.has("read again", "wbps=1Mi")
				if _, failed, err := f.objects.problem(); failed != 0 {
					t.Errorf("it has failed: %v", err)
				}
			})
		})
	}
}

// TestFollowNotServed verifies that an object of a kind that the API server does not have is absent.
func TestFollowNotServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFollowTest(t)
		f.api.fail(apierrors.NewNotFound(schema.GroupResource{}, ""), Claims)
		f.start()
		f.has("not served", "absent")
		time.Sleep(absentPause - time.Second)
		if n := f.api.count(claimRef("a")); n != 1 {
			t.Errorf("%d requests", n)
		}
		f.api.fail(nil, Claims)
		f.api.set(claimRef("a"), newClaim("wbps=1Mi"))
		time.Sleep(2 * time.Second)
		f.has("served later", "wbps=1Mi")
	})
}

// TestFollowWaits verifies that no request is sent while the API server does not answer, and not too many at once
// after that.
func TestFollowWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFollowTest(t)
		f.contact.report(time.Now(), errors.New("away"))
		ctx, cancel := context.WithCancel(t.Context())
		defer f.objects.wait()
		defer cancel()
		const n = 10 * requestsAtOnce
		for i := range n {
			f.objects.need(ctx, uidOf(i), []Ref{claimRef(uidOf(i))})
		}
		requests := func() (sum int) {
			synctest.Wait()
			for i := range n {
				sum += f.api.count(claimRef(uidOf(i)))
			}
			return sum
		}
		time.Sleep(time.Hour)
		if sent := requests(); sent != 0 {
			t.Errorf("%d requests while it is away", sent)
		}
		f.contact.report(time.Now(), nil)
		if sent := requests(); sent != requestsAtOnce {
			t.Errorf("%d requests at once", sent)
		}
		time.Sleep(10 * time.Second)
		if sent := requests(); sent < requestsAtOnce+10*requestsPerSecond || sent > requestsAtOnce+10*requestsPerSecond+1 {
			t.Errorf("%d requests after ten seconds", sent)
		}
	})
}

// TestReadBreaks verifies that an event that cannot be read ends the watch, and not the part.
func TestReadBreaks(t *testing.T) {
	for name, e := range map[string]watch.Event{
		"no object": {Type: watch.Added, Object: &metav1.Status{}},
		"error":     {Type: watch.Error, Object: &metav1.Status{Status: metav1.StatusFailure, Message: "internal"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFollowTest(t)
				f.api.set(claimRef("a"), newClaim("wbps=1Mi"))
				f.start()
				f.api.send(claimRef("a"), e)
				f.has("at once", "wbps=1Mi")
				time.Sleep(maxPause)
				f.api.set(claimRef("a"), newClaim("wbps=2Mi"))
				f.has("later", "wbps=2Mi")
			})
		})
	}
}

// TestNamespacesFirst verifies that neither a request for a namespace nor one for the claim of another tenant waits for those for the
// many claims of one tenant.
func TestNamespacesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{API: newFakeAPI()})
		p.contact.report(time.Now(), nil)
		ctx, cancel := context.WithCancel(t.Context())
		var sent atomic.Int64
		var claims sync.WaitGroup
		for range 1000 {
			claims.Go(func() {
				if f := (follower{Part: p, ref: claimRef("a"), object: &object{}}); f.ready(ctx) == nil {
					sent.Add(1)
				}
			})
		}
		synctest.Wait()
		before, began := sent.Load(), time.Now()
		f := follower{Part: p, ref: namespaceRef(), object: &object{}}
		if err := f.ready(ctx); err != nil || time.Since(began) > time.Second || sent.Load() > before+2 {
			t.Errorf("a namespace waits for %v and %d claims, %v", time.Since(began), sent.Load()-before, err)
		}
		before, began = sent.Load(), time.Now()
		other := follower{Part: p, ref: Ref{Claims, "other", "b"}, object: &object{tenant: "other"}}
		if err := other.ready(ctx); err != nil || time.Since(began) > time.Second || sent.Load() > before+2 {
			t.Errorf("the claim of another tenant waits for %v and %d claims, %v", time.Since(began), sent.Load()-before, err)
		}
		cancel()
		claims.Wait()
		if err := errors.Join(f.ready(ctx), other.ready(ctx)); err == nil || len(p.limit.turns) > 0 {
			t.Errorf("after the end: %v, %d turns", err, len(p.limit.turns))
		}
	})
}
