package plugin

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
)

// A container's record goes with its cgroup, but what it has dirtied may belong
// to that cgroup for long, and drains at its limits if they were not lifted. So
// its end is noted in the record of the pod, for status to say whose it is.

const (
	// maxExits and maxExitBytes are what a record has room for: the kernel
	// takes 64 KiB.
	maxExits     = 16
	maxExitBytes = 8 << 10
)

// ExitRecord is the end of one container of a pod.
type ExitRecord struct {
	Container string `json:"container"`
	// CgroupIDs are the numbers of its cgroup and of those that the runtime
	// had made below, see cgroupfs.Cgroup.IDs.
	CgroupIDs []uint64 `json:"cgroupIDs"`
	// Limits are lines of io.max: the limits on writes that its cgroup has for
	// ever. Empty where they were lifted in time, or where there were none.
	Limits []string  `json:"limits,omitempty"`
	At     time.Time `json:"at"` // UTC, to the second
}

// DevLimits are the limits that were left, by device; nil where a later program's
// cannot be read.
func (e *ExitRecord) DevLimits() map[blkio.Dev]blkio.Limits {
	limits, err := blkio.ParseIOMax(strings.NewReader(strings.Join(e.Limits, "\n")))
	if err != nil {
		return nil
	}
	return limits
}

func (e ExitRecord) equal(o ExitRecord) bool {
	return e.Container == o.Container && slices.Equal(e.CgroupIDs, o.CgroupIDs) &&
		slices.Equal(e.Limits, o.Limits) && e.At.Equal(o.At)
}

// size is about what the entry takes in a record.
func (e ExitRecord) size() int {
	n := 80 + len(e.Container) + 21*len(e.CgroupIDs)
	for _, l := range e.Limits {
		n += len(l) + 3
	}
	return n
}

// withExits joins two lists, the later one second, and keeps the newest. It
// changes neither: plans have them.
func withExits(before, after []ExitRecord) []ExitRecord {
	var out []ExitRecord
	for _, e := range before {
		again := func(n ExitRecord) bool { return slices.Equal(n.CgroupIDs, e.CgroupIDs) }
		if !slices.ContainsFunc(after, again) {
			out = append(out, e)
		}
	}
	out = append(out, after...)
	size := 0
	for i, e := range slices.Backward(out) {
		if size += e.size(); size > maxExitBytes || len(out)-i > maxExits {
			return out[i+1:]
		}
	}
	return out
}

// stays are the limits on writes that a container has now, as lines of io.max.
func stays(c *container) []string {
	var out []string
	for _, d := range c.desired.Disks {
		line := blkio.DevLimits{Dev: d.Disk.Dev}
		for _, k := range []blkio.Key{blkio.Wbps, blkio.Wiops} {
			if d.Limits[k] != blkio.Max {
				line.Limits[k] = d.Limits[k]
			}
		}
		if !line.Limits.IsZero() {
			out = append(out, line.String())
		}
	}
	return out
}

// identify finds the numbers of a container's cgroup while it is there. That is
// done once.
func (p *Plugin) identify(c *change) {
	if c.target == nil || c.owner == nil || !p.unidentified(c.owner) {
		return
	}
	ids, err := c.cg.IDs()
	if err != nil {
		return // it is gone, or the next look finds them
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.owner.running {
		c.owner.cgroupIDs = ids
	}
}

func (p *Plugin) unidentified(c *container) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return c.running && c.cgroupIDs == nil
}

// noteExit notes the end of a container, and has the reconciler record it. lifted
// says that none of its limits are left.
func (p *Plugin) noteExit(c *container, lifted bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.noteExit(lifted)
	p.markDirty(c.pod.group)
}

// noteExit does so once for each cgroup. The caller holds Plugin.mu.
func (c *container) noteExit(lifted bool) {
	ids := c.cgroupIDs
	c.cgroupIDs = nil
	if ids == nil || c.policy != nil && c.policy.Mode == policy.ModeObserve {
		return
	}
	e := ExitRecord{Container: c.name, CgroupIDs: ids, At: time.Now().UTC().Truncate(time.Second)}
	if !lifted {
		e.Limits = stays(c)
	}
	g := c.pod.group
	g.exits = withExits(g.exits, []ExitRecord{e})
	g.changed()
}

// recall takes over what the record of a pod says of containers that ended
// before this program's start, and of what the pod was granted. It reads until that succeeds once. The caller is the one
// who writes to the group.
func (p *Plugin) recall(g *group) error {
	if p.isRecalled(g) {
		return nil
	}
	r, err := ReadRecord(p.cgroups.Cgroup(g.cgroup), KindPod)
	switch {
	case errors.Is(err, blkio.ErrGone):
		return nil // not there yet
	case err != nil && !errors.Is(err, errRecord):
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	g.recalled = true
	if r != nil {
		g.exits, g.granted = withExits(r.Exits, g.exits), r.granted()
	}
	return nil
}

func (p *Plugin) isRecalled(g *group) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return g.recalled || g.cgroup == ""
}

// withEnded adds to the containers that came those that a record knows to have ended. Of
// these the name is known and nothing else.
func withEnded(seen []policy.Container, exits []ExitRecord) []policy.Container {
	for _, e := range exits {
		if !slices.ContainsFunc(seen, func(c policy.Container) bool { return c.Name == e.Container }) {
			seen = append(seen, policy.Container{Name: e.Container, Unknown: true})
		}
	}
	return seen
}
