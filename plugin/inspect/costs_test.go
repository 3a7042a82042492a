package inspect

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
	"github.com/nri-blkio/nri-blkio/internal/fakenode"
	"github.com/nri-blkio/nri-blkio/plugin/iocost"
	"github.com/nri-blkio/nri-blkio/policy"
)

var slowDisk = &blkio.CostModel{Rbps: 60 << 20, RSeqIOPS: 1500, RRandIOPS: 1500, Wbps: 60 << 20, WSeqIOPS: 1500, WRandIOPS: 1500}

// knownDisks has the disks of fakenode, except zram0 and those made of others with a queue of requests. sdb has
// a calibration.
type knownDisks struct{ noUdev error }

func (knownDisks) Disks() ([]storage.DiskInfo, error) {
	disks, err := storage.NewSysfs(fakenode.Sysfs()).Disks()
	for i := range disks {
		disks[i].RequestBased = len(disks[i].Below) == 0 && disks[i].Name != "zram0"
	}
	return disks, err
}

func (knownDisks) Calibration(d *storage.DiskInfo) (iocost.Known, error) {
	if d.Name != "sdb" {
		return iocost.Known{}, nil
	}
	return iocost.Known{Model: slowDisk, QOS: &blkio.CostQOS{Min: 9800, Max: 10000}}, nil
}

func (knownDisks) SetQueue(blkio.Dev, string, string) error { return nil }

func (k knownDisks) Udev(*storage.DiskInfo) (iocost.Known, error) { return iocost.Known{}, k.noUdev }

// TestAddCosts verifies that each physical disk that is drawn is there, with the decision of run.
func TestAddCosts(t *testing.T) {
	h := devicesHost(t, map[string]string{
		"cg/io.cost.qos":   "8:0 enable=1 ctrl=user rpct=0.00 rlat=0 wpct=0.00 wlat=0 min=50.00 max=100.00\n8:32 enable=0 ctrl=user\n",
		"cg/io.cost.model": "8:0 ctrl=user model=linear " + slowDisk.String() + "\n",
	})
	p := policy.Default()
	p.Disks = []policy.DiskRule{{Match: policy.DiskMatch{Names: []string{"sdd"}}, Weights: policy.WeightsOff}}
	r, err := h.Devices(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	h.AddCosts(&r, p, knownDisks{})
	got := map[string]string{}
	for _, c := range r.Costs {
		got[c.Disk] = fmt.Sprintf("%s, %s, %s %t, %s %t, %t", c.State, c.Reason, c.Model.Origin, c.Model.Values != "", c.QOS.Origin, c.QOS.Values != "", c.Warning != "")
	}
	want := map[string]string{
		"sda":   "on, , foreign true, foreign true, true", // its period is 1 ms
		"sdb":   "on demand, , calibration true, calibration true, false",
		"sdc":   "no, another program has set io.cost.qos with enable=0,  false,  false, false",
		"sdd":   "no, the node policy has weights: off for this disk,  false,  false, false",
		"zram0": "no, its driver has no queue of requests (blk-mq),  false,  false, false",
		// The kernel has chosen no model yet.
		"sdf": "on demand, , kernel false, kernel false, true",
	}
	for _, guessed := range []string{"sde", "sdg", "loop0", "nvme0n1"} {
		want[guessed] = want["sdf"]
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// TestAddCostsFails verifies that an unreadable fact of one disk hides no other disk, and that each disk has a
// reason on a kernel without io.cost.
func TestAddCostsFails(t *testing.T) {
	h := devicesHost(t, map[string]string{"cg/io.cost.qos": "", "cg/io.cost.model": ""})
	r, err := h.Devices(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	lost := errors.New("no answer")
	h.AddCosts(&r, policy.Default(), knownDisks{noUdev: lost})
	if len(r.Costs) < 2 || len(r.Lost) != 1 {
		t.Errorf("%+v, %q", r.Costs, r.Lost)
	}
	r.Costs, r.Lost, r.Kernel.Namespaced = nil, nil, true
	h.AddCosts(&r, policy.Default(), knownDisks{})
	if c := r.Costs[0]; c.State != CostUnknown || c.Reason != hiddenCost || c.Model.Origin != "" {
		t.Errorf("in a namespace: %+v", c)
	}
	h = devicesHost(t, nil)
	if r, err = h.Devices(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.AddCosts(&r, policy.Default(), knownDisks{})
	if c := r.Costs[0]; c.State != CostNo || c.Reason != "the kernel has no io.cost (CONFIG_BLK_CGROUP_IOCOST)" {
		t.Errorf("without io.cost: %+v", c)
	}
}
