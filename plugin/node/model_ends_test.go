package node

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
)

// stopContainer is the end of a container: of its processes, its cgroup, and the event.
func (r *modelRuntime) stopContainer(p *modelPod, c *modelContainer, rng *rand.Rand) {
	r.mu.Lock()
	syncs, placed, ran := r.syncs, c.placed, c.state == modelRunning
	r.mu.Unlock()
	if placed {
		r.k.Empty(c.cgroup)
		pause(rng)
		if limit := r.k.PutBack(c.cgroup); limit != "" && p.spec.slow == "" {
			r.t.Errorf("%s: %s has a limit again that was lifted at its end: %s", p.name, c.cgroup, limit)
		}
		r.k.Remove(c.cgroup)
	}
	pause(rng)                          // until the runtime knows
	watched := r.k.IsReported(c.cgroup) // mostly it is, since the event comes 0.2 s later
	r.mu.Lock()
	c.state, c.placed = modelExited, false
	p.used = p.used || c.uses
	r.mu.Unlock()
	told := r.deliver(func(s *session) { s.StopContainer(r.podOf(p, c, rng), p.container(c)) })
	r.mu.Lock()
	clean := !r.broken && !c.past && syncs == r.syncs && p.spec.slow == "" && (watched || c.looked && !p.edited && !p.claimed && p.spec.isFree(c.name) && !r.policy.ConcernsUnannotated())
	p.unclean = p.unclean || placed && !clean || !ran && !told // it may have run unseen
	r.mu.Unlock()
	r.note("%s: stop %s, ran %v, watched %v, clean %v, told %v", p.name, c.id, ran, watched, clean, told)
}

// podOf returns the pod in an event of a container. containerd sends no pod for a container whose sandbox was
// removed.
func (r *modelRuntime) podOf(p *modelPod, c *modelContainer, rng *rand.Rand) *Sandbox {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !c.sandbox.ready && rng.IntN(2) == 0 {
		return nil
	}
	return p.sandbox(c.sandbox)
}

// isFree reports whether annotations limit a container neither by itself nor as one of its pod.
func (s modelSpec) isFree(name string) bool {
	a := s.annotations
	return a[limitsKey+"containers"] == "" && a[bareLimits] == "" && a[limitsKey+"container."+name] == "" && a[limitsKey+"pod-total"] == ""
}

// removeContainer removes a container that has ended from the runtime.
func (r *modelRuntime) removeContainer(p *modelPod, c *modelContainer, rng *rand.Rand) {
	told := r.deliver(func(s *session) {
		s.RemoveContainer(r.podOf(p, c, rng), p.container(c))
		r.dropContainer(c)
	})
	r.dropContainer(c)
	r.note("%s: remove %s, told %v", p.name, c.id, told)
}

func (r *modelRuntime) dropContainer(c *modelContainer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c.sandbox.containers = slices.DeleteFunc(c.sandbox.containers, func(o *modelContainer) bool { return o == c })
}

// update is a CRI update of CPU or memory: the runtime writes all of the spec again.
func (r *modelRuntime) update(p *modelPod, sb *modelSandbox, rng *rand.Rand) {
	running := r.in(sb, modelRunning)
	if len(running) == 0 {
		return
	}
	c := running[rng.IntN(len(running))]
	r.writeSpec(c)
	pause(rng)
	told := r.deliver(func(s *session) { s.n.Updated(sb.id) })
	r.note("%s: update %s, told %v", p.name, c.id, told)
}

// use has a container use a disk that none of its mounts is on.
func (r *modelRuntime) use(p *modelPod, sb *modelSandbox, rng *rand.Rand) {
	running := r.in(sb, modelRunning)
	if len(running) == 0 {
		return
	}
	c := running[rng.IntN(len(running))]
	counters := fmt.Sprintf("%s rbytes=%d wbytes=0 rios=1 wios=0 dbytes=0 dios=0\n", usedDisk.Dev, 2*inventory.MinUsage)
	r.k.Replace(c.cgroup, "io.stat", counters)
	r.k.Replace(p.cgroup, "io.stat", counters)
	r.mu.Lock()
	c.uses = true
	r.mu.Unlock()
	r.note("%s: %s uses the disk %s", p.name, c.id, usedDisk.Name)
}

// modelDrift is a limit that another program writes.
const modelDrift blkio.Amount = 777777

// drift changes a limit of the plugin, as another program would.
func (r *modelRuntime) drift(p *modelPod, sb *modelSandbox, rng *rand.Rand) {
	cgroup := p.cgroup
	if running := r.in(sb, modelRunning); len(running) > 0 && rng.IntN(2) == 0 {
		cgroup = running[rng.IntN(len(running))].cgroup
	}
	for dev, limits := range r.k.Limits(cgroup) {
		line := blkio.DevLimits{Dev: dev}
		for key, rate := range limits {
			if rate != blkio.Unset {
				line.Limits[key] = modelDrift
			}
		}
		r.setLimits(cgroup, line.String())
		r.note("another program writes %q to %s", line, cgroup)
	}
}

// replaceSandbox makes a pod's next sandbox. The old one is removed later; mostly its
// containers end before.
func (r *modelRuntime) replaceSandbox(p *modelPod, rng *rand.Rand) {
	if p.spec.moves || rng.IntN(4) > 0 {
		r.stopSandbox(p, p.current(), rng)
	}
	r.mu.Lock()
	r.addSandbox(p)
	many := len(p.sandboxes) > 3
	r.mu.Unlock()
	r.note("%s: sandbox %s", p.name, p.current().id)
	if many {
		r.collectGarbage(p, rng)
	}
}

func (r *modelRuntime) stopSandbox(p *modelPod, sb *modelSandbox, rng *rand.Rand) {
	for _, c := range r.in(sb, modelCreated, modelRunning) {
		r.stopContainer(p, c, rng)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	sb.ready = false
}

// collectGarbage removes the sandboxes that were replaced, and those that were stopped.
func (r *modelRuntime) collectGarbage(p *modelPod, rng *rand.Rand) {
	for _, sb := range slices.Clone(p.sandboxes) {
		if sb.ready && sb == p.current() {
			continue
		}
		r.stopSandbox(p, sb, rng)
		after := rng.IntN(4) == 0 // some containers are removed later than their sandbox
		containers := r.in(sb, modelExited)
		if !after {
			for _, c := range containers {
				r.removeContainer(p, c, rng)
			}
		}
		told := r.deliver(func(s *session) {
			s.n.RemovedPod(sb.id)
			r.dropSandbox(p, sb, true)
		})
		r.dropSandbox(p, sb, told)
		r.note("%s: remove sandbox %s, told %v", p.name, sb.id, told)
		if after {
			for _, c := range containers {
				r.removeContainer(p, c, rng)
			}
		}
	}
}

// dropSandbox removes a sandbox from the runtime. If the plugin gets the report and it was the pod's last
// sandbox, the plugin forgets the pod. While a write to the pod's cgroups is under way the plugin keeps its
// group, and with it the data that containers have left to write.
func (r *modelRuntime) dropSandbox(p *modelPod, sb *modelSandbox, told bool) {
	kept := r.now().hasGroup(p.cgroup)
	r.mu.Lock()
	defer r.mu.Unlock()
	p.sandboxes = slices.DeleteFunc(p.sandboxes, func(o *modelSandbox) bool { return o == sb })
	p.missed = p.missed || !told && sb.told
	if told && sb.told && !slices.ContainsFunc(p.sandboxes, func(o *modelSandbox) bool { return o.told }) {
		unclean := p.unclean && kept
		r.forgotten(p)
		p.unclean = p.unclean || unclean
	}
}

// hasGroup reports whether the plugin knows a pod by its cgroup.
func (n *Node) hasGroup(cgroup string) bool {
	s := n.state.Lock()
	defer n.state.Unlock()
	for _, g := range s.groups {
		if g.cgroup == cgroup {
			return true
		}
	}
	return false
}

// removePod ends a pod and removes all of it.
func (r *modelRuntime) removePod(p *modelPod, rng *rand.Rand) {
	for _, sb := range p.sandboxes {
		r.stopSandbox(p, sb, rng)
	}
	r.note("%s: all of it is removed", p.name)
	first := rng.IntN(2) == 0
	if first {
		r.k.Remove(p.cgroup)
	}
	pause(rng)
	r.collectGarbage(p, rng)
	if !first {
		r.k.Remove(p.cgroup)
	}
	r.forgetDocument(p)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pods[p.slot] = nil
}
