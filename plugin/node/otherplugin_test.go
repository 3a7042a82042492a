package node

import (
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// TestSpecOfAnotherPlugin verifies that files that another NRI plugin has set for a container stay out of the adjustment, since NRI
// would fail the creation, and that the limits are in force when the container starts.
func TestSpecOfAnotherPlugin(t *testing.T) {
	b := newBudgetNode(t, "")
	sb := tenant("1", "rootfs wbps=2Mi")
	sb.Annotations[weightKey+"containers"] = "50"
	c := member(sb, "a")
	c.Unified = map[string]string{blkio.IOMax: "254:0 rbps=1048576"}
	spec, err := (&session{b.Node, noDeadline}).CreateContainer(t.Context(), sb, c)
	if err != nil {
		t.Fatal(err)
	}
	if len(spec.In(blkio.IOMax)) > 0 || len(spec.In(blkio.IOWeight)) != 1 {
		t.Errorf("the adjustment is %v", spec)
	}
	if err := b.startOf(sb, c); err != nil {
		t.Fatal(err)
	}
	if got := limit(t, b.Node, b.cgroupOf(sb, c))[blkio.Wbps]; got != 2*mi {
		t.Errorf("wbps is %v", got)
	}
}
