package plugin

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus/hooks/test"

	"github.com/nri-blkio/nri-blkio/plugin/node"
	"github.com/nri-blkio/nri-blkio/policy"
)

// unlocated is a state whose runtime reports the location of writable layers only once answer is closed.
type unlocated struct {
	events
	answer chan struct{}
}

func (u *unlocated) Registered(_ context.Context, _, _ string, patience time.Duration) {
	select {
	case <-u.answer:
	case <-time.After(patience):
	}
}

func (u *unlocated) Create(context.Context, *node.Sandbox, *node.Container, bool) (policy.Settings, bool, error) {
	return nil, false, nil
}

// TestRegistrationAwaitsNoAnswer verifies that the registration does not wait for the runtime's answer about writable layers.
// An event waits for it, with a bound, and so does the work beside the events.
func TestRegistrationAwaitsNoAnswer(t *testing.T) {
	const deadline = time.Second
	for name, answered := range map[string]bool{"answered": true, "not answered": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPlugin(t, nil)
				u := &unlocated{p.events, make(chan struct{})}
				p.events = u
				log, hook := test.NewNullLogger()
				s := &session{p: p, log: log, link: link{stub: withTimeout{}, synced: make(chan struct{}, 1)}, deadline: deadline}
				began := time.Now()
				took := func() time.Duration { return time.Since(began) }
				if _, err := s.Configure(t.Context(), "", "containerd", "v2"); err != nil {
					t.Fatal(err)
				}
				if _, err := s.Synchronize(t.Context(), nil, nil); err != nil {
					t.Fatal(err)
				}
				if took() > 0 {
					t.Errorf("registered after %v", took())
				}
				if e := hook.LastEntry(); e == nil || e.Message != "Registered with the runtime" || e.Data["since_start"] == "" {
					t.Errorf("logged: %+v", e)
				}
				if synctest.Wait(); isClosed(p.settled) {
					t.Error("the work beside the events begins before the answer")
				}
				if answered {
					time.AfterFunc(deadline/4, func() { close(u.answer) })
				}
				limited := sandbox(map[string]string{limitsKey + "containers": "rootfs wbps=1Mi"})
				if _, _, err := s.CreateContainer(t.Context(), limited, ctr("a")); err != nil {
					t.Fatal(err)
				}
				if want := map[bool]time.Duration{true: deadline / 4, false: deadline / 2}[answered]; took() != want {
					t.Errorf("created after %v, want %v", took(), want)
				}
				p.AwaitRegistration(t.Context())
				if want := map[bool]time.Duration{true: deadline / 4, false: deadline}[answered]; took() != want {
					t.Errorf("the work beside the events begins after %v, want %v", took(), want)
				}
			})
		})
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// TestAwaitRegistration verifies that the work beside the events begins without a registration: after a failure at once, and
// in an instance on standby after some seconds.
func TestAwaitRegistration(t *testing.T) {
	for name, want := range map[string]time.Duration{"failed": 0, "standby": registrationPatience} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPlugin(t, nil)
				if name == "failed" {
					p.settle()
				}
				began := time.Now()
				if p.AwaitRegistration(t.Context()); time.Since(began) != want {
					t.Errorf("after %v, want %v", time.Since(began), want)
				}
			})
		})
	}
}
