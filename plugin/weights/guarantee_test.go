package weights

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/health"
	"github.com/nri-blkio/nri-blkio/plugin/shares"
	"github.com/nri-blkio/nri-blkio/policy"
)

// guaranteeing is a node with a policy that guarantees 45 % to the namespace of the pod.
func guaranteeing(t *testing.T) *node {
	n := newNode(t)
	n.policy.Reserve = 1000
	n.policy.Budgets = []policy.NamespaceBudget{{Namespaces: []string{"prod"}, Guarantee: 4500}}
	n.demand.Budgets = map[string]policy.WeightBudget{pod: {Namespace: "prod", Guarantee: 4500, Reserve: 1000}}
	return n
}

// TestGuarantee verifies that a guarantee enables io.cost without any weight, raises the weights of pods, and is reported.
func TestGuarantee(t *testing.T) {
	n := guaranteeing(t)
	n.put(container+"/io.weight", "default 100\n")
	const other = slice + "/kubepods-burstable-pod2.slice"
	n.put(other+"/io.weight", "default 100\n")
	n.put(other+"/cri-2.scope/io.weight", "default 900\n")
	var r *health.Weights
	for i := range 3 {
		for _, p := range []string{other, other + "/cri-2.scope"} {
			n.put(p+"/io.stat", vdb.Dev.String()+" rbytes=0 wbytes=0 rios="+strings.Repeat("1", i+1)+" wios=0 dbytes=0 dios=0\n")
		}
		r = n.pass()
	}
	n.want(pod+"/io.weight", "default 100\n254:0 900\n254:16 900")
	want := []health.BudgetSum{{
		Namespace: "prod", Disk: "vdb", Dev: "254:16", Key: health.KeyGuarantee, Granted: "45%", Budget: "45%", Pods: 1, Factor: 9,
	}}
	if diff := cmp.Diff(want, r.Budgets); diff != "" {
		t.Errorf("budgets: -want +got:\n%s", diff)
	}
	if !strings.Contains(r.Promised, "35% can still be guaranteed") || len(n.log.AllEntries()) > 0 {
		t.Errorf("promised %q, log %v", r.Promised, n.log.AllEntries())
	}
}

// TestGuaranteeNotKept covers why a guarantee is not kept. The report and the log have the reason, but the log not what an operator
// has chosen.
func TestGuaranteeNotKept(t *testing.T) {
	for _, tt := range []struct {
		name, want string
		change     func(n *node)
		chosen     bool
	}{
		{"no queue of requests", "its driver has no queue of requests (blk-mq)", func(n *node) { n.disks[2].RequestBased = false }, false},
		{"weights: off", "the node policy has weights: off for this disk", func(n *node) {
			n.policy.Disks = []policy.DiskRule{{Weights: policy.WeightsOff}}
		}, true},
		{"a kernel without io.cost", errNoReserve.Error(), func(n *node) {
			err := filepath.WalkDir(n.dir, func(p string, _ os.DirEntry, err error) error {
				if name := filepath.Base(p); name == "io.weight" || strings.HasPrefix(name, "io.cost.") {
					err = errors.Join(err, os.Remove(p))
				}
				return err
			})
			if err != nil {
				n.t.Fatal(err)
			}
		}, false},
		{"a weight that cannot be written", "set weights on 254:16: input/output error", func(n *node) { n.refuses = "io.weight 254:16" }, false},
		{
			"large weights outside pods", "cgroups outside pods have such large weights that pods get less than the reserve leaves",
			func(n *node) { n.policy.Reserve = 50 }, false,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := guaranteeing(t)
			tt.change(n)
			n.pass()
			r := n.pass()
			if len(r.Budgets) != 1 || r.Budgets[0].Reason != tt.want || r.Budgets[0].Chosen != tt.chosen || r.Budgets[0].Granted != "0%" {
				t.Errorf("%+v, want %q", r.Budgets, tt.want)
			}
			logged := ""
			for _, e := range n.log.AllEntries() {
				if err, isErr := e.Data["error"].(error); isErr {
					logged += err.Error()
				}
			}
			if want := "the guarantee of namespace prod is not kept on disk vdb: " + tt.want; strings.Contains(logged, want) == tt.chosen {
				t.Errorf("logged %q, want %q: %t", logged, want, !tt.chosen)
			}
		})
	}
}

// TestGuaranteeOfStack verifies that the use of a stacked disk is none: the guarantee holds on the disks below.
func TestGuaranteeOfStack(t *testing.T) {
	n := guaranteeing(t)
	n.disks[0].Disk, n.disks[2].Disk = n.disks[2].Disk, blkio.Disk{Dev: blkio.Dev{Major: 253}, Name: "dm-0"} // vdb is made of others
	n.pass()
	if r := n.pass(); len(r.Budgets) > 0 || len(n.log.AllEntries()) > 0 {
		t.Errorf("%+v, log %v", r.Budgets, n.log.AllEntries())
	}
}

// TestGuaranteeOfTwoKubelets verifies that a guarantee is not kept while pods below two cgroups named kubepods use the disk.
func TestGuaranteeOfTwoKubelets(t *testing.T) {
	n := guaranteeing(t)
	n.put("kubepods/io.weight", "default 100\n")
	for i, want := range []bool{false, true} { // the first pass only reads
		n.put("kubepods/io.stat", vdb.Dev.String()+" rbytes=0 wbytes=0 rios="+strings.Repeat("1", i+1)+" wios=0 dbytes=0 dios=0\n")
		if r := n.pass(); len(r.Budgets) > 0 != want || want && !strings.HasPrefix(r.Budgets[0].Reason, "pods below several cgroups named kubepods") {
			t.Errorf("pass %d: %+v", i, r.Budgets)
		}
	}
}

// TestGuaranteeOfClass verifies that a guarantee of a class is reported and logged by the class, without the namespace of its pods.
func TestGuaranteeOfClass(t *testing.T) {
	n := guaranteeing(t)
	n.demand.Budgets = map[string]policy.WeightBudget{pod: {Class: "fast", Guarantee: 4500, Reserve: 1000}}
	n.disks[2].RequestBased = false
	n.pass()
	r := n.pass()
	if len(r.Budgets) != 1 || r.Budgets[0].Class != "fast" || r.Budgets[0].Namespace != "" || r.Budgets[0].Pods != 1 {
		t.Errorf("%+v", r.Budgets)
	}
	last := n.log.LastEntry()
	if last == nil {
		t.Fatal("nothing is logged")
	}
	if err, _ := last.Data["error"].(error); err == nil || !strings.Contains(err.Error(), "the guarantee of class fast is not kept on disk vdb") {
		t.Errorf("logged %v", err)
	}
}

// TestGuaranteeRounded verifies that a guarantee which the kernel's whole numbers do not keep is reported as not kept, with what is kept.
func TestGuaranteeRounded(t *testing.T) {
	used := shares.BudgetUse{Budget: shares.Budget{Namespace: "prod", Guarantee: 8000, Reserve: 1000}, Pods: 1, Sum: 100, Least: 80800, Granted: 0.73519}
	now := divided{Result: shares.Result{Used: map[blkio.Dev][]shares.BudgetUse{vdb.Dev: {used}}}}
	got := now.budgetSums(vdb, effect{})
	if len(got) != 1 || got[0].Granted != "73.52%" || !strings.HasPrefix(got[0].Reason, "weights are whole numbers") || notKept(got) == nil {
		t.Errorf("%+v", got)
	}
}
