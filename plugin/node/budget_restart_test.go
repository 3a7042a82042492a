package node

import (
	"path/filepath"
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/policy"
)

// TestBudgetBystander verifies that a running pod that only a new policy concerns counts as a pod whose limits
// are not decided yet.
func TestBudgetBystander(t *testing.T) {
	b := newBudgetNode(t, "")
	plain := tenant("plain", "")
	b.run(plain, member(plain, "x"))
	b.policy.Store(rules(t, tenantBudget)) // a reload that has come no further
	a := tenant("a", "* wbps=60Mi")
	b.wantRefusal(a, member(a, "x"), "the limits of a pod that runs are not decided yet (wait for room)")
}

// TestCovers verifies that a decision made under one budget covers another budget only if the first one bounds
// all keys of the second.
func TestCovers(t *testing.T) {
	p := rules(t, "budgets: [{namespaces: [a], limits: ['* wbps=1Gi']}, {namespaces: [b], limits: ['* wbps=1Gi riops=max wiops=100']}]")
	one, two := p.BudgetFor("a"), p.BudgetFor("b")
	for _, tt := range []struct {
		b, other *policy.NamespaceBudget
		want     bool
	}{{one, one, true}, {two, one, true}, {one, two, false}, {nil, one, false}, {nil, nil, true}} {
		if got := covers(tt.b, tt.other); got != tt.want {
			t.Errorf("%+v covers %+v: %t", tt.b, tt.other, got)
		}
	}
}

// recordedWbps returns the write limit on a disk that the record of a cgroup has as being in force, and blkio.Max for none.
func (b *budgetNode) recordedWbps(cgroup, kind string, disk blkio.Disk) blkio.Amount {
	b.t.Helper()
	r, err := record.Read(b.cgroups.Cgroup(cgroup), kind)
	if err != nil {
		b.t.Fatal(err)
	}
	if r == nil {
		return blkio.Max
	}
	s, found := r.Settings.Get(blkio.Address{Key: blkio.Wbps, Dev: disk.Dev})
	if !found {
		return blkio.Max
	}
	return s.Amount
}

// end ends a container with an event.
func (b *budgetNode) end(sb *Sandbox, c *Container) {
	write(b.t, filepath.Join(b.dir, b.cgroupOf(sb, c), "cgroup.events"), "populated 0\nfrozen 0\n")
	b.Stopped(sb.ID, c.ID)
}
