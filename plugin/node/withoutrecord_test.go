package node

import (
	"fmt"
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
		if n := r.plugin.census().notInForce; n != 0 {
			t.Errorf("%d pods are not in force", n)
		}
	})
}

// TestCreatedBeforeRestart verifies that a container that was created before a restart, and starts after it, has the limits
// of its own decision. Those that the former process put into its OCI spec are on no record.
func TestCreatedBeforeRestart(t *testing.T) {
	for _, isListed := range []bool{true, false} {
		for _, class := range []string{"", "bronze", "silver"} {
			t.Run(fmt.Sprintf("%v %s", isListed, class), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := newModelRuntime(t)
					r.policy = rules(t, "rules: [{name: all, class: bronze}]")
					r.restart()
					defer r.end()
					r.connect()
					p, c := r.startPlain(true)
					r.policy = policy.Default()
					want := modelLimits{}
					if class != "" {
						r.policy = rules(t, "rules: [{name: all, class: "+class+"}]")
						want = r.podLimits(p, []*modelContainer{c})
					}
					r.restart()
					if isListed {
						r.connect()
					}
					r.runPlain(p, c)
					r.connect()
					r.idle()
					if problem := r.checkLimits(c.cgroup, want); problem != "" {
						t.Error(problem)
					}
					r.writeSpec(c) // a CRI update
					r.deliver(func(s *session) { s.PostUpdateContainer(p.sandbox(p.current()), p.container(c)) })
					r.idle()
					if problem := r.checkLimits(c.cgroup, want); problem != "" {
						t.Errorf("after an update: %s", problem)
					}
					r.reload(policy.Default())
					r.idle()
					r.wantNoLimits("without a class", c.cgroup, p.cgroup)
				})
			})
		}
	}
}
