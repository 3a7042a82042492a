package enforce

import (
	"maps"
	"slices"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/enforce/plan"
	"github.com/nri-blkio/nri-blkio/policy"
)

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
