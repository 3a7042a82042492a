package weights

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/health"
	"github.com/nri-blkio/nri-blkio/plugin/iocost"
	"github.com/nri-blkio/nri-blkio/plugin/shares"
	"github.com/nri-blkio/nri-blkio/policy"
)

func TestProblems(t *testing.T) {
	n := newNode(t)
	n.fails = errors.New("no sysfs")
	for range 3 {
		n.pass()
	}
	if entries := n.log.AllEntries(); len(entries) != 1 || entries[0].Data["error"].(error).Error() != "no sysfs" {
		t.Errorf("logged %d times", len(entries))
	}
	n.fails, n.noUdev = nil, errors.New("udev's database is garbled")
	n.demand.Weighted = weighted
	n.pass()
	n.want("io.cost.qos", "254:16 enable=1 ctrl=auto")
	if entries := n.log.AllEntries(); len(entries) != 2 || !strings.Contains(entries[1].Data["error"].(error).Error(), "garbled") {
		t.Errorf("logged %d times", len(entries))
	}
	n.noUdev, n.demand.Weighted = nil, nil
	n.now = n.now.Add(lingerFor)
	n.pass()
	n.put("io.cost.qos", "254:16 nonsense\n")
	n.demand.Weighted = weighted
	n.pass()
	if entries := n.log.AllEntries(); len(entries) != 3 || !strings.Contains(entries[2].Data["error"].(error).Error(), "parse io.cost.qos") {
		t.Errorf("logged %d times", len(entries))
	}
}

func TestWithoutIOCost(t *testing.T) {
	n := newNode(t)
	for _, name := range []string{"io.cost.qos", "io.cost.model", "kubepods.slice/io.weight", slice + "/io.weight", pod + "/io.weight", container + "/io.weight"} {
		if err := os.Remove(filepath.Join(n.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	n.demand.Weighted = weighted
	r := n.pass()
	if len(r.Disks) != 4 || len(n.log.AllEntries()) > 0 {
		t.Errorf("%+v, logged %d", r.Disks, len(n.log.AllEntries()))
	}
	for _, s := range r.Disks {
		if s.Enabled || s.Error != "" || !strings.Contains(s.Reason, "the kernel has no io.cost") {
			t.Errorf("%+v", s)
		}
	}

	n.policy = policy.Default()
	n.policy.Reserve = 3000
	for _, s := range n.pass().Disks {
		want := ""
		if s.Disk == vda.Name || s.Disk == vdb.Name { // the others could have no io.cost on any kernel
			want = errNoReserve.Error()
		}
		if s.Enabled || s.Error != want {
			t.Errorf("with a reserve: %+v, want the error %q", s, want)
		}
	}
	const want = "set up io.cost on disk vda 254:0, disk vdb 254:16: the reserve has no effect, because the kernel has no io.cost"
	if entries := n.log.AllEntries(); len(entries) != 1 || !strings.Contains(fmt.Sprint(entries[0].Data["error"]), want) {
		t.Errorf("logged %d times, the last is %v, want once with %q", len(entries), n.log.LastEntry(), want)
	}
	n.policy = policy.Default()
	n.policy.Mode, n.policy.Reserve = policy.ModeObserve, 3000
	for _, s := range n.pass().Disks {
		if s.Error != "" {
			t.Errorf("with a reserve that mode: observe turns off: %+v", s)
		}
	}
}

// TestDiskHangs verifies that a disk on which io.cost cannot be enabled, because the write does not end, keeps
// no other disk from its weights.
func TestDiskHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		release := make(chan struct{})
		n.hangs = func(data string) {
			if strings.HasPrefix(data, vda.Dev.String()+" ") {
				<-release
			}
		}
		n.demand.Weighted = []Weighted{{Namespace: "prod", Pod: "db-0", Container: "db", Cgroup: container, Disks: []blkio.Disk{vda, vdb}, Weights: blkio.Weights{Default: 300}}}
		n.pass()
		r := n.pass()
		n.want("io.cost.qos", "254:16 enable=1 ctrl=auto")
		n.want(slice+"/io.weight", "default 100\n254:16 300")
		if d := r.Disks[1]; d.Enabled || !strings.Contains(d.Error, "not done within") {
			t.Errorf("the disk that hangs: %+v", d)
		}
		close(release)
		synctest.Wait()
	})
}

// TestUnreadable verifies that as long as io.cost cannot be read, the weights of cgroups stay, also those of a
// former instance.
func TestUnreadable(t *testing.T) {
	n := newNode(t)
	n.demand.Weighted = weighted
	n.pass()
	n.pass()
	const set = "default 100\n254:16 300"
	n.want(slice+"/io.weight", set)
	qos := n.read("io.cost.qos")
	n.put("io.cost.qos", "254:16 nonsense\n")
	n.now = n.now.Add(setUpEvery)
	if r := n.pass(); len(r.Disks) != 4 || len(r.Shares) != 1 || r.Shares[0].Share != 1 {
		t.Errorf("%+v", r)
	}
	n.want(slice+"/io.weight", set)
	n.start(n.keeper.cfg.Cgroups)
	if r := n.pass(); len(r.Shares) != 1 || r.Shares[0].Reason != "the state of io.cost cannot be read" {
		t.Errorf("%+v", r)
	}
	n.want(slice+"/io.weight", set)
	n.put("io.cost.qos", qos+"\n")
	n.demand.Weighted = nil
	n.now = n.now.Add(lingerFor)
	n.pass()
	n.want("io.cost.qos", "254:16 enable=0 ctrl=auto")
	n.want(slice+"/io.weight", "default 100")
}

// TestCgroupsUnreadable verifies that status gives the true reason.
func TestCgroupsUnreadable(t *testing.T) {
	n := newNode(t)
	n.demand.Weighted = weighted
	n.put("kubepods.slice/io.weight", "nonsense\n")
	if r := n.pass(); len(r.Shares) != 1 || r.Shares[0].Reason != "the cgroups of pods cannot be read" {
		t.Errorf("%+v", r)
	}
}

// TestCgroupSkipped verifies that a cgroup that cannot be read keeps no other pod from its weight. The log and
// status name the cgroup.
func TestCgroupSkipped(t *testing.T) {
	n := newNode(t)
	const other = slice + "/kubepods-burstable-pod2.slice/cri-2.scope"
	for p, weight := range map[string]string{filepath.Dir(other): "default 100\n", other: "default 400\n"} {
		n.put(p+"/io.weight", weight)
		n.put(p+"/io.stat", "")
	}
	n.demand.Weighted = append(slices.Clone(weighted), Weighted{
		Namespace: "prod", Pod: "web-0", Container: "web", Cgroup: other, Disks: []blkio.Disk{vdb}, Weights: blkio.Weights{Default: 400},
	})
	n.put(pod+"/io.weight", "nonsense\n")
	const text = "skip cgroup " + pod + `: read io.weight: `
	var r *health.Weights
	for range 3 {
		r = n.pass()
	}
	n.want(filepath.Dir(other)+"/io.weight", "default 100\n254:16 400")
	if s := r.Shares; len(s) != 2 || s[0].Pod != "db-0" || !strings.HasPrefix(s[0].Reason, text) || s[1].Reason != "" || s[1].Share != 1 {
		t.Errorf("%+v", s)
	}
	if len(r.Skipped) != 1 || !strings.HasPrefix(r.Skipped[0], text) {
		t.Errorf("skipped %q", r.Skipped)
	}
	if entries := n.log.AllEntries(); len(entries) != 1 || !strings.HasPrefix(entries[0].Data["error"].(error).Error(), text) {
		t.Errorf("%d entries, the last one with %v", len(entries), n.log.LastEntry().Data["error"])
	}
	n.put(pod+"/io.weight", "default 100\n")
	if r = n.pass(); len(r.Skipped) != 0 || r.Shares[0].Reason != "" {
		t.Errorf("%+v", r)
	}
}

// TestManySkipped verifies that the report names a limited number of cgroups.
func TestManySkipped(t *testing.T) {
	now := divided{Result: shares.Result{Skipped: make([]shares.Skipped, maxSkipped+5)}}
	for i := range now.Skipped {
		now.Skipped[i] = shares.Skipped{Path: fmt.Sprint("pods/", i), Err: errors.New("no answer")}
	}
	got := report(&Demand{}, nil, &now).Skipped
	if len(got) != maxSkipped+1 || got[maxSkipped] != "and 5 more cgroups" {
		t.Errorf("%q", got)
	}
}

// TestNoRoom verifies that one line of the log has all disks for which the record has no room. The report has a
// row for each.
func TestNoRoom(t *testing.T) {
	states := []iocost.State{{Setup: iocost.Setup{Disk: dm0}, Err: errors.New("no answer")}}
	for i := range uint32(5) {
		disk := blkio.Disk{Dev: blkio.Dev{Major: 259, Minor: i}, Name: fmt.Sprintf("nvme%dn1", i)}
		states = append(states, iocost.State{Setup: iocost.Setup{Disk: disk}, Err: iocost.ErrNoRoom})
	}
	const want = "set up io.cost on disk dm-0 253:0: no answer\n" +
		"set up io.cost on disk nvme0n1 259:0, disk nvme1n1 259:1, disk nvme2n1 259:2, and 2 more: " +
		"no room for the disk in the record user.nri-blkio-iocost"
	if err := setUpError(states); err == nil || err.Error() != want || !errors.Is(err, iocost.ErrNoRoom) {
		t.Errorf("%v", err)
	}
	if err := setUpError(states[:0]); err != nil {
		t.Error(err)
	}
	for _, d := range report(&Demand{}, states, &divided{}).Disks[1:] {
		if d.Enabled || d.Error != iocost.ErrNoRoom.Error() {
			t.Errorf("%+v", d)
		}
	}
}

// TestSetFails verifies that a disk on which weights cannot be set has one line in the log, for any number of
// cgroups and any weights. The weights have no effect then.
func TestSetFails(t *testing.T) {
	n := newNode(t)
	n.demand.Weighted = weighted
	n.refuses = "io.weight 254:16 "
	var r *health.Weights
	for weight := range 3 {
		n.demand.Weighted = slices.Clone(weighted)
		n.demand.Weighted[0].Weights.Default += uint32(weight)
		r = n.pass()
	}
	const text = "set weights on 254:16: input/output error"
	if entries := n.log.AllEntries(); len(entries) != 1 || entries[0].Data["error"].(error).Error() != text {
		t.Errorf("%d entries, the last one with %v", len(entries), n.log.LastEntry().Data["error"])
	}
	if len(r.Shares) != 1 || r.Shares[0].Reason != text {
		t.Errorf("%+v", r.Shares)
	}
	n.refuses = ""
	if r = n.pass(); r.Shares[0].Reason != "" {
		t.Errorf("%+v", r.Shares)
	}
}

// TestRemovalFails verifies that a weight that cannot be removed when the last container with one has ended is
// removed by a later pass.
func TestRemovalFails(t *testing.T) {
	n := newNode(t)
	n.demand.Weighted = weighted
	n.pass()
	n.pass()
	n.demand.Weighted = nil
	n.now = n.now.Add(lingerFor)
	n.refuses = "io.weight 254:16 default"
	n.pass()
	n.want(slice+"/io.weight", "default 100\n254:16 300")
	n.refuses = ""
	n.pass()
	n.want(slice+"/io.weight", "default 100")
	n.want(pod+"/io.weight", "default 100")
}

// TestOffWhileIncomplete verifies that a decision of the operator does not wait for pods with an unknown
// demand. A tenant's volume that hangs can keep it unknown for ever.
func TestOffWhileIncomplete(t *testing.T) {
	n := newNode(t)
	n.demand.Weighted = weighted
	n.pass()
	n.pass()
	n.want("io.cost.qos", "254:16 enable=1 ctrl=auto")
	n.demand.Complete = false
	n.policy = policy.Default()
	n.policy.Disks = []policy.DiskRule{{Weights: policy.WeightsOff}}
	n.pass()
	n.want("io.cost.qos", "254:16 enable=0 ctrl=auto")
	n.want(slice+"/io.weight", "default 100")
}
