package shares

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestUses verifies that a look has what containers and the cgroups outside pods have done, with what each is due.
func TestUses(t *testing.T) {
	const one, two = "kubepods/pod1/c1", "kubepods/besteffort/pod2/c2"
	k := newKernel(t, map[string]string{one: "default 300\n", two: "default 100\n", "kubepods/besteffort/pod2/idle": "default 100\n"})
	k.pass(vda)
	k.use(vda, one, two, "system.slice/kubelet.service")
	k.pass(vda)
	before := k.keeper.Uses(vda)
	k.useTimes(vda, two, 7)
	if err := k.keeper.Look(k.now); err != nil {
		t.Fatal(err)
	}
	weights, rios := map[string]float64{}, map[string]uint64{}
	for cgroup, use := range k.keeper.Uses(vda) {
		weights[cgroup], rios[cgroup] = use.Weight, use.Rios-before[cgroup].Rios
	}
	if diff := cmp.Diff(map[string]float64{one: 75, two: 25, "system.slice": 100}, weights); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]uint64{one: 0, two: 7, "system.slice": 0}, rios); diff != "" {
		t.Error(diff)
	}
}
