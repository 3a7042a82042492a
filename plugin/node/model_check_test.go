package node

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/node/metrics"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/plugin/shares"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// The model derives the desired limits from the runtime's state, the pods' annotations and the policy. Package
// policy decides for one container; the model derives the rest.

// modelLimits has the limits of a cgroup that are neither max nor unset.
type modelLimits map[blkio.Dev]blkio.Limits

// finite leaves out the values that a new cgroup has.
func finite(l blkio.Limits) blkio.Limits {
	for k, rate := range l {
		if rate == blkio.Max {
			l[k] = blkio.Unset
		}
	}
	return l
}

func finiteLimits(of map[blkio.Dev]blkio.Limits) modelLimits {
	out := modelLimits{}
	for dev, limits := range of {
		if limits = finite(limits); !limits.IsZero() {
			out[dev] = limits
		}
	}
	return out
}

func grantedTo(d policy.Desired) modelLimits {
	return finiteLimits(d.Settings.DevLimits())
}

// decided returns the desired limits of one container while it runs.
func (r *modelRuntime) decided(p *modelPod, c *modelContainer) policy.Desired {
	by, lent := r.ruledIn(p, c.sandbox), r.lentTo(p)
	d, _ := by.Container(r.facts(p, c)) // beside an error is the rest
	return by.Borrow(d, &lent)
}

// ruled is the policy for a pod.
func (r *modelRuntime) ruled(p *modelPod) *policy.Pod { return r.ruledIn(p, p.counting()) }

// ruledIn is the policy for a pod by the facts about one of its sandboxes.
func (r *modelRuntime) ruledIn(p *modelPod, sb *modelSandbox) *policy.Pod {
	return r.ruledBy(p, r.factsIn(p, sb))
}

func (r *modelRuntime) ruledBy(p *modelPod, by modelFacts) *policy.Pod {
	asked, _ := p.sandbox(p.current()).request(r.policy)
	facts := asked.PodFacts
	facts.Labels, facts.NamespaceLabels, facts.Volumes = modelLabels("tier", by.tier), by.namespace, by.volumes
	return r.policy.ForPod(&facts, annotation.Parse(by.annotations))
}

// podLimits returns the desired limits of a pod's cgroup while these containers run in it.
func (r *modelRuntime) podLimits(p *modelPod, running []*modelContainer) modelLimits {
	var facts []policy.Container
	for _, c := range running {
		facts = append(facts, r.facts(p, c))
	}
	total, _ := r.ruled(p).Total(facts)
	out := grantedTo(total)
	if !r.policy.Writeback.Backstop {
		return out
	}
	for _, disk := range modelDisks() {
		for key := range blkio.NumLimits {
			sum := blkio.Amount(0)
			for _, c := range running {
				d := r.decided(p, c)
				rate := grantedTo(d)[disk.Dev][key]
				if rate == blkio.Unset && !usesNot(&d, blkio.Address{Key: key, Dev: disk.Dev}) { // one without a limit
					sum = 0
					break
				}
				sum += max(rate, 0)
			}
			if now := out[disk.Dev]; sum != 0 && (now[key] == blkio.Unset || sum < now[key]) {
				now[key] = sum
				out[disk.Dev] = now
			}
		}
	}
	return out
}

// usesNot reports whether a container has no mount on a disk, or only a read-only one for a key of writes.
func usesNot(d *policy.Desired, at blkio.Address) bool {
	return d.Covers[at.Key] && d.Settings.Where(func(s policy.Setting) bool { return s.Address == at }) == nil &&
		!slices.ContainsFunc(d.Uses, func(u policy.Use) bool { return u.Address() == at })
}

// checkLimits compares the limits of a cgroup. Those of another program may stay where we
// want none, and on the cgroup of a pod: see foreign.
func (r *modelRuntime) checkLimits(cgroup string, want modelLimits) string {
	return r.checkDisks(cgroup, want, modelDisks()...)
}

func (r *modelRuntime) checkDisks(cgroup string, want modelLimits, disks ...blkio.Disk) string {
	got := finiteLimits(r.k.Limits(cgroup))
	for _, disk := range disks {
		w, g := want[disk.Dev], got[disk.Dev]
		for key := range g {
			switch {
			case g[key] != modelDrift:
			case w[key] == blkio.Unset:
				g[key] = blkio.Unset
			case strings.HasSuffix(cgroup, ".slice"):
				g[key] = w[key]
			}
		}
		if w != g {
			return fmt.Sprintf("%s has %q on %s, want %q", cgroup, g, disk.Name, w)
		}
	}
	return ""
}

// raised reports whether the policy rejects values that it may have granted before.
func (r *modelRuntime) raised() bool {
	return r.policy.Floors.Bps == modelFloor ||
		slices.ContainsFunc(r.policy.Rules, func(rule policy.Rule) bool { return rule.Annotations == policy.RejectAnnotations })
}

// ofAnnotations returns the part of a decision that does not come from a class.
func ofAnnotations(d policy.Desired) policy.Desired {
	d.Settings = d.Settings.Where(func(s policy.Setting) bool { return s.Source.Kind == policy.FromAnnotation })
	return d
}

// checkContainer compares a running container with the model. The caller holds mu.
func (r *modelRuntime) checkContainer(p *modelPod, c *modelContainer) string {
	if r.raised() {
		if r.ruled(p).Mode() == policy.ModeObserve || r.decided(p, c).Ignored {
			return ""
		}
		return r.checkGranted(c)
	}
	if r.keepsClaims(p, c) {
		if r.ruled(p).Mode() == policy.ModeObserve {
			return ""
		}
		return r.checkClaimed(p, c)
	}
	want, weight := modelLimits{}, uint32(100)
	if d := r.decided(p, c); r.ruled(p).Mode() != policy.ModeObserve {
		want = grantedTo(d)
		if w, asked := d.Settings.Weight(); asked {
			weight = uint32(w.Amount)
		}
	}
	disks := modelDisks()
	if c.past && !c.below {
		disks = slices.DeleteFunc(disks, func(d blkio.Disk) bool { return d == lateDisk })
	}
	if problem := r.checkDisks(c.cgroup, want, disks...); problem != "" {
		return problem
	}
	if w, err := r.tree.Cgroup(c.cgroup).ReadWeights(blkio.IOWeight); err != nil || w.Default != weight {
		return fmt.Sprintf("%s has the weight %d, want %d (%v)", c.cgroup, w.Default, weight, err)
	}
	return ""
}

// checkGranted finds limits that are missing although the container was granted them.
func (r *modelRuntime) checkGranted(c *modelContainer) string {
	return r.checkHas(c, c.granted, "before the floors were raised")
}

// check compares everything with the model, when nothing is under way. resolved is true
// after full passes.
func (r *modelRuntime) check(resolved bool) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var problems []string
	report := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	known := r.plugin.known()
	for _, p := range r.pods {
		if p != nil {
			r.settle(p, known, report)
		}
	}
	for _, p := range r.pods {
		if p != nil && !known.late[p.uid] { // its limits depend on earlier events of others
			r.checkPod(p, resolved, report)
		}
	}
	r.checkState(known, report)
	r.checkLent(known, report)
	return problems
}

func (r *modelRuntime) checkPod(p *modelPod, resolved bool, report func(string, ...any)) {
	if p.hasShares() {
		if got, err := r.tree.Cgroup(p.cgroup).ReadXattr(shares.Attribute); err != nil || string(got) != modelShares {
			report("%s: the attribute of the keeper of weights is %q (%v)", p.cgroup, got, err)
		}
	}
	var running []*modelContainer
	told := false // without a sandbox, the plugin knows no pod
	for _, sb := range p.sandboxes {
		told = told || sb.told
		for _, c := range sb.containers {
			if c.state == modelRunning {
				running = append(running, c)
				if p.isOutdated(sb) {
					continue
				}
				if problem := r.checkContainer(p, c); problem != "" {
					report("%s", problem)
				}
				if r.raised() || r.keepsClaims(p, c) {
					continue
				}
				r.checkRecord(p, c, report)
				if d := r.decided(p, c); r.ruled(p).Mode() == policy.ModeEnforce && !d.Ignored {
					c.granted, c.claimed = grantedTo(ofAnnotations(d)), ofClaims(d)
					delete(c.granted, lateDisk.Dev) // its mount may go
				}
			}
		}
	}
	switch {
	case !told:
	case r.ruled(p).Mode() == policy.ModeObserve:
		// The plugin knew no sandbox of the pod when the mode came into force, if none of its containers has
		// begun since. The limits that earlier sandboxes left on the pod's cgroup are then removed with the
		// first container that starts, or with the next pass.
		if problem := r.checkLimits(p.cgroup, modelLimits{}); problem != "" && (resolved || p.begun) {
			report("observed: %s", problem)
		}
	case len(running) > 0 && r.raised(): // its desired limits depend on the earlier ones
	case len(running) > 0 && (p.isMixed() || r.keepsTotal(p, running) || r.keepsSome(p, running)):
	case len(running) > 0:
		disks := modelDisks()
		if p.spec.moves { // a container that has ended may have had another one
			disks = append(disks[:1:1], r.disks.MountOf(running[0].data).Disks[0])
		}
		disks = slices.DeleteFunc(disks, func(d blkio.Disk) bool {
			return (p.used || p.runsInSeveral()) && d == usedDisk || p.past && d == lateDisk || p.slot == borrowingSlot && d == lentDisk
		})
		if problem := r.checkDisks(p.cgroup, r.podLimits(p, running), disks...); problem != "" {
			report("%d running: %s", len(running), problem)
		}
	case resolved && p.begun && (p.isCounted() || !p.unclean):
		if problem := r.checkLimits(p.cgroup, modelLimits{}); problem != "" {
			report("nothing runs, and all is written out: %s", problem)
		}
	}
}

func (r *modelRuntime) checkRecord(p *modelPod, c *modelContainer, report func(string, ...any)) {
	got, err := record.Read(r.tree.Cgroup(c.cgroup), record.KindContainer)
	if err != nil {
		report("record of %s: %v", c.cgroup, err)
		return
	}
	want := grantedTo(r.decided(p, c))
	if got == nil {
		if len(want) > 0 {
			report("%s has no record", c.cgroup)
		}
		return
	}
	limits := finiteLimits(got.Settings.DevLimits())
	if c.past && !c.below {
		delete(limits, lateDisk.Dev)
		delete(want, lateDisk.Dev)
	}
	if got.ContainerID != c.id || fmt.Sprint(limits) != fmt.Sprint(want) || got.Observed != (r.ruled(p).Mode() == policy.ModeObserve) {
		report("record of %s: container %s, limits %v, want %v, observed %v, error %q", c.cgroup, got.ContainerID, limits, want, got.Observed, got.Error)
	}
}

// checkState compares the plugin's state with the runtime's.
func (r *modelRuntime) checkState(known modelKnown, report func(string, ...any)) {
	sandboxes, containers := map[string]*modelSandbox{}, map[string]*modelContainer{}
	concerned := map[string]bool{} // containers that the policy that is in force concerns
	for _, p := range r.pods {
		if p == nil {
			continue
		}
		for _, sb := range p.sandboxes {
			sandboxes[sb.id] = sb
			for _, c := range sb.containers {
				containers[c.id], concerned[c.id] = c, r.isConcerned(p, sb) && !p.isOutdated(sb)
			}
		}
	}
	running := 0 // of those that the plugin knows; others ask for nothing
	for id, runs := range known.containers {
		if c := containers[id]; c == nil {
			report("container %s was removed, and the plugin knows it", id)
		} else if runs != (c.state == modelRunning) {
			report("container %s: state %d, and the plugin says that it runs: %v", id, c.state, runs)
		} else if runs {
			running++
		}
	}
	for id, c := range containers {
		_, ok := known.containers[id]
		if c.state == modelRunning && !ok && (concerned[id] || !known.bystanding[id]) {
			report("container %s runs, and the plugin does not know it", id)
		}
	}
	for id := range known.bystanding {
		if containers[id] == nil {
			report("container %s was removed, and the plugin keeps it for a later policy", id)
		}
	}
	for _, id := range known.sandboxes {
		if sandboxes[id] == nil {
			report("sandbox %s was removed, and the plugin knows it", id)
		}
	}
	c := r.plugin.census()
	if got := c.States[metrics.Limited] + c.States[metrics.Unlimited] + c.States[metrics.Failed] + c.States[metrics.Observed]; got != running {
		report("the metrics count %d running containers, want %d", got, running)
	}
	if c.NotInForce != 0 {
		report("the metrics count %d pods not in force", c.NotInForce)
	}
	r.checkBudget(known, report)
	if len(known.left) > 0 {
		report("left behind: %s", strings.Join(known.left, ", "))
	}
}
