package enforce

import (
	"maps"
	"slices"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/plugin/enforce/plan"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/policy"
)

// Written has the settings that this process wrote to the cgroups of a pod. The records have them as well, unless a record
// could not be stored. The zero value is empty. Only one goroutine at a time may use it.
type Written struct {
	of     map[string]record.Record // with Settings and Disks, by the path of the cgroup
	raised map[place]blkio.Amount   // what limits are raised by, see Targets.Raise
}

// recall returns the record of a target's cgroup, with what this process wrote there and the record does not have. old is
// nil if the cgroup has no record.
func (w *Written) recall(t *plan.Target, old *record.Record) *record.Record {
	written := w.of[t.Cgroup]
	switch {
	case len(written.Settings) == 0 && old == nil:
		return &record.Record{}
	case len(written.Settings) == 0, old != nil && !old.Observed && slices.Equal(old.Settings, written.Settings):
		return old
	}
	known := t.Record.Identity()
	if old != nil && !old.Observed { // observed settings were never written
		known = *old
	}
	known.Add(&written, written.Settings)
	return &known
}

// note notes what was written to a cgroup. After an error, some of the earlier settings may still be there.
func (w *Written) note(c *change) {
	now := record.Record{Settings: c.Want, Disks: c.record.Disks}
	if before := w.of[c.Target.Cgroup]; c.Err != nil {
		now.Add(&before, before.Settings)
	}
	switch {
	case len(now.Settings) == 0:
		delete(w.of, c.Target.Cgroup)
	case w.of == nil:
		w.of = map[string]record.Record{c.Target.Cgroup: now}
	default:
		w.of[c.Target.Cgroup] = now
	}
}

// Left returns what was written to one cgroup alone, and false for nothing.
func (w *Written) Left(cgroup string) (Written, bool) {
	r, found := w.of[cgroup]
	return Written{of: map[string]record.Record{cgroup: r}}, found
}

func (w *Written) sweep(cgroups *cgroupfs.Hierarchy) {
	for path := range w.of {
		if !cgroups.Cgroup(path).Exists() {
			delete(w.of, path)
		}
	}
}

// place is a value of a cgroup.
type place struct {
	cgroup string
	blkio.Address
}

// Raise selects the limits that the next Apply raises to their bursts. It raises the backstop of the pod by what those of its
// containers are raised. It reports whether that is a change.
func (t *Targets) Raise(isRaised func(cgroup string, at blkio.Address) bool) (changed bool) {
	above := map[place]blkio.Amount{}
	add := func(of *plan.Target) {
		for _, s := range of.Want {
			if s.Burst.Rate <= s.Amount || !isRaised(of.Cgroup, s.Address) {
				continue
			}
			above[place{of.Cgroup, s.Address}] = s.Burst.Rate - s.Amount
			if b, found := t.Pod.Want.Get(s.Address); found && of.Container != "" && b.Source.Kind == policy.FromBackstop {
				above[place{t.Pod.Cgroup, s.Address}] += s.Burst.Rate - s.Amount
			}
		}
	}
	for i := range t.Containers {
		add(&t.Containers[i])
	}
	add(&t.Pod)
	if maps.Equal(above, t.written.raised) {
		return false
	}
	t.written.raised = above
	t.pod = seen{}
	clear(t.containers)
	return true
}

// raise returns the desired settings of a cgroup with those that are raised. They may be of a later plan than the raised ones.
func (w *Written) raise(cgroup string, want policy.Settings) policy.Settings {
	if len(w.raised) == 0 {
		return want
	}
	out := slices.Clone(want)
	for i, s := range out {
		switch above := w.raised[place{cgroup, s.Address}]; {
		case above == 0:
		case s.Burst.Rate > s.Amount:
			out[i].Amount = s.Burst.Rate
		case s.Source.Kind == policy.FromBackstop:
			out[i].Amount += above
		}
	}
	return out
}
