package weights

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/enforce"
	"github.com/nri-blkio/nri-blkio/plugin/enforce/plan"
	"github.com/nri-blkio/nri-blkio/plugin/iocost"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/plugin/shares"
	"github.com/nri-blkio/nri-blkio/policy"
)

// TestNothingIsLeft verifies that no setting is left once all works and no pod has a weight, after random pods,
// operators, failures and restarts, beside the reconciler of limits.
func TestNothingIsLeft(t *testing.T) {
	for seed := range uint64(20) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		n := newNode(t)
		n.loadBFQ()
		n.disks[1].Scheduler, n.disks[2].Scheduler = "none", "mq-deadline"
		before := n.controlFiles()
		for range 40 {
			n.anything(rnd)
			n.pass()
		}
		n.fails, n.noBFQ, n.refuses, n.policy, n.demand = nil, nil, "", policy.Default(), Demand{Complete: true}
		for range 3 {
			n.now = n.now.Add(setUpEvery)
			n.pass()
		}
		if after := n.controlFiles(); after != before {
			t.Fatalf("seed %d: left\n%s\nwithout any weight there was\n%s", seed, after, before)
		}
	}
}

// anything changes one thing about the node.
func (n *node) anything(rnd *rand.Rand) {
	disks := [][]blkio.Disk{{vda}, {vdb}, {vda, vdb}}[rnd.IntN(3)]
	switch rnd.IntN(12) {
	case 0:
		n.demand.Weighted = nil
	case 1:
		n.demand.Weighted = []Weighted{{Cgroup: container, Disks: disks, Weights: blkio.Weights{Default: uint32(1 + rnd.IntN(10000))}}}
	case 2:
		n.demand.Weighted = append(n.demand.Weighted, Weighted{Cgroup: pod, Disks: disks, Weights: blkio.Weights{Default: uint32(1 + rnd.IntN(10000))}})
	case 3:
		n.demand.Complete = rnd.IntN(2) == 0
	case 4:
		n.demand.Cleared = disks
	case 5:
		n.policy = policy.Default()
		n.policy.Reserve = blkio.Percent(100 * rnd.IntN(90))
		n.policy.Mode = []policy.Mode{policy.ModeEnforce, policy.ModeObserve}[rnd.IntN(2)]
		n.policy.Disks = []policy.DiskRule{{
			Match:   policy.DiskMatch{Names: []string{disks[0].Name}},
			Weights: []policy.WeightMode{policy.WeightsAuto, policy.WeightsOn, policy.WeightsOff, policy.WeightsBFQ}[rnd.IntN(4)],
		}}
	case 6:
		n.start(n.keeper.cfg.Cgroups)
	case 7:
		n.fails, n.noBFQ = []error{nil, unix.EIO}[rnd.IntN(2)], []error{nil, unix.EINVAL}[rnd.IntN(2)]
	case 8:
		n.refuses = []string{"", "io.weight ", "io.weight 254:16 default", "io.cost.qos 254:0 ", "io.cost.model 254:16 "}[rnd.IntN(5)]
	case 9:
		n.now = n.now.Add(time.Duration(rnd.IntN(40)) * time.Second)
	case 10:
		n.known = iocost.Known{}
		if rnd.IntN(2) == 0 {
			n.known.Model = &blkio.CostModel{Rbps: 1 << 20, RSeqIOPS: 100, RRandIOPS: 100, Wbps: 1 << 20, WSeqIOPS: 100, WRandIOPS: 100}
		}
	case 11:
		target := plan.Target{Cgroup: pod, Record: record.Record{Kind: record.KindPod, Namespace: "ns", Pod: "p", UID: "u"}, Room: record.MaxSize}
		limits := &enforce.Enforcer{Cgroups: n.keeper.cfg.Cgroups}
		limits.Apply(enforce.NewTargets(plan.Plan{Pod: target}, &enforce.Written{}), "", func(*enforce.Result) {})
	}
}

// controlFiles returns the weights of all cgroups, the disks with io.cost enabled, the schedulers, and the records.
func (n *node) controlFiles() string {
	n.t.Helper()
	var out strings.Builder
	err := filepath.WalkDir(n.dir, func(file string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(n.dir, file)
		switch {
		case filepath.Base(file) == blkio.IOWeight:
			out.WriteString(name + ": " + n.read(name) + "\n")
		case d.IsDir():
			for _, attribute := range []string{shares.Attribute, iocost.Attribute} {
				if _, err := unix.Getxattr(file, attribute, nil); err == nil {
					out.WriteString(name + ": " + attribute + "\n")
				}
			}
		}
		return err
	})
	if err != nil {
		n.t.Fatal(err)
	}
	for _, file := range []string{blkio.IOCostQOS, blkio.IOCostModel} {
		for line := range strings.Lines(n.read(file)) {
			if strings.Contains(line, "enable=1") || strings.Contains(line, "ctrl=user") {
				out.WriteString(file + ": " + line)
			}
		}
	}
	for i := range n.disks {
		out.WriteString(n.disks[i].Name + ": " + n.disks[i].Scheduler + "\n")
	}
	return out.String()
}
