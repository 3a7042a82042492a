package node

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
)

// TestEditBudgetRestart verifies that a restart of the plugin does not grant an edit for which the budget has no room.
func TestEditBudgetRestart(t *testing.T) {
	b := newBudgetNode(t, tenantBudget)
	one, two := tenant("1", "rootfs wbps=50Mi"), tenant("2", "rootfs wbps=50Mi")
	c1, c2 := member(one, "a"), member(two, "a")
	b.run(one, c1)
	b.run(two, c2)
	c1.State, c2.State = Running, Running
	for _, value := range []string{"rootfs wbps=190Mi", "rbps=1Mi", "rootfs rbps=1Mi"} {
		b.restart(tenantBudget)
		b.SetLive("u1", &Live{Namespace: "tenant-a", Name: "1", Annotations: annotationsOf(limitsKey+"containers", value)})
		b.Synchronize([]*Sandbox{one, two}, []*Container{c1, c2})
		b.pass(t.Context())
		d := b.peek().pods["sb-1"].containers["sb-1-a"].decision.desired
		if got := d.Settings.DevLimits()[rootDisk.Dev][blkio.Wbps]; got != 50*mi {
			t.Errorf("%s: %v, want 50 Mi", value, got)
		}
	}
}

// TestEditBetweenContainers verifies that an invalid edit changes nothing while no container of the pod runs, as between two
// containers of a pod that crashes, whether the plugin restarts then or not, and that a valid one counts.
func TestEditBetweenContainers(t *testing.T) {
	const invalid = "rootfs wpbs=4Mi"
	for _, restarts := range []bool{false, true} {
		for _, pol := range []*policy.Policy{policy.Default(), rules(t, "onError: {invalid: ignore}\n")} {
			l := newLiveNode(t)
			l.restart(pol)
			l.Synchronize(nil, nil)
			sb := sandbox(annotationsOf(limitsKey+"containers", "rootfs wbps=2Mi"))
			l.run(sb, "a")
			l.edit(limitsKey+"containers", "rootfs wbps=4Mi")
			if restarts {
				l.edit(limitsKey+"containers", invalid)
			}
			l.Stopped("sb1", "id-a")
			l.Removed("sb1", "id-a")
			if restarts {
				l.restart(pol)
				l.SetLive("u1", &Live{Namespace: "prod", Name: "db-0", Annotations: annotationsOf(limitsKey+"containers", invalid)})
				l.Synchronize([]*Sandbox{sb}, nil)
				l.pass(t.Context())
			} else {
				l.edit(limitsKey+"containers", invalid)
			}
			l.run(sb, "b")
			l.want("invalid", map[string]blkio.Amount{cgroupOf("b"): 4 * mi})
			l.Stopped("sb1", "id-b")
			l.Removed("sb1", "id-b")
			l.edit(limitsKey+"containers", "rootfs wbps=5Mi")
			l.run(sb, "a")
			l.want("valid", map[string]blkio.Amount{cgroupOf("a"): 5 * mi})
		}
	}
}

// TestEditHangs verifies that an edit does not wait for a container whose disk does not answer: all pods wait for the pass.
func TestEditHangs(t *testing.T) {
	l := newLiveNode(t)
	sb := sandbox(annotationsOf(limitsKey+"containers", "rootfs wbps=2Mi"))
	l.run(sb, "a", "b")
	c := l.peek().pods["sb1"].containers["id-a"]
	c.token <- struct{}{}
	c.resolution.began = time.Now().Add(-2 * passDeadline)
	l.SetLive("u1", &Live{Namespace: "prod", Name: "db-0", Annotations: annotationsOf(limitsKey+"containers", "rootfs wbps=4Mi")})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := errors.Join(l.resolveAll(ctx, c.pod.group)...); err == nil || !strings.Contains(err.Error(), "does not answer") || ctx.Err() != nil {
		t.Errorf("got %v, %v", err, ctx.Err())
	}
	l.want("not tried", map[string]blkio.Amount{cgroupOf("b"): 2 * mi})
	l.pods.endResolution(c.identity)
	l.pass(t.Context())
	l.want("tried", all(4*mi, 4*mi))
}
