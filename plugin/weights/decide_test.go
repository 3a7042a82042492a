package weights

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/iocost"
	"github.com/nri-blkio/nri-blkio/policy"
)

// TestPreviewAgrees verifies that run does on a disk the same as reports show.
func TestPreviewAgrees(t *testing.T) {
	model := &blkio.CostModel{Rbps: 60 << 20, RSeqIOPS: 1500, RRandIOPS: 1500, Wbps: 60 << 20, WSeqIOPS: 1500, WRandIOPS: 1500}
	off := policy.Default()
	off.Disks = []policy.DiskRule{{Weights: policy.WeightsOff}}
	stated := policy.Default()
	stated.Disks = []policy.DiskRule{{Weights: policy.WeightsAuto, Model: model}}
	observed := policy.Default()
	observed.Mode = policy.ModeObserve
	for name, tt := range map[string]struct {
		policy     *policy.Policy
		known      iocost.Known
		model, qos string // the files before
	}{
		"nothing known":                 {policy: policy.Default()},
		"calibrated":                    {policy: policy.Default(), known: iocost.Known{Model: model, QOS: &blkio.CostQOS{Min: 9800, Max: 10000}}},
		"the policy's model":            {policy: stated},
		"weights: off":                  {policy: off},
		"observed":                      {policy: observed},
		"enabled by another program":    {policy: stated, qos: "254:16 enable=1 ctrl=auto\n"},
		"disabled by another program":   {policy: stated, qos: "254:16 enable=0 ctrl=user\n"},
		"the model of another program":  {policy: stated, model: "254:16 ctrl=user model=linear " + model.String() + "\n"},
		"a kernel's guess that is read": {policy: policy.Default(), model: "254:16 ctrl=auto model=linear " + model.String() + "\n"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.policy, n.known = tt.policy, tt.known
			n.put("io.cost.model", tt.model)
			n.put("io.cost.qos", tt.qos)
			before, err := Preview(n.keeper.cfg.Cgroups, n.policy, n)
			if err != nil || n.read("io.cost.qos") != strings.TrimSpace(tt.qos) {
				t.Fatal(err, n.read("io.cost.qos"))
			}
			n.demand.Weighted = []Weighted{{Cgroup: container, Disks: []blkio.Disk{vda, vdb}, Weights: blkio.Weights{Default: 300}}}
			n.pass()
			// dm-0 and zram0, which nothing uses, cannot have io.cost in either case.
			ignore := cmpopts.IgnoreFields(iocost.State{}, "Works")
			if d := cmp.Diff(n.keeper.setUp.states, before, ignore, cmpopts.EquateEmpty()); d != "" {
				t.Errorf("-run +preview:\n%s", d)
			}
			for i, s := range n.keeper.setUp.states {
				if now := before[i]; s.Works != (now.Works || now.Enabled) {
					t.Errorf("%s: works is %t, but %+v", s.Disk.Name, s.Works, now)
				}
			}
		})
	}
}

// TestPreviewFails verifies that the known facts about disks are reported with the error, as run sets them up.
func TestPreviewFails(t *testing.T) {
	n := newNode(t)
	n.noUdev = errors.New("no answer")
	states, err := Preview(n.keeper.cfg.Cgroups, n.policy, n)
	if !errors.Is(err, n.noUdev) || len(states) != 4 {
		t.Errorf("%+v, %v", states, err)
	}
	n.fails = errors.New("no disks")
	if states, err := Preview(n.keeper.cfg.Cgroups, n.policy, n); !errors.Is(err, n.fails) || states != nil {
		t.Errorf("%+v, %v", states, err)
	}
}
