package node

import (
	"slices"
	"strings"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/enforce"
	"github.com/nri-blkio/nri-blkio/policy"
)

// Another program that sets its own limits on a pod's cgroup, such as a CSI driver, gets its way at an address after it has
// replaced the value of the plugin some times within a while.
const (
	maxReplaced = 3
	contestTime = 10 * time.Minute
)

// foreign has what other programs set in io.max of a group's pod cgroup.
type foreign struct {
	stay     policy.Settings // their limits, as they were last read
	contests map[blkio.Address]contest
	// failed is true after a comparison that could not write what is desired: the next one finds a difference that no other
	// program has made.
	failed bool
}

// contest counts how often another program has replaced a value that was in force.
type contest struct {
	replaced int
	last     time.Time
}

// isOver reports whether the other program has won, for a while.
func (c contest) isOver(now time.Time) bool {
	return c.replaced >= maxReplaced && now.Sub(c.last) < contestTime
}

func (t *podTable) isContested(g groupIdentity, at blkio.Address) bool {
	s := t.state.Lock()
	defer t.state.Unlock()
	return g.in(s).foreign.contests[at].isOver(time.Now())
}

// noteForeign notes limits of other programs after a comparison, and logs them if they are others than before.
func (a applier) noteForeign(g groupIdentity, r *enforce.Result) {
	if r.Target.Container != "" || !r.Compared || !a.pods.noteForeign(g, r, time.Now()) {
		return
	}
	var texts []string
	for _, s := range r.Foreign {
		texts = append(texts, s.OnDisk(r.Target.Record.Disks))
	}
	if len(texts) > 0 {
		a.log.WithField("cgroup", r.Target.Cgroup).WithField("limits", strings.Join(texts, ", ")).Warn("Another program limits the pod's cgroup: its limits stay")
	}
}

// noteForeign reports whether the limits of other programs are others than before.
func (t *podTable) noteForeign(g groupIdentity, r *enforce.Result, now time.Time) (isNew bool) {
	s := t.state.Lock()
	defer t.state.Unlock()
	f := &g.in(s).foreign
	replaced := r.Replaced
	if f.failed {
		replaced = nil
	}
	f.failed = r.Err != nil
	for _, at := range replaced {
		c := f.contests[at]
		if now.Sub(c.last) >= contestTime {
			c.replaced = 0
		}
		c.replaced, c.last = c.replaced+1, now
		if f.contests == nil {
			f.contests = map[blkio.Address]contest{}
		}
		f.contests[at] = c
	}
	isNew = !slices.Equal(f.stay, r.Foreign)
	f.stay = r.Foreign
	return isNew
}
