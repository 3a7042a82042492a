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
	want   policy.Settings
	// spec are the values of the OCI spec that are not wanted any more, with
	// what is. The runtime writes them back with each update, and crun keeps
	// them on a cgroup of its own below the container's.
	spec []cgroupfs.Replacement
	// unwanted are those that nothing is wanted for now: they are to go if they are ours, by
	// the container or by the cgroup's record.
	unwanted []cgroupfs.Replacement
	ours     bool
	granted  policy.Desired // for the pod's cgroup: what want is without the backstop
	// partial: not all that is desired is known, by a failure of ours. Then
	// what is recorded stays.
	partial bool
	// ended: no container of the pod runs. What it was granted last stays, for
	// what they have left to write.
	ended  bool
	record record.Record
	room   int        // for the record, in bytes
	owner  *container // nil for the pod's cgroup
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
	if p.unsynced.Load() || v.isDrained() { // drained is of those that we know
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
	drain   lifecycle.DrainPhase
	newest  newest
	partial bool // some container was not looked into
	running []running
	cgroups []string // of its sandboxes and running containers, the last element or a part of it
	// strangers are running containers that only the cgroups tell of.
	strangers []policy.Desired
	recorded  recorded
}

// newest is the sandbox that the pod's cgroup is for now, and what a plan needs of it.
type newest struct {
	pod    *pod // fixed fields only
	seen   []policy.Container
	warned bool
}

// isDrained reports whether no container runs and none has left data to write.
func (v *view) isDrained() bool { return v.drain == lifecycle.Drained }

// running is a running container as of the copy.
type running struct {
	container
	owner   *container
	partial bool // not all of its disks are known
}

// newView copies a group. The caller holds mu.
func newView(g *group) view {
	v := view{cgroup: g.cgroup, shared: g.shared(), changes: g.changes, drain: g.drain.Phase(), recorded: g.recorded}
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
			v.newest = newest{pod, pod.seen(), pod.warned}
		}
	}
	return v
}

func (p *Plugin) newPlan(pol *policy.Policy, v view) *plan {
	observed := pol.Mode == policy.ModeObserve
	out := &plan{pod: &target{}}
	if v.cgroup != "" && !v.shared && v.newest.pod != nil {
		out.pod = p.podTarget(pol, v, observed)
	}
	room := record.Room(len(v.running))
	out.pod.room = room
	for _, r := range v.running {
		if r.cgroup != "" {
			t := p.containerTarget(r, observed)
			t.room = room
			out.containers = append(out.containers, t)
		}
	}
	return out
}

func (p *Plugin) containerTarget(c running, observed bool) *target {
	err := c.decision.err
	if c.decision.policy == nil {
		err = fmt.Errorf("limits not decided yet: %w", cmp.Or(err, errPending))
	}
	t := &target{
		cgroup: c.cgroup, owner: c.owner, partial: c.partial,
		record: p.newRecord(record.KindContainer, c.pod, c.decision.desired, err, observed),
	}
	t.record.Container, t.record.ContainerID = c.name, c.id
	want := kept(c.decision.desired.Settings)
	if !observed {
		t.want = want
	}
	if c.decision.policy != nil {
		t.spec, t.unwanted = staleSpec(c.spec.values, want, observed)
	}
	t.ours = c.spec.ours
	return t
}

// kept returns the settings that are kept in force. What only the creation of a container
// can give, memory.high, is not: an operator or a resize of the pod may change it.
func kept(s policy.Settings) policy.Settings {
	return s.Where(func(x policy.Setting) bool { return x.Key != blkio.MemoryHigh })
}

// errPending means that the disks of a container are not resolved yet.
var errPending = errors.New("its disks are resolved next")

// staleSpec compares a spec with what is desired now. Where limits are observed
// only, a value that we would have put there is ours, and is to go. unwanted are values
// that nothing is desired for.
func staleSpec(spec, desired policy.Settings, observed bool) (stale, unwanted []cgroupfs.Replacement) {
	for _, s := range spec {
		value := cgroupfs.Replacement{Address: s.Address, From: s.Amount, To: s.Removal().Amount}
		switch want, found := desired.Get(s.Address); {
		case !found:
			unwanted = append(unwanted, value)
		case observed && want.Amount == s.Amount:
			stale = append(stale, value)
		case want.Amount > s.Amount && !s.Key.IsShare():
			value.To = want.Amount
			stale = append(stale, value)
		}
	}
	return stale, unwanted
}

func (p *Plugin) newRecord(kind string, pod *pod, d policy.Desired, err error, observed bool) record.Record {
	r := record.Record{
		Kind: kind, Namespace: pod.namespace, Pod: pod.name, UID: pod.uid,
		Settings: kept(d.Settings), Disks: d.Disks, Warnings: d.Warnings, Observed: observed,
	}
	for _, s := range d.Skipped {
		r.Skipped = append(r.Skipped, fmt.Sprintf("%q: %s", s.What, s.Reason))
	}
	if _, asked := d.Settings.Weight(); asked && !p.weight.works.Load() {
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
	total, err := p.total(pol, v.newest.pod, v.newest.seen)
	if observed {
		v.recorded.granted = policy.Desired{}
	}
	total.KeepGranted(v.recorded.granted)
	v.recorded.granted = total
	granted := slices.Clone(v.strangers)
	for _, c := range v.running {
		granted = append(granted, c.decision.desired)
	}
	ended := len(granted) == 0 && pol.Writeback.Backstop
	if !pol.Writeback.Backstop {
		granted = nil
	}
	total.Settings, total.Disks = withBackstop(total, granted)
	if v.isDrained() && len(v.strangers) == 0 {
		// The pod's cgroup may go, and its limits would stay on the files that
		// it owns: the next pod on its volumes would have them.
		total.Settings, ended = total.Settings.Where(func(s policy.Setting) bool { return !s.Key.IsRate() }), false
	}
	if v.newest.warned {
		total.Warnings = append(total.Warnings, v.newest.pod.request().Unmatched(record.WithEnded(v.newest.seen, v.recorded.exits))...)
	}
	t := &target{cgroup: v.cgroup, partial: v.partial, ended: ended, record: p.newRecord(record.KindPod, v.newest.pod, total, err, observed)}
	t.record.Exits = v.recorded.exits
	if !observed {
		t.want, t.granted = total.Settings, v.recorded.granted
	}
	return t
}

// withBackstop returns for each disk and key the lower of what pod-total asks for and what
// the containers were granted together.
func withBackstop(total policy.Desired, granted []policy.Desired) (policy.Settings, map[blkio.Dev]string) {
	var all []policy.Settings
	names := []map[blkio.Dev]string{}
	for _, d := range granted {
		all, names = append(all, d.Settings), append(names, d.Disks)
	}
	out := total.Settings.Lowest(policy.Backstop(all))
	return out, policy.DiskNames(out, append(names, total.Disks)...)
}

// readRecord reads what was recorded on the target's cgroup, as a record and as it is
// there. Mostly it is what should be there, which takes no decoding to see.
func (t *target) readRecord(cg cgroupfs.Cgroup) (*record.Record, []byte, error) {
	raw, err := record.ReadRaw(cg, t.record.Kind)
	if err != nil || raw == nil {
		return nil, nil, err
	}
	// Made anew, not kept: a close look is rare, and 750 texts are 400 KB.
	if !t.record.Empty() {
		if wanted, err := t.record.Marshal(t.room); err == nil && bytes.Equal(raw, wanted) {
			return &t.record, raw, nil
		}
	}
	old, err := record.Trusted(cg, t.record.Kind, raw)
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
