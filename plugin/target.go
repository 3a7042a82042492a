package plugin

import (
	"bytes"
	"path"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/plugin/enforce/plan"
	"github.com/nri-blkio/nri-blkio/plugin/node/lifecycle"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/policy"
)

// target is one cgroup and what should be on it.
type target struct {
	plan.Target
	owner *container // nil for the pod's cgroup
	// quiet is how the control files read when all of this was in place, record and
	// all. As long as they read so there is nothing more to look at; idle says
	// that there is nothing to look at at all.
	quiet []fileText
	idle  bool
}

// fileText is what a control file has read as.
type fileText struct {
	file string
	text []byte
}

// targets are what should be on the cgroups of a pod. They are computed once for each
// change of the pod, so that a pass over a quiet node is reading only.
type targets struct {
	pod        *target
	containers []*target
}

// planFor returns what should be on a group's cgroups now. Deciding the pod
// total takes time that grows with what tenants wrote, so it is done without mu.
// The caller is the one who writes to the group.
func (p *Plugin) planFor(g *group) *targets {
	if known := p.planOf(g); known != nil {
		return known
	}
	unread := p.recall(g) // inspect reports that
	v := p.viewOf(g)
	if p.unsynced.Load() || v.Drained { // drained is of those that we know
		v.Unknown = p.strangers(&v)
	}
	if v.pod != nil {
		v.Pod.Request = v.pod.request() // may parse it, so without mu
	}
	fresh := v.targets(plan.New(p.policy.Load(), v.View))
	p.mu.Lock()
	defer p.mu.Unlock()
	g.recorded.granted = fresh.pod.Granted
	if g.changes == v.changes && unread == nil {
		g.plan = fresh
	}
	return fresh
}

// planOf returns the plan that was made, nil after a change.
func (p *Plugin) planOf(g *group) *targets {
	p.mu.Lock()
	defer p.mu.Unlock()
	return g.plan
}

func (p *Plugin) viewOf(g *group) view {
	weights := p.weight.support() // may read a file
	p.mu.Lock()
	defer p.mu.Unlock()
	v := newView(g)
	v.Weights = weights
	return v
}

// view is a copy of what a plan is made of.
type view struct {
	plan.View
	pod     *podIdentity // the one that the pod's cgroup is for now; nil without any
	cgroup  string       // of the pod, which may be shared
	shared  bool
	changes int
	owners  map[string]*container // of the running containers, by ID
	cgroups []string              // of its sandboxes and running containers, the last element or a part of it
}

// newView copies a group. The caller holds mu.
func newView(g *group) view {
	v := view{cgroup: g.cgroup, shared: g.shared(), changes: g.changes, owners: map[string]*container{}}
	v.Drained = g.drain.Phase() == lifecycle.Drained
	live := false
	for _, pod := range g.sorted() {
		before := len(v.Running)
		v.cgroups = append(v.cgroups, pod.id)
		for _, c := range pod.sorted() {
			if c.mayRun() {
				v.owners[c.id] = c
				v.Running = append(v.Running, c.planned())
			}
			if c.mayRun() && c.cgroup != "" {
				v.cgroups = append(v.cgroups, path.Base(c.cgroup))
			}
			v.Partial = v.Partial || c.isPartial()
		}
		// Of two sandboxes of a pod the later one counts, if it has begun.
		if begun := len(v.Running) > before; begun || !live {
			live = live || begun
			v.Pod, v.pod = pod.planned(), &pod.podIdentity
			v.Pod.Seen, v.Pod.Complete = pod.seen(), pod.warned
		}
	}
	v.Pod.Granted, v.Pod.Exits = g.recorded.granted, g.recorded.exits
	if !v.shared && v.pod != nil {
		v.Pod.Cgroup = v.cgroup
	}
	return v
}

// planned returns what a plan needs of a pod, without its containers and its request.
func (p *podIdentity) planned() plan.Pod {
	return plan.Pod{Namespace: p.namespace, Name: p.name, UID: p.uid, Handler: p.handler}
}

// planned returns what a plan needs of a container. The caller holds mu.
func (c *container) planned() plan.Container {
	return plan.Container{
		ID: c.id, Name: c.name, Cgroup: c.cgroup, Desired: c.decision.desired, Err: c.decision.err,
		Undecided: c.decision.policy == nil, Partial: c.isPartial(), Spec: c.spec,
	}
}

// targets adds to a plan the containers that it is for.
func (v *view) targets(p plan.Plan) *targets {
	out := &targets{pod: &target{Target: p.Pod}}
	for _, t := range p.Containers {
		out.containers = append(out.containers, &target{Target: t, owner: v.owners[t.Container]})
	}
	return out
}

// readRecord reads what was recorded on the target's cgroup, as a record and as it is
// there. Mostly it is what should be there, which takes no decoding to see.
func (t *target) readRecord(cg cgroupfs.Cgroup) (*record.Record, []byte, error) {
	raw, err := record.ReadRaw(cg, t.Record.Kind)
	if err != nil || raw == nil {
		return nil, nil, err
	}
	// Made anew, not kept: a close look is rare, and 750 texts are 400 KB.
	if !t.Record.Empty() {
		if wanted, err := t.Record.Marshal(t.Room); err == nil && bytes.Equal(raw, wanted) {
			return &t.Record, raw, nil
		}
	}
	old, err := record.Trusted(cg, t.Record.Kind, raw)
	if old == nil {
		raw = nil
	}
	return old, raw, err
}

// lifted returns the settings that are to go where they are not wanted: those of a record,
// which we wrote, and what the runtime has written back from the spec.
func (c *change) lifted(old *record.Record, actual blkio.Values) policy.Settings {
	var out policy.Settings
	if !old.Observed { // those were decided once, and never written
		out = old.Settings
	}
	for _, s := range c.spec {
		if value := actual.At(s.Address); value.Amount == s.From {
			out = out.Join(policy.Settings{{Value: value}})
		}
	}
	return out
}
