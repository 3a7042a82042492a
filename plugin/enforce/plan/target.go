package plan

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/grant"
)

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
