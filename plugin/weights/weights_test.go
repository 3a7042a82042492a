package weights

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/sirupsen/logrus/hooks/test"
	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
	"github.com/nri-blkio/nri-blkio/plugin/health"
	"github.com/nri-blkio/nri-blkio/plugin/iocost"
	"github.com/nri-blkio/nri-blkio/policy"
)

var (
	vda = blkio.Disk{Dev: blkio.Dev{Major: 254}, Name: "vda"}
	vdb = blkio.Disk{Dev: blkio.Dev{Major: 254, Minor: 16}, Name: "vdb"}
	dm0 = blkio.Disk{Dev: blkio.Dev{Major: 253}, Name: "dm-0"}
)

const (
	slice     = "kubepods.slice/kubepods-burstable.slice"
	pod       = slice + "/kubepods-burstable-pod1.slice"
	container = pod + "/cri-1.scope"
)

// weighted has the weights of the container.
var weighted = []Weighted{{
	Namespace: "prod", Pod: "db-0", Container: "db", Cgroup: container, Disks: []blkio.Disk{vdb}, Weights: blkio.Weights{Default: 300},
}}

// node is a node with one pod, whose cgroups are plain files.
type node struct {
	t       testing.TB
	dir     string
	keeper  *Keeper
	log     *test.Hook
	now     time.Time
	policy  *policy.Policy
	demand  Demand
	disks   []storage.DiskInfo
	fails   error // to list the disks
	noUdev  error
	hangs   func(data string) // called before each write, unless it is nil
	refuses string            // how "FILE LINE" begins that cannot be written, "" for none
	known   iocost.Known
	changes int
	bfq     map[blkio.Dev]bool // at the last change
	queue   []string           // writes
	noBFQ   error              // of writes to queues
	asked   int
}

func newNode(t testing.TB) *node {
	n := &node{t: t, dir: t.TempDir(), now: time.Unix(1000, 0), policy: policy.Default(), demand: Demand{Complete: true}}
	queue := storage.Queue{RequestBased: true}
	n.disks = []storage.DiskInfo{
		{Disk: dm0, Below: []blkio.Disk{vda, vdb}},
		{Disk: vda, Queue: queue},
		{Disk: vdb, Queue: queue},
		{Disk: blkio.Disk{Dev: blkio.Dev{Major: 252}, Name: "zram0"}},
	}
	n.put("cgroup.controllers", "io\n")
	n.put("io.cost.model", "")
	n.put("io.cost.qos", "")
	for p := container; p != "."; p = filepath.Dir(p) {
		n.put(p+"/io.weight", "default 100\n")
		n.put(p+"/io.stat", "")
	}
	n.put(container+"/io.weight", "default 300\n")
	tree, err := cgroupfs.OpenFake(n.dir, cgroupfs.Fake{Write: n.write})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tree.Close() })
	n.start(tree)
	return n
}

// start has another instance of the program take over.
func (n *node) start(tree *cgroupfs.Hierarchy) {
	log, hook := test.NewNullLogger()
	n.log = hook
	n.keeper = New(Config{
		Log: log, Cgroups: tree, Policy: func() *policy.Policy { return n.policy }, Demand: func() Demand { return n.demand },
		Disks: n, Changed: func(bfq map[blkio.Dev]bool) { n.changes++; n.bfq = bfq },
	})
}

func (n *node) Disks() ([]storage.DiskInfo, error) {
	n.asked++
	return n.disks, n.fails
}

func (n *node) Calibration(*storage.DiskInfo) (iocost.Known, error) { return n.known, nil }

func (n *node) Udev(*storage.DiskInfo) (iocost.Known, error) { return iocost.Known{}, n.noUdev }

// SetQueue is the kernel: with another scheduler than bfq it drops the weights of bfq.
func (n *node) SetQueue(dev blkio.Dev, file, value string) error {
	n.queue = append(n.queue, fmt.Sprint(dev, " ", file, " ", value))
	for i := range n.disks {
		if n.disks[i].Dev == dev && file == "scheduler" && n.noBFQ == nil {
			n.disks[i].Scheduler = value
		}
	}
	return n.noBFQ
}

func (n *node) put(name, text string) {
	n.t.Helper()
	file := filepath.Join(n.dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		n.t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) read(name string) string {
	n.t.Helper()
	data, err := os.ReadFile(filepath.Join(n.dir, name))
	if err != nil {
		n.t.Fatal(err)
	}
	return strings.TrimSpace(string(data))
}

// write is the kernel, but for the values that a line of io.cost does not name.
func (n *node) write(name, data string) error {
	if n.hangs != nil {
		n.hangs(data)
	}
	if n.refuses != "" && strings.HasPrefix(filepath.Base(name)+" "+data, n.refuses) {
		return unix.EIO
	}
	word, value, _ := strings.Cut(data, " ")
	dev, err := blkio.ParseDev(word)
	if err != nil {
		return unix.EINVAL
	}
	if base := filepath.Base(name); base != blkio.IOWeight && base != blkio.IOBFQWeight {
		var kept []string
		for line := range strings.Lines(n.read(name) + "\n") {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, word+" ") {
				kept = append(kept, line)
			}
		}
		n.put(name, strings.Join(append(kept, data), "\n")+"\n")
		return nil
	}
	weights, err := blkio.ParseIOWeight(n.read(name))
	if err != nil {
		return err
	}
	var weight uint32
	if value != "default" {
		if _, err := fmt.Sscan(value, &weight); err != nil {
			return unix.EINVAL
		}
	}
	n.put(name, weights.With(dev, weight).String())
	return nil
}

// pass is one pass, a second after the last one, in which the container has used vdb.
func (n *node) pass() *health.Weights {
	n.now = n.now.Add(time.Second)
	n.put("io.stat", vdb.Dev.String()+" rbytes=0 wbytes=0 rios=1 wios=0 dbytes=0 dios=0 cost.vrate=87.50 cost.usage=1\n")
	for p := container; p != "."; p = filepath.Dir(p) {
		n.put(p+"/io.stat", fmt.Sprintf("%s rbytes=0 wbytes=0 rios=%d wios=0 dbytes=0 dios=0\n", vdb.Dev, n.now.Unix()))
	}
	n.keeper.pass(n.now)
	return n.keeper.Report()
}

func (n *node) want(name, text string) {
	n.t.Helper()
	if got := n.read(name); got != text {
		n.t.Errorf("%s is %q, want %q", name, got, text)
	}
}

// TestPass verifies that io.cost is enabled while a container with a weight uses the disk, and the weights
// above it follow.
func TestPass(t *testing.T) {
	n := newNode(t)
	n.pass()
	n.want("io.cost.qos", "")
	n.demand.Weighted = weighted
	n.known.Model = &blkio.CostModel{Rbps: 1 << 20, RSeqIOPS: 100, RRandIOPS: 100, Wbps: 1 << 20, WSeqIOPS: 100, WRandIOPS: 100}
	n.pass()
	r := n.pass()
	n.want("io.cost.qos", "254:16 enable=1 ctrl=user rpct=0.00 rlat=250000 wpct=0.00 wlat=250000 min=100.00 max=100.00")
	n.want("io.cost.model", "254:16 ctrl=user model=linear "+n.known.Model.String())
	n.want(slice+"/io.weight", "default 100\n254:16 300")
	n.want(pod+"/io.weight", "default 100\n254:16 300")
	if n.changes != 1 {
		t.Errorf("%d changes of io.cost were reported, want 1", n.changes)
	}
	want := &health.Weights{
		Disks: []health.CostDisk{
			{Disk: "dm-0", Dev: "253:0", Reason: "io.cost works on the disks below: vda, vdb"},
			{Disk: "vda", Dev: "254:0", Reason: "no container with a weight uses the disk"},
			{Disk: "vdb", Dev: "254:16", Enabled: true, Model: "calibration", QOS: "fixed", Vrate: 87.5, Follow: &health.Follow{
				State: "pinned", Reason: "the calibration does not show a limit of operations and one of bytes",
			}},
			{Disk: "zram0", Dev: "252:0", Reason: "its driver has no queue of requests (blk-mq)"},
		},
		Shares: []health.Share{{Namespace: "prod", Pod: "db-0", Container: "db", Disk: "vdb", Weight: 300, Share: 1}},
	}
	if diff := cmp.Diff(want, r); diff != "" {
		t.Error(diff)
	}
	// Given to the pod as a whole.
	n.demand.Weighted = append(slices.Clone(weighted), Weighted{Namespace: "prod", Pod: "db-0", Cgroup: pod, Disks: []blkio.Disk{vdb}, Weights: blkio.Weights{Default: 50}})
	n.pass()
	n.want(slice+"/io.weight", "default 100\n254:16 50")
	// The last container with a weight ends.
	n.demand = Demand{Complete: true}
	n.now = n.now.Add(lingerFor)
	r = n.pass()
	n.want("io.cost.qos", "254:16 enable=0 ctrl=auto")
	n.want("io.cost.model", "254:16 ctrl=auto")
	n.want(slice+"/io.weight", "default 100")
	n.want(pod+"/io.weight", "default 100")
	if n.changes != 2 || len(r.Shares) != 0 || r.Disks[2].Vrate != 0 {
		t.Errorf("%d changes of io.cost were reported, want 2; report %+v", n.changes, r)
	}
	if len(n.log.AllEntries()) > 0 {
		t.Errorf("logged %q", n.log.LastEntry().Message)
	}
}

// TestRuleEnforces verifies that a weight that a rule enforces enables io.cost under mode: observe. It does not
// enforce the reserve, which is for all pods.
func TestRuleEnforces(t *testing.T) {
	n := newNode(t)
	n.policy.Reserve = 2500
	n.demand.Weighted = weighted
	n.pass()
	n.pass()
	n.want("kubepods.slice/io.weight", "default 100\n254:0 300\n254:16 300")
	n.policy = policy.Default()
	n.policy.Mode, n.policy.Reserve = policy.ModeObserve, 2500
	n.policy.Rules = []policy.Rule{{Mode: policy.ModeEnforce}}
	n.pass()
	n.want("io.cost.qos", "254:16 enable=1 ctrl=auto\n254:0 enable=0 ctrl=auto")
	n.want("kubepods.slice/io.weight", "default 100")
	n.want(slice+"/io.weight", "default 100\n254:16 300")
}

// TestFormerInstance verifies that the settings of an instance that ended are removed by the next one, once
// this knows that no pod has a weight.
func TestFormerInstance(t *testing.T) {
	n := newNode(t)
	n.demand.Weighted = weighted
	n.pass()
	n.pass()
	n.want(slice+"/io.weight", "default 100\n254:16 300")
	n.demand = Demand{} // the runtime has not listed its containers
	n.start(n.keeper.cfg.Cgroups)
	n.pass()
	n.want("io.cost.qos", "254:16 enable=1 ctrl=auto")
	n.want(slice+"/io.weight", "default 100\n254:16 300")
	n.demand.Unknown = "the runtime has not listed what runs"
	if d := n.pass().Disks; d[2].Kept != n.demand.Unknown || d[1].Kept != "" {
		t.Errorf("%+v", d)
	}
	n.demand = Demand{Complete: true}
	if d := n.pass().Disks[2]; d.Kept != "" || d.Enabled {
		t.Errorf("%+v", d)
	}
	n.want("io.cost.qos", "254:16 enable=0 ctrl=auto")
	n.want(slice+"/io.weight", "default 100")
}

// TestSwappedDisk verifies that a disk that comes under the number of another one gets its own model. Settings
// of another program on it stay when the last container with a weight ends.
func TestSwappedDisk(t *testing.T) {
	n := newNode(t)
	n.disks[2].Seq = 7
	n.demand.Weighted = weighted
	n.pass()
	n.want("io.cost.qos", "254:16 enable=1 ctrl=auto")
	n.disks[2].Seq = 9
	n.put("io.cost.qos", "254:16 enable=1 ctrl=user rpct=0.00 rlat=0 wpct=0.00 wlat=0 min=50.00 max=100.00\n")
	n.now = n.now.Add(setUpEvery)
	if r := n.pass(); r.Disks[2].QOS != string(iocost.Foreign) {
		t.Errorf("%+v", r.Disks[2])
	}
	n.demand.Weighted = nil
	n.now = n.now.Add(lingerFor)
	n.pass()
	n.want("io.cost.qos", "254:16 enable=1 ctrl=user rpct=0.00 rlat=0 wpct=0.00 wlat=0 min=50.00 max=100.00")
}

func TestIdentity(t *testing.T) {
	for _, tt := range []struct {
		disk storage.DiskInfo
		want string
	}{
		{storage.DiskInfo{Seq: 7, Drive: storage.Drive{Serial: "S"}}, "diskseq 7"},
		{storage.DiskInfo{Drive: storage.Drive{Serial: "S", WWID: "W"}}, "S"},
		{storage.DiskInfo{Drive: storage.Drive{WWID: "W"}}, "W"},
		{storage.DiskInfo{}, ""},
	} {
		if got := identity(&tt.disk); got != tt.want {
			t.Errorf("%+v: %q", tt.disk, got)
		}
	}
}

// TestQuestions verifies that disks are listed when something has changed, and at times.
func TestQuestions(t *testing.T) {
	n := newNode(t)
	for range 5 {
		n.pass()
	}
	if n.asked != 1 {
		t.Errorf("disks were listed %d times, want 1", n.asked)
	}
	n.policy = policy.Default()
	n.policy.Disks = []policy.DiskRule{{Weights: policy.WeightsOn}}
	n.pass()
	n.want("io.cost.qos", "254:0 enable=1 ctrl=auto\n254:16 enable=1 ctrl=auto")
	n.put("io.cost.qos", "254:0 enable=0 ctrl=auto\n254:16 enable=1 ctrl=auto\n") // another program
	n.pass()
	if n.asked != 2 {
		t.Errorf("disks were listed %d times, want 2", n.asked)
	}
	n.now = n.now.Add(setUpEvery)
	n.pass()
	n.want("io.cost.qos", "254:16 enable=1 ctrl=auto\n254:0 enable=1 ctrl=auto")
}

func TestRun(t *testing.T) {
	n := newNode(t)
	n.demand.Weighted = weighted
	ctx, cancel := context.WithCancel(t.Context())
	n.keeper.cfg.Changed = func(map[blkio.Dev]bool) { cancel() }
	n.keeper.Run(ctx) // returns after its first pass
	n.want("io.cost.qos", "254:16 enable=1 ctrl=auto")
}

// TestForeignEnabled verifies the case that another program has enabled io.cost on a disk, and the disk's rule
// has weights: off. The weights of pods are not kept there, and the report shows that they have no effect.
func TestForeignEnabled(t *testing.T) {
	n := newNode(t)
	n.put("io.cost.qos", "254:16 enable=1 ctrl=auto\n")
	n.policy.Disks = []policy.DiskRule{{Weights: policy.WeightsOff}}
	n.demand.Weighted = weighted
	n.pass()
	r := n.pass()
	n.want("io.cost.qos", "254:16 enable=1 ctrl=auto")
	n.want(slice+"/io.weight", "default 100")
	if d := r.Disks[2]; !d.Enabled || d.QOS != string(iocost.Foreign) || len(r.Shares) != 1 || !strings.Contains(r.Shares[0].Reason, "weights: off") || !r.Shares[0].Chosen {
		t.Errorf("%+v", r)
	}
	// Without a rule, and a container with a weight: they are.
	n.policy = policy.Default()
	n.pass()
	if n.pass(); n.read("io.cost.qos") != "254:16 enable=1 ctrl=auto" {
		t.Errorf("io.cost.qos is %q", n.read("io.cost.qos"))
	}
	n.want(slice+"/io.weight", "default 100\n254:16 300")
	// Without a container with a weight: they are not.
	n.demand.Weighted = nil
	n.now = n.now.Add(lingerFor)
	n.pass()
	n.want("io.cost.qos", "254:16 enable=1 ctrl=auto")
	n.want(slice+"/io.weight", "default 100")
}
