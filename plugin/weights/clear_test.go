package weights

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestClear verifies that after the end of a Keeper, all that it has set can be removed.
func TestClear(t *testing.T) {
	n := newNode(t)
	n.demand.Weighted = weighted
	n.pass()
	n.pass()
	want := []string{
		slice + `: write io.weight "254:16 default"`, pod + `: write io.weight "254:16 default"`, `write io.cost.qos "254:16 enable=0 ctrl=auto"`,
	}
	for _, dryRun := range []bool{true, false} {
		steps, err := Clear(n.keeper.cfg.Cgroups, n, dryRun)
		if diff := cmp.Diff(want, steps); diff != "" || err != nil {
			t.Errorf("%v, -want +got:\n%s", err, diff)
		}
	}
	n.want("io.cost.qos", "254:16 enable=0 ctrl=auto")
	n.want(slice+"/io.weight", "default 100")
	n.want(pod+"/io.weight", "default 100")
	if steps, err := Clear(n.keeper.cfg.Cgroups, n, false); err != nil || len(steps) > 0 {
		t.Errorf("again: %q, %v", steps, err)
	}
}

// TestClearWithoutIOCost verifies that a kernel without io.cost has nothing to clear.
func TestClearWithoutIOCost(t *testing.T) {
	n := newNode(t)
	for _, name := range []string{"io.cost.qos", "io.cost.model"} {
		if err := os.Remove(filepath.Join(n.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if steps, err := Clear(n.keeper.cfg.Cgroups, n, false); err != nil || len(steps) > 0 {
		t.Errorf("%q, %v", steps, err)
	}
}
