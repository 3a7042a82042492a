package weights

import (
	"fmt"
	"path"
	"syscall"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// benchPods is the number of pods in BenchmarkPass, each with a container that has a weight.
const benchPods = 250

// BenchmarkPass measures a pass without the question for the demand of pods. A pass compares io.cost where that
// is due, computes the weights above containers, and makes the report. The cgroups are plain files:
// TMPDIR=/dev/shm has them in memory. It reports the CPU time as well, which a busy machine hardly changes.
func BenchmarkPass(b *testing.B) {
	for _, active := range []int{0, 25, 250} {
		b.Run(fmt.Sprintf("%d active", active), func(b *testing.B) {
			n := newNode(b)
			paths := n.addPods()
			n.put("io.stat", vdb.Dev.String()+" rbytes=0 wbytes=0 rios=1 wios=0 dbytes=0 dios=0 cost.vrate=100.00 cost.usage=1\n")
			n.keeper.pass(n.now) // enables io.cost
			var cpu time.Duration
			for i := 0; b.Loop(); i++ {
				b.StopTimer()
				for _, p := range paths[:active] {
					for ; p != "."; p = path.Dir(p) {
						n.put(p+"/io.stat", fmt.Sprintf("%s rbytes=%d wbytes=0 rios=%d wios=0 dbytes=0 dios=0\n", vdb.Dev, i, i))
					}
				}
				n.now = n.now.Add(passEvery)
				b.StartTimer()
				began := cpuTime(b)
				n.keeper.pass(n.now)
				cpu += cpuTime(b) - began
			}
			b.ReportMetric(float64(cpu)/float64(b.N), "cpu-ns/op")
			if r := n.keeper.Report(); len(r.Shares) != benchPods || r.Shares[0].Reason != "" {
				b.Errorf("%d shares, %+v", len(r.Shares), r.Shares)
			}
			for _, e := range n.log.AllEntries() {
				b.Errorf("logged %q: %v", e.Message, e.Data)
			}
		})
	}
}

// addPods adds pods with a sandbox each and a container with a weight, and returns the paths of the
// containers.
func (n *node) addPods() (containers []string) {
	for i := range benchPods {
		pod := fmt.Sprintf("%s/kubepods-burstable-podb%d.slice", slice, i)
		container := pod + "/cri-app.scope"
		for _, p := range []string{pod, pod + "/cri-sandbox.scope", container} {
			n.put(p+"/io.weight", "default 100\n")
			n.put(p+"/io.stat", "")
		}
		containers = append(containers, container)
		n.demand.Weighted = append(n.demand.Weighted, Weighted{
			Namespace: "prod", Pod: fmt.Sprint("app-", i), Container: "app", Cgroup: container, Disks: []blkio.Disk{vdb}, Weights: blkio.Weights{Default: 50},
		})
	}
	return containers
}

// cpuTime returns the processor time of this process.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
