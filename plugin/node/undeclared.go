package node

import (
	"context"
	"errors"
	"slices"

	"github.com/sirupsen/logrus"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
	"github.com/nri-blkio/nri-blkio/policy"
)

// This file finds the disks that a container uses although no mount or device declares them.

// undeclared finds the undeclared disks of containers.
type undeclared struct {
	*Node
	*sharedReads
}

// sharedReads has what is read once for all containers of a pass.
type sharedReads struct {
	stacks *inventory.Stacks
	above  *inventory.AncestorStats
}

func newSharedReads(e *environment) *sharedReads {
	return &sharedReads{inventory.NewStacks(e.storage), inventory.NewAncestorStats(e.readIOStat)}
}

func (n *Node) undeclared(shared *sharedReads) undeclared {
	return undeclared{n, shared}
}

// find finds the undeclared disks of the containers of a group. A group with a new one is not unchanged any more.
func (u *undeclared) find(ctx context.Context, g groupIdentity) {
	of := slices.DeleteFunc(u.covering(g), func(c usedDisks) bool { return !u.mayUseUndeclared(&c) })
	if len(of) == 0 {
		return
	}
	err := u.inFlight.passes.For(ctx, g.key+" undeclared", resolveDeadline, func(ctx context.Context) error {
		for _, c := range of {
			u.recovery.Step("find undeclared disks of a container", func() { u.compareUse(ctx, c.ref) })
		}
		return ctx.Err()
	})
	if err != nil && ctx.Err() == nil {
		u.log.WithError(err).WithField("cgroup", g.cgroup).Warn("Finding undeclared disks failed for some containers")
	}
}

// usedDisks is what is known of the disks that a container uses.
type usedDisks struct {
	ref        containerRef
	cgroup     string
	declared   policy.Container
	isExamined bool // the last comparison of its I/O is due, has failed, or has found something
}

// covering returns the containers of a group for which coversUndeclared holds. It leaves out those that have used no
// undeclared disk by what is known of the cgroups above them, which are nearly all.
func (u *undeclared) covering(g groupIdentity) (out []usedDisks) {
	s := u.state.Lock()
	defer u.state.Unlock()
	for _, pod := range g.in(s).pods {
		for _, c := range pod.containers {
			if !c.coversUndeclared() {
				continue
			}
			isExamined := c.use.pending || c.use.failure != nil || !c.use.seen.IsZero()
			if isExamined || !u.above.IsClear(c.cgroup, &c.disks.Facts) {
				out = append(out, usedDisks{c.ref, c.cgroup, c.disks.Facts, isExamined})
			}
		}
	}
	return out
}

// coversUndeclared reports whether a "*" of the container applies to its undeclared disks.
func (c *snapshot) coversUndeclared() bool {
	return c.mayRun() && c.cgroup != "" && c.disks.IsResolved() && c.decision.policy != nil &&
		c.decision.policy.StarOf(c.name)
}

// isPartial reports whether the plugin failed to find all disks that need limits.
func (c *snapshot) isPartial() bool {
	return !c.disks.IsResolved() || c.use.pending && c.coversUndeclared()
}

// mayUseUndeclared reports whether the I/O of a container has to be read. Most containers need no read of their
// own: no cgroup above them has used another disk than the declared disks of the container.
func (u *undeclared) mayUseUndeclared(c *usedDisks) bool {
	return c.isExamined || u.above.MayUseUndeclared(c.cgroup, &c.declared)
}

func (e *environment) readIOStat(cgroup string) (map[blkio.Dev]blkio.Stat, error) {
	return e.cgroups.Cgroup(cgroup).ReadIOStat()
}

// compareUse compares the I/O of a container with its declared disks. It reports whether its limits have to be
// decided or written again.
func (u *undeclared) compareUse(ctx context.Context, c containerRef) bool {
	old := u.snapshot(c)
	if !old.coversUndeclared() {
		return false
	}
	stats, err := u.readIOStat(old.cgroup)
	if errors.Is(err, blkio.ErrGone) || errors.Is(err, blkio.ErrNotSupported) {
		return false // it has ended, or the controller is not enabled yet
	}
	var found inventory.Usage
	if err == nil {
		var starred map[blkio.Dev]bool
		if old.use.pending {
			starred = u.starred(&old)
		}
		found, err = u.stacks.FindUndeclared(ctx, &old.disks.Facts, &old.use.seen, stats, starred)
	}
	if ctx.Err() != nil {
		return false
	}
	if err == nil {
		old.logUndeclared(u.log, found.Undeclared, stats)
	}
	return u.noteUse(c, &found, err)
}

// starred returns the disks that an earlier process has limited for a "*" of a container or of its pod, nil for none.
func (u *undeclared) starred(c *snapshot) (out map[blkio.Dev]bool) {
	s := u.state.Lock()
	defer u.state.Unlock()
	var own policy.Settings
	if c.recalled != nil {
		own = c.recalled.granted.Settings
	}
	out = map[blkio.Dev]bool{}
	for _, of := range []policy.Settings{own, c.pod.group.in(s).recorded.granted.Settings} {
		for _, x := range of {
			if x.Source.IsStar {
				out[x.Dev] = true
			}
		}
	}
	return out
}

// noteUse notes the result of a comparison. It reports whether limits have to be decided or written again.
func (u *undeclared) noteUse(of containerRef, found *inventory.Usage, err error) (changed bool) {
	s := u.state.Lock()
	defer u.state.Unlock()
	c := of.In(s)
	g := c.pod.group.in(s)
	if err != nil || c.use.failure != nil {
		g.told.look()
	}
	if err != nil { // the earlier result stays valid
		c.use.failure = err
		return false
	}
	changed = c.use.pending || !slices.Equal(found.Undeclared, c.use.seen.Undeclared)
	if c.use = (undeclaredUse{seen: *found}); changed {
		s.changed(g)
	}
	return changed
}

// logUndeclared logs those disks that the container was not known to use. The container is passed as it was
// before the comparison.
func (c *snapshot) logUndeclared(log logrus.FieldLogger, disks []blkio.Disk, stats map[blkio.Dev]blkio.Stat) {
	for _, d := range disks {
		if !slices.Contains(c.use.seen.Undeclared, d) {
			c.logger(log).WithFields(logrus.Fields{"disk": d.Name, "dev": d.Dev.String(), "used": stats[d.Dev].String()}).
				Info(`Limiting an undeclared disk`)
		}
	}
}
