package weights

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/diskmodel"
	"github.com/nri-blkio/nri-blkio/internal/fakenode"
	"github.com/nri-blkio/nri-blkio/plugin/health"
	"github.com/nri-blkio/nri-blkio/policy"
)

// The disk of these tests does 1,500 operations and 60 MiB a second.
var (
	twoLimits = diskmodel.Limits{Ops: 1500, Bytes: 60 << 20}
	safeModel = blkio.CostModel{Rbps: 61027123, RSeqIOPS: 1455, RRandIOPS: 1455, Wbps: 61027123, WSeqIOPS: 1455, WRandIOPS: 1455}
	safeLine  = "254:16 ctrl=user model=linear " + safeModel.String()
)

const other = slice + "/kubepods-burstable-pod2.slice/cri-2.scope"

// twoLimitsNode is a node with a container that reads as fast as io.cost lets it.
type twoLimitsNode struct {
	*node
	size     float64            // of what the container reads
	rates    map[string]float64 // operations of 4 KiB in a second of others
	counters map[string]*blkio.Stat
	isIdle   bool
	passDue  time.Time
}

// inBubble runs a test with a node, in time that passes only in sleep.
func inBubble(t *testing.T, test func(n *twoLimitsNode)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := &twoLimitsNode{node: newNode(t), size: 32 << 10, rates: map[string]float64{}, counters: map[string]*blkio.Stat{}}
		n.demand.Weighted = weighted
		n.known.Model, n.known.Limits = &safeModel, &twoLimits
		n.known.QOS = &blkio.CostQOS{RPct: 5000, RLat: 4300 * time.Microsecond, Min: 10000, Max: 10000}
		n.put("io.stat", "")
		for _, p := range []string{filepath.Dir(other), other} {
			n.put(p+"/io.weight", "default 100\n")
			n.put(p+"/io.stat", "")
		}
		test(n)
	})
}

// sleep lets the Keeper and the disk work for some time.
func (n *twoLimitsNode) sleep(d time.Duration) {
	const step = 250 * time.Millisecond
	for end := time.Now().Add(d); time.Now().Before(end); {
		time.Sleep(step)
		if !n.isIdle {
			n.work(step.Seconds())
		}
		if !time.Now().Before(n.keeper.follower.due(n.passDue)) {
			n.passDue = n.keeper.turn(time.Now(), n.passDue)
		}
	}
}

// work does the I/O of some time: the others by their rates, and the container what the model in force leaves of the disk.
func (n *twoLimitsNode) work(seconds float64) {
	model := safeModel
	if lines, err := blkio.ParseIOCostModel(n.read("io.cost.model")); err == nil && lines[vdb.Dev].IsUser {
		model = lines[vdb.Dev].Model
	}
	costs, _ := fakenode.RandomOf(model)
	left := 1.0
	for cgroup, rate := range n.rates {
		n.count(cgroup, rate*seconds, 4096, rate*seconds/costs.IOPS(4096))
		left -= rate / costs.IOPS(4096)
	}
	ops := min(left*costs.IOPS(int(n.size)), twoLimits.Ops, twoLimits.Bytes/n.size) * seconds
	n.count(container, ops, n.size, ops/costs.IOPS(int(n.size)))
}

// count adds I/O of a cgroup to io.stat, also of those above.
func (n *twoLimitsNode) count(cgroup string, ops, size, cost float64) {
	for p := cgroup; ; p = filepath.Dir(p) {
		if n.counters[p] == nil {
			n.counters[p] = &blkio.Stat{}
		}
		c := n.counters[p]
		c.Rios, c.Rbytes, c.CostUsage = c.Rios+uint64(ops), c.Rbytes+uint64(ops*size), c.CostUsage+uint64(1e6*cost)
		n.put(p+"/io.stat", vdb.Dev.String()+" "+c.String()+"\n")
		if p == "." {
			return
		}
	}
}

// await waits until the model is moved, or is not.
func (n *twoLimitsNode) await(moved bool, within time.Duration) {
	n.t.Helper()
	is := func() bool {
		line := n.read("io.cost.model")
		return strings.Contains(line, "model=linear") && line != safeLine
	}
	for end := time.Now().Add(within); is() != moved; n.sleep(250 * time.Millisecond) {
		if time.Now().After(end) {
			n.t.Fatalf("moved is not %v within %v: io.cost.model has %q, %+v", moved, within, n.read("io.cost.model"), n.follow())
		}
	}
}

func (n *twoLimitsNode) follow() *health.Follow {
	for _, d := range n.keeper.Report().Disks {
		if d.Disk == "vdb" {
			return d.Follow
		}
	}
	return nil
}

// messages returns the lines of the log.
func (n *twoLimitsNode) messages() (out []string) {
	for _, e := range n.log.AllEntries() {
		line := fmt.Sprint(e.Level, " ", e.Message)
		if err := e.Data["error"]; err != nil {
			line += fmt.Sprint(": ", err)
		}
		out = append(out, line)
	}
	return out
}

// TestFollow verifies that the model moves for a container that waits, stays so through the comparisons of the setup, and
// is the safe one a second after another container begins.
func TestFollow(t *testing.T) {
	inBubble(t, func(n *twoLimitsNode) {
		n.sleep(5 * time.Second)
		n.want("io.cost.model", safeLine)
		if f := n.follow(); f == nil || f.State != "safe" || !strings.Contains(f.Reason, "known for less than 10 seconds") {
			t.Errorf("%+v", f)
		}
		n.await(true, 20*time.Second)
		moved := n.read("io.cost.model")
		before := n.counters[container].Rios
		n.sleep(2 * setUpEvery)
		n.want("io.cost.model", moved)
		if rate := float64(n.counters[container].Rios-before) / (2 * setUpEvery).Seconds(); rate < .9*twoLimits.Ops {
			t.Errorf("%.0f reads a second", rate)
		}
		if f := n.follow(); f.State != "moved" || !strings.HasPrefix(f.Reason, "container prod/db-0 db wait for io.cost") || !strings.HasSuffix(moved, f.Model) {
			t.Errorf("%+v, %q", f, moved)
		}
		n.rates[other] = 40
		n.await(false, time.Second)
		n.sleep(5 * time.Second)
		if f := n.follow(); f.State != "safe" || !strings.HasPrefix(f.Reason, "cgroup "+other+" began to use the disk") || f.Model != "" {
			t.Errorf("%+v", f)
		}
		if got := n.messages(); len(got) != 2 || !strings.HasPrefix(got[0], "info Change the model of io.cost: container prod/db-0 db wait") || !strings.Contains(got[1], "began to use the disk") {
			t.Errorf("logged %q", got)
		}
	})
}

// TestFollowEnds verifies what puts the safe model into force: the end of the program, the policy, the first pass after a crash, also if
// nothing is known of pods yet, and a disk in the place of another one.
func TestFollowEnds(t *testing.T) {
	pinned := policy.Default()
	pinned.Disks = []policy.DiskRule{{Weights: policy.WeightsAuto, Follow: policy.FollowOff}}
	for name, end := range map[string]func(n *twoLimitsNode){
		"the program ends": func(n *twoLimitsNode) {
			ctx, cancel := context.WithCancel(n.t.Context())
			cancel()
			n.keeper.Run(ctx)
		},
		"policy": func(n *twoLimitsNode) {
			n.policy = pinned
			n.sleep(passEvery + time.Second)
			if f := n.follow(); f.State != health.ModelPinned || !strings.Contains(f.Reason, "follow: off") {
				n.t.Errorf("%+v", f)
			}
		},
		"crash": func(n *twoLimitsNode) {
			n.demand = Demand{}
			n.start(n.keeper.cfg.Cgroups)
			n.keeper.pass(time.Now())
			n.want("io.cost.qos", "254:16 enable=1 ctrl=user "+n.known.QOS.String())
		},
		"another disk": func(n *twoLimitsNode) {
			n.disks[2].Seq = 9
			n.await(false, setUpEvery+passEvery)
		},
		"another calibration": func(n *twoLimitsNode) {
			n.known.Limits = nil
			n.await(false, setUpEvery+passEvery)
		},
		"no disk": func(n *twoLimitsNode) {
			n.disks = n.disks[:2]
			n.sleep(setUpEvery + passEvery)
			n.want("io.cost.model", "254:16 ctrl=auto")
			n.put("io.cost.model", safeLine)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(n *twoLimitsNode) {
				n.await(true, 20*time.Second)
				end(n)
				n.want("io.cost.model", safeLine)
				for _, m := range n.messages() {
					if !strings.HasPrefix(m, logrus.InfoLevel.String()) {
						t.Errorf("logged %q", m)
					}
				}
			})
		})
	}
}

// TestFollowFails verifies that a model that cannot be written, and one that hangs, leave the safe model, with one try in ten minutes.
func TestFollowFails(t *testing.T) {
	for name, fail := range map[string]func(n *twoLimitsNode, release chan struct{}){
		"refused": func(n *twoLimitsNode, _ chan struct{}) { n.refuses = "io.cost.model 254:16 " },
		"hangs": func(n *twoLimitsNode, release chan struct{}) {
			n.hangs = func(data string) {
				if strings.Contains(data, "model=linear") && !strings.Contains(data, safeModel.String()) {
					<-release
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(n *twoLimitsNode) {
				n.sleep(5 * time.Second)
				release := make(chan struct{})
				fail(n, release)
				n.sleep(time.Minute)
				n.want("io.cost.model", safeLine)
				var tries int
				for _, m := range n.messages() {
					if strings.Contains(m, "does not follow") {
						tries++
					}
				}
				if tries != 1 {
					t.Errorf("%d tries: %q", tries, n.messages())
				}
				if f := n.follow(); f == nil || f.State != "safe" || f.Reason == "" {
					t.Errorf("%+v", f)
				}
				n.refuses = ""
				close(release)
				n.sleep(setUpEvery + passAtMost) // what hung is written late, and replaced
				n.want("io.cost.model", safeLine)
			})
		})
	}
}

// TestFollowUnreadable verifies that the safe model is in force while the use of the disk cannot be read.
func TestFollowUnreadable(t *testing.T) {
	inBubble(t, func(n *twoLimitsNode) {
		n.await(true, 20*time.Second)
		n.put("kubepods.slice/io.stat", "nonsense\n")
		n.isIdle = true
		n.await(false, time.Second)
	})
}
