package node

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/policy"
)

// startPlain starts a container of a pod without annotations. With created, it ends before the container is started.
func (r *modelRuntime) startPlain(created bool) (*modelPod, *modelContainer) {
	p := r.addPod(1, rand.New(rand.NewPCG(1, 1)))
	p.spec, p.annotations = modelSpec{}, nil
	p.current().reported = nil
	c, ok := r.createContainer(p, p.current(), "a")
	if !ok {
		r.t.Fatal("the container is refused")
	}
	if !created {
		r.runPlain(p, c)
	}
	return p, c
}

// runPlain starts a container that was created. An error of the plugin is only logged.
func (r *modelRuntime) runPlain(p *modelPod, c *modelContainer) {
	r.place(c, true)
	r.deliver(func(s *session) { _ = s.StartContainer(r.t.Context(), p.sandbox(p.current()), p.container(c)) })
	c.state = modelRunning
}

// idle waits until the reconciler has nothing left to do.
func (r *modelRuntime) idle() {
	time.Sleep(5 * time.Minute)
	synctest.Wait()
}

func (r *modelRuntime) wantNoLimits(what string, cgroups ...string) {
	r.t.Helper()
	for _, cgroup := range cgroups {
		if has := finiteLimits(r.k.has(cgroup)); len(has) > 0 {
			r.t.Errorf("%s: %s has %v", what, cgroup, has)
		}
	}
}

// TestLimitWithoutRecord verifies that limits whose records could not be stored are lifted when the policy has none any more,
// and that the pod counts as one with a problem until then.
func TestLimitWithoutRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newModelRuntime(t)
		r.policy = rules(t, "rules: [{name: all, class: bronze}]")
		r.restart()
		defer r.end()
		r.connect()
		p, c := r.startPlain(true)
		r.k.mu.Lock()
		r.k.full[p.cgroup] = unix.ENOSPC
		r.k.mu.Unlock()
		r.runPlain(p, c)
		r.idle()
		if has := finiteLimits(r.k.has(c.cgroup)); len(has) != 2 {
			t.Fatalf("the container has %v, want a limit on each disk", has)
		}
		if n := r.plugin.census().notInForce; n != 1 {
			t.Errorf("%d pods are not in force, want the one without a record", n)
		}
		r.reload(policy.Default())
		r.idle()
		r.wantNoLimits("without a class", c.cgroup, p.cgroup)
		r.k.answer()
		r.idle()
		if n := r.plugin.census().notInForce; n != 0 {
			t.Errorf("%d pods are not in force", n)
		}
	})
}
