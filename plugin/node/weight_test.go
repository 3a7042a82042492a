package node

import (
	"path/filepath"
	"testing"

	"github.com/nri-blkio/nri-blkio/policy"
)

// TestObservedWeightIsLifted verifies that a program that starts with a policy that only observes removes its
// predecessor's weight, even if it cannot read the node at first. Before, it replaced the record and left the
// weight, which then belonged to no program.
func TestObservedWeightIsLifted(t *testing.T) {
	h, dir := tree(t, podCgroup, cgroupOf("a"))
	sb := sandbox(map[string]string{weightKey + "containers": "30"})
	start(t, newNode(t, h), sb, "a")
	weight := filepath.Join(dir, cgroupOf("a"), "io.weight")
	if got := read(t, weight); got != "default 30" {
		t.Fatalf("the weight is %q", got)
	}
	n := newNode(t, h)
	broken := true
	n.storage = flaky{disks{twoDisks}, &broken}
	pol := policy.Default()
	pol.Mode = policy.ModeObserve
	n.Reload(pol)
	a := ctr("a")
	a.State = Running
	n.Synchronize([]*Sandbox{sb}, []*Container{a})
	for _, broken = range []bool{true, false} {
		n.pass(t.Context())
	}
	n.pass(t.Context())
	if got := read(t, weight); got != "default 100" {
		t.Errorf("the weight is %q", got)
	}
}
