package node

import (
	"fmt"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/plugin/podevent"
	"github.com/nri-blkio/nri-blkio/plugin/podfacts"
	"github.com/nri-blkio/nri-blkio/policy"
)

// TestEventManyClaims verifies that an event of many claims has room for the limits, and that it names claims beside other parts.
func TestEventManyClaims(t *testing.T) {
	e := editOf{claims: []string{"a", "b", "c", "d", "e"}}
	if got, want := e.applied(podfacts.Labels|podfacts.Claims), "edited labels and limits of claims a, b, c and 2 more apply"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// BenchmarkTell measures what notices cost in a pass over a node with 250 pods of two containers, after all were told: without
// anything that is not in force, and with one cause for each container.
func BenchmarkTell(b *testing.B) {
	for name, value := range map[string]string{"none": "rootfs wbps=1Mi", "causes": "rootfs wbps=1Mi; rootfs wpbs=1Mi"} {
		n := newBudgetNode(b, "onError: {invalid: ignore}\n")
		for i := range benchPods {
			sb := tenant(fmt.Sprint(i), value)
			n.SetLive(sb.UID, &podfacts.Facts{Namespace: sb.Namespace, Name: sb.Name, Annotations: sb.Annotations, Volumes: []policy.ClaimVolume{}})
			n.run(sb, member(sb, "db"))
			n.run(sb, member(sb, "sidecar"))
		}
		groups := n.groups()
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				for _, g := range groups {
					n.tell(g)
				}
			}
		})
	}
}

// TestTold verifies that a notice is told when it has lasted, again if it is to be, and again after it was not listed or was forgotten.
func TestTold(t *testing.T) {
	var told told
	once := notice{noticeKey: noticeKey{reason: podevent.ChangeRejected}}
	lasting := notice{noticeKey: noticeKey{reason: podevent.NotInForce}, patience: patience, again: time.Hour}
	at := time.Unix(1e9, 0)
	for i, step := range []struct {
		after  time.Duration
		listed []notice
		want   int
	}{
		{0, []notice{once, lasting, once}, 1},
		{patience - 1, []notice{once, lasting}, 0},
		{1, []notice{lasting, once}, 1},
		{time.Hour - 1, []notice{once, lasting}, 0},
		{1, []notice{once, lasting}, 1},
		{1, nil, 0},
		{1, []notice{once, lasting}, 1},
		{patience, []notice{lasting}, 1},
		{1, []notice{once}, 1},
	} {
		at = at.Add(step.after)
		if got := told.due(step.listed, at); len(got) != step.want || len(told) != min(len(step.listed), 2) {
			t.Errorf("step %d: %d notices are due, want %d; %d are kept", i, len(got), step.want, len(told))
		}
	}
	told.forget(podevent.NotInForce)
	if got := told.due([]notice{once}, at); len(got) > 0 {
		t.Error("a notice of another reason was forgotten")
	}
	told.forget(podevent.ChangeRejected)
	if got := told.due([]notice{once}, at); len(got) != 1 {
		t.Error("a forgotten notice is not told again")
	}
	early := notice{noticeKey: noticeKey{isKept: true}, patience: patience, since: at.Add(-patience)}
	if got := told.due([]notice{early}, at); len(got) != 1 {
		t.Error("a notice that began before it was listed is not told")
	}
}
