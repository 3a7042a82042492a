package weights

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/health"
	"github.com/nri-blkio/nri-blkio/policy"
)

// byBFQ has bfq divide vdb.
func byBFQ() *policy.Policy {
	p := policy.Default()
	p.Disks = []policy.DiskRule{{Match: policy.DiskMatch{Names: []string{"vdb"}}, Weights: policy.WeightsBFQ}}
	return p
}

// loadBFQ makes io.bfq.weight, as the module does.
func (n *node) loadBFQ() {
	for p := container; p != "."; p = filepath.Dir(p) {
		n.put(p+"/"+blkio.IOBFQWeight, "default 100\n")
	}
}

// wantQueue compares the writes to queues since the last call.
func (n *node) wantQueue(writes ...string) {
	n.t.Helper()
	if diff := cmp.Diff(writes, n.queue); diff != "" {
		n.t.Errorf("writes to queues: -want +got:\n%s", diff)
	}
	n.queue = nil
}

// TestBFQ verifies that bfq divides only the disk that the policy names, with weights for containers too, beside io.cost on another disk,
// and also on a kernel without io.cost.
func TestBFQ(t *testing.T) {
	for _, withCost := range []bool{true, false} {
		n := newNode(t)
		n.loadBFQ()
		if !withCost {
			n.removeCost()
		}
		n.policy = byBFQ()
		n.disks[2].Scheduler = "mq-deadline"
		n.demand.Weighted = []Weighted{{Namespace: "prod", Pod: "db-0", Container: "db", Cgroup: container, Disks: []blkio.Disk{vda, vdb}, Weights: blkio.Weights{Default: 3000}}}
		n.pass()
		n.wantQueue("254:16 scheduler bfq", "254:16 iosched/low_latency 0")
		r := n.pass()
		n.want(slice+"/io.bfq.weight", "default 100\n254:16 1000")
		n.want(container+"/io.bfq.weight", "default 100\n254:16 1000")
		if !n.bfq[vdb.Dev] || n.bfq[vda.Dev] {
			t.Errorf("the disks with bfq are %v", n.bfq)
		}
		want := health.CostDisk{Disk: "vdb", Dev: "254:16", By: "bfq", Enabled: true}
		if diff := cmp.Diff(want, r.Disks[2]); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
		byDisk := map[string]string{}
		for _, s := range r.Shares {
			byDisk[s.Disk] = s.Reason
		}
		if reason := byDisk["vda"]; byDisk["vdb"] != "" || withCost == strings.Contains(reason, "no io.cost") {
			t.Errorf("with io.cost: %v, shares %+v", withCost, r.Shares)
		}
		if withCost {
			n.want(slice+"/io.weight", "default 100\n254:0 3000")
		}
		n.policy, n.queue = policy.Default(), nil
		r = n.pass()
		n.wantQueue("254:16 scheduler mq-deadline")
		if n.bfq[vdb.Dev] || r.Disks[2].By != "" {
			t.Errorf("left: %v, %+v", n.bfq, r.Disks[2])
		}
	}
}

// removeCost makes a kernel without io.cost.
func (n *node) removeCost() {
	names := []string{blkio.IOCostModel, blkio.IOCostQOS}
	for p := container; p != "."; p = filepath.Dir(p) {
		names = append(names, p+"/"+blkio.IOWeight)
	}
	for _, name := range names {
		if err := os.Remove(filepath.Join(n.dir, name)); err != nil {
			n.t.Fatal(err)
		}
	}
}

// TestBFQMissing verifies that a kernel without bfq is an error in the log and the report, and that weights have no effect there.
func TestBFQMissing(t *testing.T) {
	n := newNode(t)
	n.policy, n.noBFQ, n.demand.Weighted = byBFQ(), unix.EINVAL, weighted
	r := n.pass()
	const want = "set up bfq on disk vdb 254:16: invalid argument"
	if e := n.log.LastEntry(); e == nil || !strings.Contains(e.Data["error"].(error).Error(), want) {
		t.Errorf("the log has %+v", e)
	}
	if s := r.Shares[0]; !strings.Contains(s.Reason, "invalid argument") || s.Chosen || r.Disks[2].Error == "" || r.Disks[2].Enabled {
		t.Errorf("%+v, %+v", s, r.Disks[2])
	}
}

// TestBFQReplaced verifies that weights are written again after a disk was given to bfq a second time, because the kernel has dropped them.
func TestBFQReplaced(t *testing.T) {
	n := newNode(t)
	n.loadBFQ()
	n.policy, n.demand.Weighted = byBFQ(), weighted
	n.pass()
	n.pass()
	n.want(container+"/io.bfq.weight", "default 100\n254:16 300")
	n.policy = policy.Default()
	n.pass()
	n.loadBFQ()
	n.policy = byBFQ()
	n.pass()
	n.pass()
	n.want(container+"/io.bfq.weight", "default 100\n254:16 300")
	n.want(pod+"/io.bfq.weight", "default 100\n254:16 300")
}

// TestBFQRestart verifies that a disk keeps bfq and its weights over a restart under mode: observe, as long as it is not known whether a
// rule enforces a weight there.
func TestBFQRestart(t *testing.T) {
	n := newNode(t)
	n.loadBFQ()
	n.policy, n.demand.Weighted = byBFQ(), weighted
	n.policy.Mode, n.policy.Rules = policy.ModeObserve, []policy.Rule{{Mode: policy.ModeEnforce}}
	n.pass()
	n.pass()
	n.want(container+"/io.bfq.weight", "default 100\n254:16 300")
	n.queue = nil
	n.demand = Demand{Unlisted: true}
	n.start(n.keeper.cfg.Cgroups)
	n.pass()
	n.wantQueue()
	n.want(container+"/io.bfq.weight", "default 100\n254:16 300")
	if !n.bfq[vdb.Dev] {
		t.Errorf("the disks with bfq are %v", n.bfq)
	}
	n.demand = Demand{Complete: true}
	n.pass()
	if n.bfq[vdb.Dev] || len(n.queue) == 0 {
		t.Errorf("once no rule enforces a weight: %v, %v", n.bfq, n.queue)
	}
}

// TestBFQLowLatency verifies that low_latency which another program enables is told once, with the weights that it makes worth less. They
// are kept all the same.
func TestBFQLowLatency(t *testing.T) {
	n := guaranteeing(t)
	n.loadBFQ()
	n.policy.Disks, n.demand.Weighted = byBFQ().Disks, weighted
	n.pass()
	n.disks[2].LowLatency = "1"
	n.now = n.now.Add(setUpEvery)
	r := n.pass()
	n.pass()
	n.want(container+"/io.bfq.weight", "default 100\n254:16 300")
	const want = "another program has enabled bfq's low_latency"
	if d := r.Disks[2]; !d.Enabled || !strings.HasPrefix(d.Error, want) || !strings.HasPrefix(r.Shares[0].Reason, want) || !strings.HasPrefix(r.Budgets[0].Reason, want) {
		t.Errorf("%+v, %+v, %+v", d, r.Shares, r.Budgets)
	}
	if logged := len(n.warnings(want)); logged != 1 {
		t.Errorf("logged %d times: %v", logged, n.log.AllEntries())
	}
}

// warnings returns the errors in the log that have a text.
func (n *node) warnings(text string) (out []string) {
	for _, e := range n.log.AllEntries() {
		if err, isErr := e.Data["error"].(error); isErr && strings.Contains(err.Error(), text) {
			out = append(out, err.Error())
		}
	}
	return out
}

// TestBFQOfStack verifies that a disk without a scheduler of its own that the policy gives to bfq is told at the first pass, and by Preview,
// unless the policy gives all disks below it to bfq as well.
func TestBFQOfStack(t *testing.T) {
	for _, names := range [][]string{{"dm-*"}, {"dm-*", "vda"}, {"dm-*", "vda", "vdb"}} {
		n := newNode(t)
		n.loadBFQ()
		n.policy = byBFQ()
		n.policy.Disks[0].Match.Names = names
		n.pass()
		n.pass()
		const want = "the node policy has weights: bfq for disk dm-0, which has no scheduler of its own: match the disks below it, vda and vdb"
		_, err := Preview(n.keeper.cfg.Cgroups, n.policy, n)
		isTold := len(names) < 3
		if told := len(n.warnings(want)); told > 1 || (told == 1) != isTold || (err != nil) != isTold || isTold && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: logged %v, Preview: %v", names, n.log.AllEntries(), err)
		}
	}
}
