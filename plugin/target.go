package plugin

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/plugin/node/lifecycle"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/policy"
)

// target is one cgroup and what should be on it.
type target struct {
	cgroup string
	want   map[blkio.Dev]blkio.Limits
	weight uint32
	// spec are the values of the OCI spec that are not wanted any more, with
	// what is. The runtime writes them back with each update, and crun keeps
	// them on a cgroup of its own below the container's.
	spec       []cgroupfs.Replacement
	specWeight uint32 // the same of io.weight, or 0
	// unwanted and unwantedWeight are those that nothing is wanted for now: they are to go
	// if they are ours, by the container or by the cgroup's record.
	unwanted       []cgroupfs.Replacement
	unwantedWeight uint32
	ours           bool
	granted        policy.Desired // for the pod's cgroup: what want is without the backstop
	// partial: not all that is desired is known, by a failure of ours. Then
	// what is recorded stays.
	partial bool
	// ended: no container of the pod runs. What it was granted last stays, for
	// what they have left to write.
	ended  bool
	record record.Record
	owner  *container // nil for the pod's cgroup
	// quiet is what io.max read as when all of this was in place, record and
	// all. As long as it reads so there is nothing more to look at; idle says
	// that there is nothing to look at at all.
	quiet []byte
	idle  bool
}

// plan is what should be on the cgroups of a pod. It is computed once for each
// change of the pod, so that a pass over a quiet node is reading only.
type plan struct {
	pod        *target
	containers []*target
}

// planFor returns what should be on a group's cgroups now. Deciding the pod
// total takes time that grows with what tenants wrote, so it is done without mu.
// The caller is the one who writes to the group.
func (p *Plugin) planFor(g *group) *plan {
	if plan := p.planOf(g); plan != nil {
		return plan
	}
	unread := p.recall(g) // inspect tells of that
	v := p.viewOf(g)
	if p.unsynced.Load() || v.drained { // drained is of those that we know
		v.strangers = p.strangers(&v)
	}
	fresh := p.newPlan(p.policy.Load(), v)
	p.mu.Lock()
	defer p.mu.Unlock()
	g.recorded.granted = fresh.pod.granted
	if g.changes == v.changes && unread == nil {
		g.plan = fresh
	}
	return fresh
}

// planOf returns the plan that was made, nil after a change.
func (p *Plugin) planOf(g *group) *plan {
	p.mu.Lock()
	defer p.mu.Unlock()
	return g.plan
}

func (p *Plugin) viewOf(g *group) view {
	p.mu.Lock()
	defer p.mu.Unlock()
	return newView(g)
}

// view is a copy of what a plan is made of.
type view struct {
	cgroup  string
	shared  bool
	changes int
	pod     *pod // the one that the pod's cgroup is for now; fixed fields only
	seen    []policy.Container
	warned  bool
	granted policy.Desired // so far
	partial bool           // some container was not looked into
	drained bool           // nothing runs, and nothing is left to write
	running []running
	cgroups []string // of its sandboxes and running containers, the last element or a part of it
	// strangers are running containers that only the cgroups tell of.
	strangers []policy.Desired
	exits     []record.Exit
}

// running is a running container as of the copy.
type running struct {
	container
	owner   *container
	partial bool // not all of its disks are known
}

// newView copies a group. The caller holds mu.
func newView(g *group) view {
	v := view{cgroup: g.cgroup, shared: g.shared(), drained: g.drain.Phase() == lifecycle.Drained, changes: g.changes, exits: g.recorded.exits, granted: g.recorded.granted}
	live := false
	for _, pod := range g.sorted() {
		before := len(v.running)
		v.cgroups = append(v.cgroups, pod.id)
		for _, c := range pod.sorted() {
			if c.mayRun() {
				v.running = append(v.running, running{*c, c, c.isPartial()})
			}
			if c.mayRun() && c.cgroup != "" {
				v.cgroups = append(v.cgroups, path.Base(c.cgroup))
			}
			v.partial = v.partial || c.isPartial()
		}
		// Of two sandboxes of a pod the later one counts, if it has begun.
		if begun := len(v.running) > before; begun || !live {
			live = live || begun
			v.pod, v.seen, v.warned = pod, pod.seen(), pod.warned
		}
	}
	return v
}

func (p *Plugin) newPlan(pol *policy.Policy, v view) *plan {
	observed := pol.Mode == policy.ModeObserve
	out := &plan{pod: &target{}}
	if v.cgroup != "" && !v.shared && v.pod != nil {
		out.pod = p.podTarget(pol, v, observed)
	}
	for _, r := range v.running {
		if r.cgroup != "" {
			out.containers = append(out.containers, p.containerTarget(r, observed))
		}
	}
	return out
}

func (p *Plugin) containerTarget(c running, observed bool) *target {
	err := c.decision.err
	if c.decision.policy == nil {
		err = fmt.Errorf("not looked into yet: %w", cmp.Or(err, errPending))
	}
	t := &target{
		cgroup: c.cgroup, owner: c.owner, partial: c.partial,
		record: p.newRecord(record.KindContainer, c.pod, c.decision.desired, err, observed),
	}
	t.record.Container, t.record.ContainerID = c.name, c.id
	switch {
	case !observed:
		t.want, t.weight = wanted(c.decision.desired), c.decision.desired.Weight
	case c.spec.weight == c.decision.desired.Weight:
		t.specWeight = c.spec.weight
	}
	if c.decision.policy != nil {
		t.spec, t.unwanted = staleSpec(c.spec.limits, wanted(c.decision.desired), observed)
		if c.decision.desired.Weight == 0 {
			t.unwantedWeight = c.spec.weight
		}
	}
	t.ours = c.spec.ours
	return t
}

// errPending is of a container that nobody has looked into so far.
var errPending = errors.New("that comes next")

// staleSpec compares a spec with what is desired now. Where limits are observed
// only, a value that we would have put there is ours, and is to go. unwanted are values
// that nothing is desired for.
func staleSpec(spec, desired map[blkio.Dev]blkio.Limits, observed bool) (stale, unwanted []cgroupfs.Replacement) {
	for dev, limits := range spec {
		for k, rate := range limits {
			if rate == blkio.Unset {
				continue
			}
			value := cgroupfs.Replacement{Dev: dev, Key: blkio.Key(k), From: rate, To: desired[dev][k]}
			switch {
			case value.To == blkio.Unset:
				value.To = blkio.Max
				unwanted = append(unwanted, value)
			case observed && value.To == rate:
				value.To = blkio.Max
				stale = append(stale, value)
			case value.To > rate:
				stale = append(stale, value)
			}
		}
	}
	return stale, unwanted
}

func (p *Plugin) newRecord(kind string, pod *pod, d policy.Desired, err error, observed bool) record.Record {
	r := record.Record{
		Version: record.Version, Kind: kind, Namespace: pod.namespace, Pod: pod.name, UID: pod.uid,
		Limits: record.LimitsOf(d.Disks), Weight: d.Weight, WeightFrom: d.WeightSource.Name,
		Warnings: d.Warnings, Observed: observed,
	}
	for _, s := range d.Skipped {
		r.Skipped = append(r.Skipped, fmt.Sprintf("%q: %s", s.What, s.Reason))
	}
	if d.Weight != 0 && !p.weight.works.Load() {
		r.Warnings = append(slices.Clone(r.Warnings), weightIdle)
	}
	if d.SkippedMore > 0 {
		r.Skipped = append(r.Skipped, fmt.Sprintf("and %d more", d.SkippedMore))
	}
	if err != nil {
		r.Error = err.Error()
	}
	return r
}

// podTarget is the pod total and the backstop, the smaller of the two for
// each disk and key.
func (p *Plugin) podTarget(pol *policy.Policy, v view, observed bool) *target {
	total, err := p.total(pol, v.pod, v.seen)
	if observed {
		v.granted = policy.Desired{}
	}
	total.KeepGranted(v.granted)
	v.granted = total
	granted := slices.Clone(v.strangers)
	for _, c := range v.running {
		granted = append(granted, c.decision.desired)
	}
	ended := len(granted) == 0 && pol.Writeback.Backstop
	if !pol.Writeback.Backstop {
		granted = nil
	}
	total.Disks = withBackstop(total, granted)
	if v.drained && len(v.strangers) == 0 {
		// The pod's cgroup may go, and its limits would stay on the files that
		// it owns: the next pod on its volumes would have them.
		total.Disks, ended = nil, false
	}
	if v.warned {
		total.Warnings = append(total.Warnings, v.pod.request().Unmatched(record.WithEnded(v.seen, v.exits))...)
	}
	t := &target{cgroup: v.cgroup, partial: v.partial, ended: ended, record: p.newRecord(record.KindPod, v.pod, total, err, observed)}
	t.record.Exits = v.exits
	if !observed {
		t.want, t.weight, t.granted = wanted(total), total.Weight, v.granted
	}
	return t
}

func withBackstop(total policy.Desired, granted []policy.Desired) []policy.DiskLimits {
	known := map[blkio.Dev]policy.DiskLimits{}
	for _, d := range granted {
		for _, disk := range d.Disks {
			known[disk.Disk.Dev] = policy.DiskLimits{Disk: disk.Disk}
		}
	}
	for _, disk := range total.Disks {
		known[disk.Disk.Dev] = disk
	}
	var out []policy.DiskLimits
	for _, m := range policy.MergePod(total, policy.Backstop(granted)) {
		disk := known[m.Dev]
		for k, rate := range m.Limits {
			if rate != disk.Limits[k] {
				disk.Sources[k] = policy.Source{Kind: policy.FromBackstop}
			}
		}
		disk.Limits = m.Limits
		out = append(out, disk)
	}
	return out
}

func wanted(d policy.Desired) map[blkio.Dev]blkio.Limits {
	out := make(map[blkio.Dev]blkio.Limits, len(d.Disks))
	for _, disk := range d.Disks {
		out[disk.Disk.Dev] = disk.Limits
	}
	return out
}

// readRecord reads what was recorded on the target's cgroup. Mostly it is what
// should be there, which takes no decoding to see.
func (t *target) readRecord(cg cgroupfs.Cgroup) (*record.Record, error) {
	raw, err := record.ReadRaw(cg, t.record.Kind)
	if err != nil || raw == nil {
		return nil, err
	}
	// Made anew, not kept: a close look is rare, and 750 texts are 400 KB.
	if !t.record.Empty() && bytes.Equal(raw, t.record.Marshal()) {
		return &t.record, nil
	}
	return record.Trusted(cg, t.record.Kind, raw)
}

// lifted are the limits that are to go where they are not wanted: what a record
// says we wrote, and what the runtime has written back from the spec.
func (c *change) lifted(old *record.Record, actual map[blkio.Dev]blkio.Limits) map[blkio.Dev]blkio.Limits {
	if old == &c.target.record && !old.Observed && len(c.spec) == 0 {
		return c.target.want
	}
	out := map[blkio.Dev]blkio.Limits{}
	if !old.Observed { // those were decided once, and never written
		out = old.DevLimits()
	}
	for _, s := range c.spec {
		if actual[s.Dev][s.Key] == s.From {
			limits := out[s.Dev]
			limits[s.Key] = s.From
			out[s.Dev] = limits
		}
	}
	return out
}
