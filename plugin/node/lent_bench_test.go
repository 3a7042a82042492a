package node

import (
	"fmt"
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
	"github.com/nri-blkio/nri-blkio/plugin/node/lifecycle"
	"github.com/nri-blkio/nri-blkio/plugin/podfacts"
	"github.com/nri-blkio/nri-blkio/policy"
)

// newLenders returns a node with a pod and as many lenders of it as fit on a node. Each has a disk of its own.
func newLenders(tb testing.TB) (n *Node, owner, last podIdentity) {
	h, _ := tree(tb)
	n = newNode(tb, h)
	running := func(i int, facts podfacts.Facts, lends policy.Lent) podIdentity {
		p, _ := newPod(&Sandbox{ID: fmt.Sprint("sb", i), UID: fmt.Sprint("u", i), Facts: facts}, n.Policy())
		s := n.state.Lock()
		defer n.state.Unlock()
		joined := s.join(reported{podIdentity: p, isConcerned: true})
		c := s.addReported(joined, &Container{ID: fmt.Sprint("c", i), Name: "disk", Spec: func() *inventory.Spec { return &inventory.Spec{} }})
		s.handle(c, lifecycle.StartContainer)
		c.redecide(func(d *decision) { d.lends = lends })
		return joined.podIdentity
	}
	owner = running(0, podfacts.Facts{Namespace: "team", Name: "vm"}, policy.Lent{})
	for i := 1; i < benchPods; i++ {
		facts := podfacts.Facts{Namespace: "team", Name: fmt.Sprint("hp-", i), Owner: podfacts.Owner{Name: "vm", UID: owner.uid, IsPod: true}}
		n.SetLive(fmt.Sprint("u", i), &facts)
		disk := blkio.Disk{Dev: blkio.Dev{Major: 253, Minor: uint32(i)}, Name: fmt.Sprint("dm-", i)}
		lends := policy.Lent{Disks: []blkio.Disk{disk}}
		for k := range blkio.NumLimits {
			at := blkio.Address{Key: k, Dev: disk.Dev}
			lends.Limits = append(lends.Limits, policy.Setting{Value: blkio.Value{Address: at, Amount: 1 << 20}, Basis: policy.LentLimit})
		}
		last = running(i, facts, lends)
	}
	return n, owner, last
}

// BenchmarkLend measures a turn of one of 249 pods that lend to one pod, which is done with the lock.
func BenchmarkLend(b *testing.B) {
	n, owner, last := newLenders(b)
	n.lend(last.group)
	for b.Loop() {
		n.lend(last.group)
	}
	if got := owner.borrowed(); len(got.Disks) != benchPods-1 || len(got.Limits) != (benchPods-1)*int(blkio.NumLimits) {
		b.Errorf("%d disks and %d limits are lent", len(got.Disks), len(got.Limits))
	}
}
