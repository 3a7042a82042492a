package node

import (
	"context"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
)

func TestReviewLabelBudget(t *testing.T) {
	b := newBudgetNode(t, tenantBudget+`rules:
- {name: batch, match: {podSelector: {matchLabels: {tier: batch}}}, class: bronze}
- {name: gold, match: {podSelector: {matchLabels: {tier: gold}}}, class: silver}
`)
	for _, name := range []string{"1", "2", "3", "4", "5", "6", "7"} {
		sb := tenant(name, "")
		sb.Labels = map[string]string{"tier": "batch"}
		b.run(sb, member(sb, "a"))
	}
	for _, tier := range []string{"gold", "none"} {
		for _, name := range []string{"1", "2", "3", "4", "5", "6", "7"} {
			b.SetLive("u"+name, &Live{Namespace: "tenant-a", Name: name, Labels: map[string]string{"tier": tier}})
		}
		b.pass(t.Context())
		for _, u := range b.Budgets() {
			t.Logf("%s: %+v", tier, u)
		}
		if got := b.overBudget(); got > 0 {
			t.Errorf("tier=%s: %v namespaces are over their budget", tier, got)
		}
	}
}

func TestReviewGap(t *testing.T) {
	for _, restart := range []bool{false, true} {
		for _, ignore := range []bool{false, true} {
			l := newLiveNode(t)
			pol := policy.Default()
			if ignore {
				pol = rules(t, "onError: {invalid: ignore}\n")
			}
			l.restart(pol)
			l.Synchronize(nil, nil)
			sb := sandbox(annotationsOf(limitsKey+"containers", "rootfs wbps=2Mi"))
			l.run(sb, "a")
			l.edit(limitsKey+"containers", "rootfs wbps=4Mi")
			l.want("valid", map[string]blkio.Amount{cgroupOf("a"): 4 * mi})
			if restart {
				l.edit(limitsKey+"containers", "rootfs wpbs=4Mi") // rejected
			}
			l.Stopped("sb1", "id-a")
			l.Removed("sb1", "id-a")
			if restart {
				l.restart(pol)
				l.SetLive("u1", &Live{Namespace: "prod", Name: "db-0", Annotations: annotationsOf(limitsKey+"containers", "rootfs wpbs=4Mi")})
				l.Synchronize([]*Sandbox{sb}, nil)
			} else {
				l.edit(limitsKey+"containers", "rootfs wpbs=4Mi")
			}
			l.pass(t.Context())
			c := ctr("b", bind("/mnt/data/x", "/data"))
			s := session{l.Node, noDeadline}
			spec, err := s.CreateContainer(t.Context(), sb, c)
			t.Logf("restart=%v ignore=%v: spec %v, err %v", restart, ignore, spec, err)
			if err != nil || len(spec) == 0 {
				t.Errorf("restart=%v ignore=%v: spec %v, err %v: the edit is invalid and counts", restart, ignore, spec, err)
			}
		}
	}
}

func TestReviewHung(t *testing.T) {
	l := newLiveNode(t)
	l.Synchronize(nil, nil)
	sb := sandbox(annotationsOf(limitsKey+"containers", "rootfs wbps=2Mi"))
	l.run(sb, "a", "b")
	c := l.peek().pods["sb1"].containers["id-a"]
	c.token <- struct{}{} // a resolution that hangs
	c.resolution.began = time.Now().Add(-time.Hour)
	l.SetLive("u1", &Live{Namespace: "prod", Name: "db-0", Annotations: annotationsOf(limitsKey+"containers", "rootfs wbps=4Mi")})
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	began := time.Now()
	l.resolveAll(ctx, c.pod.group)
	if took := time.Since(began); took > time.Second {
		t.Errorf("a pass waited %v for a container that hangs", took)
	}
}
