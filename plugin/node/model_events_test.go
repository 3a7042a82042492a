package node

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/enforce/plan"
)

// modelEvent is one random event. Its effect depends on the state that it meets, and on its own random numbers.
// So a seed always gives the same events.
type modelEvent struct {
	slot int // of the pod, or -1 for the node's
	rng  *rand.Rand
}

// drawEvents draws the events of one round.
func drawEvents(rng *rand.Rand, n int) []modelEvent {
	out := make([]modelEvent, n)
	busiest := rng.IntN(modelSlots)
	for i := range out {
		slot := rng.IntN(modelSlots+2) - 2
		switch rng.IntN(8) {
		case 0, 1:
			slot = busiest
		case 2:
			slot = borrowingSlot + i%2
		}
		out[i] = modelEvent{max(slot, -1), rand.New(rand.NewPCG(rng.Uint64(), rng.Uint64()))}
	}
	return out
}

// pause lets other goroutines run: by the clock, or not at all.
func pause(rng *rand.Rand) {
	if rng.IntN(2) == 0 {
		time.Sleep(time.Duration(rng.IntN(8)) * 5 * time.Millisecond)
	}
}

// do makes an event happen.
func (r *modelRuntime) do(e modelEvent) {
	pause(e.rng)
	defer r.checkSums()
	if e.slot < 0 {
		r.doNode(e.rng)
		return
	}
	p := r.pods[e.slot]
	if p == nil {
		p = r.addPod(e.slot, e.rng)
		r.note("%s: new pod %v", p.name, p.spec.annotations)
		if e.slot == lendingSlot {
			r.editClaim(p, e.rng)
		}
	}
	if r.lendsToNone(p) {
		r.removePod(p, e.rng)
		return
	}
	sb := p.current()
	switch n := e.rng.IntN(100); {
	case n < 40:
		r.createOrStart(p, sb, e.rng, n < 30)
	case n < 60:
		if of := r.in(sb, modelRunning, modelCreated); len(of) > 0 {
			r.stopContainer(p, of[e.rng.IntN(len(of))], e.rng)
		}
	case n < 70:
		for _, c := range r.in(sb, modelExited) {
			r.removeContainer(p, c, e.rng)
		}
	case n < 73:
		r.update(p, sb, e.rng)
	case n < 84:
		r.edit(p, e.rng)
	case n < 87:
		switch {
		case r.calm:
		case e.rng.IntN(2) == 0:
			r.drift(p, sb, e.rng)
		default:
			r.use(p, sb, e.rng)
		}
	case n < 92:
		r.replaceSandbox(p, e.rng)
	case n < 95:
		r.collectGarbage(p, e.rng)
	default:
		r.removePod(p, e.rng)
	}
}

// doNode makes an event happen that does not belong to one pod.
func (r *modelRuntime) doNode(rng *rand.Rand) {
	n := rng.IntN(100)
	if r.calm {
		n = 30 + n*42/100
	}
	switch {
	case n < 12:
		r.note("disconnect")
		r.disconnect()
	case n < 30:
		r.note("connect")
		r.connect()
	case n < 40:
		pol := modelPolicies(rng)
		r.note("reload: mode %s, onError %v, floors %v, writeback %v, budgets %d", pol.Mode, pol.OnError, pol.Floors, pol.Writeback, len(pol.Budgets))
		for _, rule := range pol.Rules {
			r.note("  rule %s: mode %s, class %v, annotations %s", rule.Name, rule.Mode, rule.Class, rule.Annotations)
		}
		r.reload(pol)
	case n < 48:
		disk := []blkio.Dev{rootDisk.Dev, dataDisk.Dev, thirdDisk.Dev}[rng.IntN(3)]
		r.note("disk %s comes back without limits", disk)
		r.replug(disk)
	case n < 50:
		r.mount()
	case n < 52:
		r.now().MountsChanged()
	case n < 57:
		r.now().DisksChanged()
	case n < 62:
		r.editNamespace(rng)
	case n < 72:
		out := make(chan prometheus.Metric, 2000)
		r.now().Collect(out)
	case n < 79:
		r.hang(rng)
	case n < 82:
		r.clear(rng)
	case n < 86:
		r.fault(rng)
	case n < 89:
		r.note("all disks answer")
		r.heal()
	case n < 93:
		r.failWatch(rng)
	case n < 96:
		r.note("the mount table cannot be read")
		r.mu.Lock()
		r.broken = true
		r.mu.Unlock()
		r.disks.BreakTable(unix.EIO)
	default:
		r.note("restart of the plugin")
		r.restart()
	}
}

func (r *modelRuntime) now() *Node {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.plugin
}

// replug is a disk that goes away and comes back, and the kernel's report of that.
func (r *modelRuntime) replug(disk blkio.Dev) {
	r.mu.Lock()
	r.epoch++
	n := r.plugin
	r.k.Unplug(disk)
	r.mu.Unlock()
	n.DisksChanged()
}

// hang makes one thing of one slow pod hang: its volume, a cgroup, or a sync.
func (r *modelRuntime) hang(rng *rand.Rand) {
	slot := rng.IntN((modelSlots+3)/4) * 4
	r.mu.Lock()
	p := r.pods[slot]
	place := "sync /mnt/data"
	if p != nil && p.spec.slow != "" {
		switch places := []string{p.spec.slow, p.spec.slow, p.cgroup, place}; rng.IntN(5) {
		case 4:
			for _, sb := range p.sandboxes { // none while the pod is removed
				for _, c := range sb.containers {
					place = c.cgroup
				}
			}
		default:
			place = places[rng.IntN(4)]
		}
	}
	r.mu.Unlock()
	r.note("%s hangs", place)
	r.k.Hang(place)
	r.disks.Hang(place)
}

// createOrStart starts a container that was created, or creates one and maybe starts it.
func (r *modelRuntime) createOrStart(p *modelPod, sb *modelSandbox, rng *rand.Rand, both bool) {
	created := r.in(sb, modelCreated)
	if len(created) > 0 {
		r.startContainer(p, created[0], rng)
		return
	}
	if p.spec.moves && len(r.in(sb, modelRunning)) == 0 && rng.IntN(2) == 0 {
		p.data = map[string]string{"/mnt/data/x": "/mnt/third/x", "/mnt/third/x": "/mnt/data/x"}[p.data]
	}
	name := modelNames[rng.IntN(len(modelNames))]
	if p.spec.slow != "" && rng.IntN(3) == 0 {
		name = slowName
	}
	for _, c := range r.in(sb, modelRunning) {
		if c.name == name {
			return
		}
	}
	c, ok := r.createContainer(p, sb, name)
	if ok && both {
		pause(rng)
		r.startContainer(p, c, rng)
	}
}

func (r *modelRuntime) createContainer(p *modelPod, sb *modelSandbox, name string) (*modelContainer, bool) {
	r.mu.Lock()
	r.ids++
	c := &modelContainer{id: strings.Join([]string{"c", name, p.uid, sb.id, strconv.Itoa(r.ids)}, "-"), name: name, sandbox: sb, data: p.data, unified: map[string]string{}}
	c.propagates = p.spec.propagates
	c.below = c.propagates && r.mounted
	c.cgroup = p.cgroup + "/cri-containerd-" + c.id + ".scope"
	r.mu.Unlock()
	refused := false
	r.deliver(func(s *session) {
		adjust, err := s.createUnder(context.Background(), p.sandbox(sb), p.container(c), r.crio)
		refused = err != nil
		maps.Copy(c.unified, plan.Unified(adjust))
		c.mark = plan.Mark(c.id, adjust)
		r.mu.Lock()
		defer r.mu.Unlock()
		sb.told = true
		if !refused { // listed from now on, and not before
			r.list(c)
		}
	})
	r.note("%s: create %s, refused %v, spec %q", p.name, c.id, refused, c.unified)
	if refused {
		// containerd undoes it.
		r.deliver(func(s *session) { s.StopContainer(p.sandbox(sb), p.container(c)) })
		r.deliver(func(s *session) { s.RemoveContainer(p.sandbox(sb), p.container(c)) })
		return c, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Contains(sb.containers, c) { // no plugin was there
		r.list(c)
	}
	return c, true
}

// list makes a container one that the runtime lists. What is unmounted while it is created may be found. The caller
// holds mu.
func (r *modelRuntime) list(c *modelContainer) {
	c.sandbox.containers = append(c.sandbox.containers, c)
	c.past = c.below && !r.mounted
	c.below = c.propagates && r.mounted
}

// startContainer is the way of a container from its cgroup to its first instruction. That
// of one which is restored from a checkpoint has its cgroup after the event only, first
// without a process. The process that waits for the start of another one may die.
func (r *modelRuntime) startContainer(p *modelPod, c *modelContainer, rng *rand.Rand) {
	way := rng.IntN(16)
	restored, dies := way < 2 && !r.calm, way == 2 && !r.calm
	if !restored {
		r.place(c, true)
	}
	if dies {
		if rng.IntN(4) > 0 { // a pass sees it before that
			r.now().DisksChanged()
			time.Sleep(10 * time.Millisecond)
		}
		r.k.Empty(c.cgroup)
		pause(rng)
	}
	r.mu.Lock()
	epoch, broken, settled := r.epoch, r.broken, !p.unsettled
	r.mu.Unlock()
	var err error
	told := r.deliver(func(s *session) {
		r.mu.Lock()
		c.sandbox.told, p.begun = true, true
		r.mu.Unlock()
		err = s.startUnder(context.Background(), p.sandbox(c.sandbox), p.container(c), !r.crio)
		r.mu.Lock()
		defer r.mu.Unlock()
		calm := settled && !p.unsettled && p.slot != borrowingSlot && epoch == r.epoch && !broken && !r.broken && p.spec.slow == "" && !restored && !dies
		c.looked = calm && err == nil
		if isLate := r.crio && r.plugin.known().late[p.uid]; calm && err == nil && !isLate { // CRI-O would not refuse it
			if problem := r.checkContainer(p, c); problem != "" {
				r.t.Errorf("at its first instruction: %s", problem)
			}
		}
	})
	r.note("%s: start %s, restored %v, dies %v, told %v, refused %v", p.name, c.id, restored, dies, told, err != nil)
	if err != nil || dies {
		r.stopContainer(p, c, rng)
		return
	}
	pause(rng)
	if restored {
		r.place(c, false)
		time.Sleep(time.Duration(rng.IntN(4)) * 100 * time.Millisecond)
		r.k.Populate(c.cgroup)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c.state = modelRunning
}

// place makes a container's cgroup with the values of its spec, with a process or without.
func (r *modelRuntime) place(c *modelContainer, populated bool) {
	r.mu.Lock()
	c.placed = true
	r.mu.Unlock()
	r.k.Make(c.cgroup, populated)
	r.writeSpec(c)
}

func (r *modelRuntime) writeSpec(c *modelContainer) {
	r.setLimits(c.cgroup, c.unified["io.max"])
	if weight := c.unified["io.weight"]; weight != "" {
		r.k.Replace(c.cgroup, "io.weight", "default "+weight+"\n")
	}
}
