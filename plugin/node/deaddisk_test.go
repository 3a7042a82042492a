package node

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"
)

// modelHung is the number of pods with a volume on a disk that does not answer. It is larger than the number of groups that are
// reconciled at the same time.
const modelHung = 60

// deadDisk is a node with a pod on a healthy disk, and pods on a disk that does not answer.
type deadDisk struct {
	*modelRuntime
	rng     *rand.Rand
	healthy *modelPod
	hung    []*modelPod
}

func newDeadDisk(t *testing.T, seed uint64, entry string) *deadDisk {
	r := newModelRuntime(t)
	r.pods = make([]*modelPod, modelHung+1)
	d := &deadDisk{modelRuntime: r, rng: rand.New(rand.NewPCG(seed, 1))}
	for i := range r.pods {
		p := r.addPod(i, d.rng)
		p.spec = modelSpec{annotations: map[string]string{limitsKey + "containers": entry}}
		if p.annotations = p.spec.annotations; i > 0 {
			p.spec.slow = fmt.Sprint("/mnt/slow/", i)
			d.hung = append(d.hung, p)
		}
		p.current().reported = p.annotations
	}
	d.healthy = r.pods[0]
	return d
}

// create makes the container of a pod.
func (d *deadDisk) create(p *modelPod) *modelContainer {
	name := "a"
	if p != d.healthy {
		name = slowName
	}
	c, _ := d.createContainer(p, p.current(), name)
	return c
}

// want waits until the healthy pod has its limit. Until then the reconciler must not have given up waiting for any of the other pods.
func (d *deadDisk) want(when string) {
	d.t.Helper()
	cgroup := d.healthy.current().containers[0].cgroup
	for began := time.Now(); len(finiteLimits(d.k.has(cgroup))) == 0; time.Sleep(time.Millisecond) {
		if time.Since(began) > time.Hour {
			d.t.Fatalf("%s: no limit after an hour", when)
		}
	}
	calls, late := d.plugin.inFlight.passes.Count(), 0
	for _, p := range d.hung {
		if d.plugin.pods.problemLasts(d.plugin.peek().pods[p.current().id].group) {
			late++
		}
	}
	if late > 0 {
		d.t.Errorf("%s: the limit came after the reconciler had waited in vain for %d pods (%d calls are under way)", when, late, calls)
	}
}

// TestDeadDiskDelaysNoOther verifies that a pod that started while no plugin was there has its limits while all pods of another
// disk hang.
func TestDeadDiskDelaysNoOther(t *testing.T) {
	for seed := range uint64(3) {
		synctest.Test(t, func(t *testing.T) {
			d := newDeadDisk(t, seed, "* wbps=1Mi")
			for _, p := range d.hung {
				d.k.hang(p.spec.slow)
			}
			for _, p := range d.pods {
				c := d.create(p) // no plugin is there
				d.place(c, true)
				c.state = modelRunning
			}
			d.restart()
			defer d.end()
			d.connect()
			d.want("a start")
		})
	}
}

// TestDeadDiskDelaysNoUpdate verifies that a limit that an update of a container reverts is restored while all pods of another disk
// hang, which are decided by a new policy.
func TestDeadDiskDelaysNoUpdate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDeadDisk(t, 1, "rootfs wbps=1Mi")
		d.restart()
		defer d.end()
		d.connect()
		for _, p := range d.pods {
			c := d.create(p)
			d.startContainer(p, c, d.rng)
			c.state = modelRunning
		}
		time.Sleep(time.Minute)
		for _, p := range d.hung {
			d.k.hang(p.spec.slow)
		}
		d.reload(rules(t, "rules: [{name: all, class: bronze}]\n"))
		time.Sleep(200 * time.Millisecond)
		d.k.unplug(dataDisk.Dev) // their limits are gone
		d.k.unplug(rootDisk.Dev)
		d.plugin.Updated(d.healthy.current().id)
		d.want("an update")
	})
}
