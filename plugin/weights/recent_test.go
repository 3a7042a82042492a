package weights

import (
	"strings"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
	"github.com/nri-blkio/nri-blkio/policy"
)

// TestLingers verifies that containers with a weight that run one after the other have io.cost enabled once. It
// is disabled some time after the last one.
func TestLingers(t *testing.T) {
	n := newNode(t)
	writes := 0
	n.hangs = func(data string) {
		if strings.Contains(data, "enable=") {
			writes++
		}
	}
	for range 5 {
		n.demand.Weighted = weighted
		n.pass()
		n.demand.Weighted = nil
		n.now = n.now.Add(lingerFor - 3*time.Second)
		n.pass()
		n.want("io.cost.qos", "254:16 enable=1 ctrl=auto")
	}
	if writes != 1 {
		t.Errorf("io.cost was written %d times", writes)
	}
	n.now = n.now.Add(3 * time.Second)
	n.pass()
	n.want("io.cost.qos", "254:16 enable=0 ctrl=auto")
	n.want(slice+"/io.weight", "default 100")
}

// TestReplacedWhileLingering verifies that a disk that comes in the place of another one, with its number and
// name, does not inherit the weight that has ended.
func TestReplacedWhileLingering(t *testing.T) {
	for name, tt := range map[string]struct {
		weighted []Weighted // after the disk was replaced
		want     string
	}{
		"unused": {nil, ""},
		"used":   {weighted, "254:16 enable=1 ctrl=auto"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.disks[2].Seq = 7
			n.demand.Weighted = weighted
			n.pass()
			n.want("io.cost.qos", "254:16 enable=1 ctrl=auto")
			n.demand.Weighted = nil
			n.pass()
			n.disks[2].Seq = 9
			n.put("io.cost.qos", "")    // the kernel has forgotten it with the disk
			n.policy = policy.Default() // has the disks listed
			n.demand.Weighted = tt.weighted
			n.pass()
			n.want("io.cost.qos", tt.want)
			n.pass()
			n.want("io.cost.qos", tt.want)
		})
	}
}

// TestLingersUnidentified verifies that where the kernel does not identify disks, number and name do.
func TestLingersUnidentified(t *testing.T) {
	r := recent{}
	disks := []storage.DiskInfo{{Disk: vdb}}
	now := time.Unix(1000, 0)
	r.disks(now, &Demand{Weighted: weighted})
	for range 2 {
		r.identify(now, disks)
		now = now.Add(time.Second)
		if got := r.identify(now, disks); len(got) != 1 || got[0] != vdb {
			t.Errorf("on %v", got)
		}
	}
}

// TestDoesNotLinger verifies that a decision of an operator is carried out at once.
func TestDoesNotLinger(t *testing.T) {
	for name, decide := range map[string]func(*node){
		"cleared": func(n *node) { n.demand.Cleared = []blkio.Disk{vdb} },
		"weights: off": func(n *node) {
			n.policy = policy.Default()
			n.policy.Disks = []policy.DiskRule{{Weights: policy.WeightsOff}}
		},
		"mode: observe": func(n *node) {
			n.policy = policy.Default()
			n.policy.Mode = policy.ModeObserve
		},
	} {
		n := newNode(t)
		n.demand.Weighted = weighted
		n.pass()
		n.want("io.cost.qos", "254:16 enable=1 ctrl=auto")
		n.demand.Weighted = nil
		decide(n)
		n.pass()
		if got := n.read("io.cost.qos"); got != "254:16 enable=0 ctrl=auto" {
			t.Errorf("%s: io.cost.qos is %q", name, got)
		}
	}
}
