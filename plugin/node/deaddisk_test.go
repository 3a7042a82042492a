package node

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/blkio"
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
		if d.plugin.hasProblem(p.current().id) {
			late++
		}
	}
	if late > 0 {
		d.t.Errorf("%s: the limit came after the reconciler had waited in vain for %d pods (%d calls are under way)", when, late, calls)
	}
}

// hasProblem reports whether the last try to put the limits of a pod into force has failed.
func (n *Node) hasProblem(sandbox string) bool {
	s := n.state.Lock()
	defer n.state.Unlock()
	return s.pods[sandbox].group.in(s).retry.err != nil
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

// TestHungReadDelaysNoOther verifies that the other pods are compared with their cgroups while a read of one pod's cgroups hangs, that
// the read becomes known as a problem, and that it does not keep the reconciler from returning.
func TestHungReadDelaysNoOther(t *testing.T) {
	l := newLiveNode(t)
	l.resync = 50 * time.Millisecond
	annotations := annotationsOf(limitsKey+"containers", "rootfs wbps=2Mi")
	l.run(sandbox(annotations), "a", "b")
	other, c := sandbox(annotations), ctr("c")
	other.ID, other.UID, other.Cgroup, c.Cgroup = "sb2", "u2", "/kubepods.slice/kubepods-pod2.slice", "kubepods-pod2.slice:cri-containerd:id-c"
	c.Sandbox = other.ID
	cgroup := "kubepods.slice/kubepods-pod2.slice/cri-containerd-id-c.scope"
	l.k.make(filepath.Dir(cgroup), true)
	l.k.make(cgroup, true)
	if err := l.start(t.Context(), other, c, true); err != nil {
		t.Fatal(err)
	}
	l.pass(t.Context())
	l.pass(t.Context())
	hung, file := filepath.Join(l.k.dir, "pipe"), filepath.Join(l.k.dir, cgroupOf("a"), "io.max")
	if err := errors.Join(unix.Mkfifo(hung, 0o600), os.Remove(file), os.Link(hung, file)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		l.reconcile(ctx)
	}()
	until := func(what string, holds func() bool) {
		t.Helper()
		for began := time.Now(); !holds(); time.Sleep(time.Millisecond) {
			if time.Since(began) > time.Minute {
				t.Fatalf("%s: not within a minute", what)
			}
		}
	}
	until("the problem is known", func() bool { return l.hasProblem("sb1") })
	l.k.unplug(rootDisk.Dev)
	until("the other pod has its limit again", func() bool { return finite(l.k.has(cgroup)[rootDisk.Dev])[blkio.Wbps] == 2*mi })
	cancel()
	until("the reconciler returns", func() bool {
		select {
		case <-returned:
			return true
		default:
			return false
		}
	})
	writer, err := unix.Open(hung, unix.O_WRONLY|unix.O_NONBLOCK, 0) // ends the read
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(writer)
	until("the read ends", func() bool { return len(l.peek().pods["sb1"].group.token) == 0 })
}
