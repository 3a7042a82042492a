// Package plan computes the desired settings and records of the cgroups of a pod. It is
// pure: no I/O, no clock, and the same input gives the same bytes.
package plan

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/podfacts"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/grant"
)

// Plan has the desired state of the cgroups of a pod.
type Plan struct {
	Pod        Target // its Cgroup is "" if the pod has no cgroup of its own
	Containers []Target
}

// Target is the desired state of one cgroup.
type Target struct {
	Container string // its ID; "" for the pod's cgroup
	Cgroup    string // path below the cgroup root
	Want      policy.Settings
	Stale     []blkio.Replacement // values of the OCI spec, see OCISpec
	// Weights has the weights of the pod as a whole, also on single disks. Those on single disks are not in
	// Want, because the Keeper that divides a disk between pods can need another value in their place.
	Weights policy.Settings
	Granted policy.Desired // for the pod's cgroup: Want without the backstop
	// Partial is true if a failure of this program hides a part of the desired settings.
	// Then the recorded settings stay.
	Partial bool
	// Ended is true if no container of the pod runs. The pod's last settings stay then, for
	// the data that its containers have left to write.
	Ended  bool
	Record record.Record
	Room   int // largest size of the record, in bytes
}

// View is the state of a pod that its plan is computed from.
type View struct {
	Pod      Pod
	Running  []Container
	Controls Controls
	Drained  bool // no container runs, and none has left data to write
	Partial  bool // a container is known in part only
}

// Pod holds the facts about the pod as a whole.
type Pod struct {
	Namespace, Name, UID string
	Cgroup               string // "" if the pod has none, or shares it
	Policy               *policy.Pod
	Seen                 []policy.Container // the containers that have been created, by name
	// Complete is true once a full pass has seen a container of the pod run. From then on,
	// targets that no container has cause a warning.
	Complete bool
	Begun    bool            // a container of the sandbox has started
	Granted  *policy.Desired // what the pod as a whole was granted last; nil for nothing
	Exits    []record.Exit   // of containers that have ended
	Live     Live
}

// Live holds the facts about changes of a pod's annotations while the pod runs.
type Live struct {
	Edit     *podfacts.Edit // nil if the annotations and labels are those that the runtime reported
	Rejected error          // the reason why a later edit does not count; nil without such an edit
	Unknown  error          // the reason why an edit of the annotations would not be known; nil if it would be
}

// Container is a running container.
type Container struct {
	ID, Name, Cgroup string
	Desired          policy.Desired
	Lent             policy.Settings // what is lent to its pod, for the record
	// Policy is the one by which Desired was decided. After a reload, the pod may already have another
	// one. It is nil for the pod's.
	Policy *policy.Pod
	// Err is why the container does not get all that it requests or, if Undecided, why that
	// is not known.
	Err  error
	Spec OCISpec
	Gaps
	// Unvetted is true while the budget of its namespace had no room for it, or could not be asked.
	Unvetted bool
}

// Gaps are what is not known about a container yet.
type Gaps struct {
	Undecided bool // its settings
	Partial   bool // some of its disks
}

// New returns the plan of a pod.
func New(v View) Plan {
	observed := v.Pod.Policy.Mode() == policy.ModeObserve
	edit := v.Pod.Live.Edit.Size()
	room := record.Room(len(v.Running), edit)
	out := Plan{}
	if v.Pod.Cgroup != "" {
		out.Pod = podTarget(&v, observed)
	}
	out.Pod.Room = min(record.MaxSize, room+edit)
	for i := range v.Running {
		if c := &v.Running[i]; c.Cgroup != "" {
			t := v.containerTarget(c, c.isObserved(observed))
			t.Room = room
			out.Containers = append(out.Containers, t)
		}
	}
	return out
}

// isObserved reports whether the settings of a container are only observed. They are as those of its pod
// if they were decided by the pod's policy.
func (c *Container) isObserved(pod bool) bool {
	if c.Policy == nil {
		return pod
	}
	return c.Policy.Mode() == policy.ModeObserve
}

// Controls describes the effect of io.max and io.weight on this node.
type Controls struct {
	Missing []string           // those that the kernel does not have
	Enabled map[blkio.Dev]bool // the disks with io.cost enabled; nil if they are not known
	// BFQ has the disks on which weights of this program work. The value is true if bfq divides the disk, by other files than io.weight.
	BFQ map[blkio.Dev]bool
}

// Work reports whether weights may have an effect on some disk.
func (c Controls) Work() bool { return c.Enabled == nil || len(c.Enabled) > 0 || len(c.BFQ) > 0 }

// effective returns the settings that can be written. The kernel refuses the weight of a single
// disk before io.cost is set up on it. A kernel without io.weight can have bfq.
func (c Controls) effective(s policy.Settings) policy.Settings {
	return s.Where(func(x policy.Setting) bool { return (x.Key != blkio.DiskWeight || c.Enabled[x.Dev]) && c.HasFile(x) })
}

// HasFile reports whether the kernel has the control file of a setting, as far as that is known.
func (c Controls) HasFile(s policy.Setting) bool { return !slices.Contains(c.Missing, s.File()) }

// warnings returns where a weight has no effect.
func (c Controls) warnings(d *policy.Desired) []string {
	switch {
	case c.Enabled == nil || len(d.Settings.In(blkio.IOWeight)) == 0:
		return nil
	case !c.Work():
		return []string{weightIdle}
	}
	var out []string
	for _, disk := range d.Weighted {
		if !c.Enabled[disk.Dev] && !c.BFQ[disk.Dev] {
			out = append(out, "the weight has no effect on "+disk.String()+": io.cost is not enabled there")
		}
	}
	return out
}

// weightIdle is the warning for a weight that the kernel takes and ignores (docs/explanation/weights.md). Enabling
// io.cost is the operator's choice, because it turns off wbt on the disk.
const weightIdle = "io.weight has no effect on this node: no disk has io.cost.qos enabled"

func (v *View) containerTarget(c *Container, observed bool) Target {
	err := c.Err
	if c.Undecided {
		err = fmt.Errorf("limits not decided yet: %w", cmp.Or(err, errPending))
	}
	t := Target{
		Container: c.ID, Cgroup: c.Cgroup, Partial: c.Partial,
		Record: v.newRecord(record.KindContainer, c.Desired, err, observed),
	}
	t.Record.Container, t.Record.ContainerID, t.Record.Unvetted = c.Name, c.ID, c.Unvetted
	t.Record.Lent = c.Lent
	if !observed {
		t.Want = v.Controls.effective(Kept(c.Desired.Settings))
	}
	if !c.Undecided {
		t.Stale = c.Spec.stale(t.Want, c.Partial && !observed)
	}
	return t
}

// errPending means that the disks of a container are not resolved yet.
var errPending = errors.New("its disks are resolved next")

// Kept returns the settings that the reconciler keeps in force. These exclude memory.high,
// which only the creation of a container sets: an operator, or a resize of the pod, may
// change it afterwards.
func Kept(s policy.Settings) policy.Settings {
	return s.Where(func(x policy.Setting) bool { return x.Key != blkio.MemoryHigh })
}

func (v *View) newRecord(kind string, d policy.Desired, err error, observed bool) record.Record {
	r := record.Record{
		Kind: kind, Namespace: v.Pod.Namespace, Pod: v.Pod.Name, UID: v.Pod.UID,
		Settings: Kept(d.Settings), Lowered: Kept(d.Lowered), Disks: d.Disks, Warnings: d.Warnings, Observed: observed,
	}
	for _, s := range d.Skipped {
		r.Skipped = append(r.Skipped, fmt.Sprintf("%q: %s", s.What, s.Reason))
	}
	if idle := v.Controls.warnings(&d); len(idle) > 0 {
		r.Warnings = slices.Concat(r.Warnings, idle)
	}
	if d.SkippedMore > 0 {
		r.Skipped = append(r.Skipped, fmt.Sprintf("and %d more", d.SkippedMore))
	}
	if err != nil {
		r.Error = err.Error()
	}
	return r
}

// podTarget is the pod total and the backstop, the lower of the two for
// each disk and key.
func podTarget(v *View, observed bool) Target {
	backstop := v.Pod.Policy.Of().Writeback.Backstop
	total, err := grant.Total(v.Pod.Policy, v.Pod.Seen, v.Pod.Granted, v.Controls.Missing)
	weights := total.Settings.In(blkio.IOWeight)
	total.Settings = total.Settings.Where(func(s policy.Setting) bool { return s.Key != blkio.DiskWeight })
	requested := total
	if !v.Pod.Begun && !v.Drained { // no limit is added to a cgroup that may go
		total.Settings = total.Settings.WithoutCarried()
	}
	var granted []policy.Desired
	for i := range v.Running {
		one := v.Running[i].Desired
		if !observed && v.Running[i].isObserved(observed) {
			one = policy.Desired{} // it runs without limits, until it is decided by the pod's policy
		}
		granted = append(granted, one)
	}
	ended := len(granted) == 0 && backstop
	if !backstop {
		granted = nil
	}
	total.Settings, total.Disks = withBackstop(total, granted)
	if v.Drained {
		// The pod's cgroup may go, and its limits would stay on the files that
		// it owns: the next pod on its volumes would have them.
		total.Settings, ended = total.Settings.Where(func(s policy.Setting) bool { return !s.Key.IsRate() }), false
	}
	if !observed {
		total.Lowered = total.Lowered.Join(requested.Settings.Without(total.Settings.Where(isRequested)))
	}
	if v.Pod.Complete {
		total.Warnings = append(total.Warnings, v.Pod.Policy.Unmatched(record.WithEnded(v.Pod.Seen, v.Pod.Exits))...)
	}
	if err := v.Pod.Live.Unknown; err != nil {
		total.Warnings = append(total.Warnings, "an edit of the annotations has no effect while the pod runs: "+err.Error())
	}
	t := Target{Cgroup: v.Pod.Cgroup, Partial: v.Partial, Ended: ended, Record: v.newRecord(record.KindPod, total, cmp.Or(v.Pod.Live.Rejected, err), observed)}
	t.Record.Exits, t.Record.Edit = v.Pod.Exits, v.Pod.Live.Edit
	t.Record.Weights = weights.Where(func(s policy.Setting) bool { return s.Key == blkio.DiskWeight })
	if !observed {
		t.Want, t.Granted, t.Weights = total.Settings, requested, weights
	} else {
		t.Granted = requested.OnlyCarried()
	}
	return t
}

// isRequested reports whether a setting of a pod was requested: it is not a backstop.
func isRequested(s policy.Setting) bool { return s.Source.Kind != policy.FromBackstop }

// withBackstop returns for each disk and key the lower one of the pod-total and the sum of the containers'
// grants.
func withBackstop(total policy.Desired, granted []policy.Desired) (policy.Settings, map[blkio.Dev]string) {
	names := []map[blkio.Dev]string{}
	for _, d := range granted {
		names = append(names, d.Disks)
	}
	out := total.Settings.Lowest(policy.Backstop(granted))
	return out, policy.DiskNames(out.Join(total.Lowered), append(names, total.Disks)...)
}
