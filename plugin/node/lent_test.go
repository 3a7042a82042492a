package node

import (
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
	"github.com/nri-blkio/nri-blkio/plugin/podfacts"
	"github.com/nri-blkio/nri-blkio/policy"
)

// TestLentToNextSandbox verifies that the next sandbox of a pod, which is there already, has what the record of a container in the
// former one says was lent, also without a lender: it would be forgotten with the former sandbox.
func TestLentToNextSandbox(t *testing.T) {
	h, _ := tree(t)
	n := newNode(t, h)
	join := func(id string) *pod {
		p, _ := newPod(&Sandbox{ID: id, UID: "u", Facts: podfacts.Facts{Namespace: "team", Name: "vm"}}, n.Policy())
		s := n.state.Lock()
		defer n.state.Unlock()
		return s.join(reported{p, "kubepods/podu", true})
	}
	former, next := join("former"), join("next")
	lent := policy.Lent{Disks: []blkio.Disk{{Dev: blkio.Dev{Major: 253, Minor: 1}, Name: "dm-1"}}}
	func() {
		s := n.state.Lock()
		defer n.state.Unlock()
		c := s.addReported(former, &Container{ID: "c", Name: "compute", Spec: func() *inventory.Spec { return &inventory.Spec{} }})
		c.setRecalled(&recalled{lent: lent})
	}()
	n.lend(former.group)
	if got := next.borrowed(); !got.Equal(lent) {
		t.Errorf("the next sandbox has %+v, want %+v", got, lent)
	}
}
