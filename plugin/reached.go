package plugin

import (
	"context"
	"errors"
	"slices"

	"github.com/sirupsen/logrus"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/policy"
)

// A container can use disks that no mount or device declares: a device node is created in
// it from outside, as KubeVirt does for a running virtual machine, a filesystem is mounted
// in its mount namespace alone, or a process passes it an open file. In each case the
// kernel charges the container's I/O in io.stat, so such a disk is found soon after its
// first use. The limits of "*" include it.
//
// A container is also charged for disks that it does not have: those under its own,
// those that the kernel swaps to, and, where it calls sync(2), those of any filesystem of
// the node, whose log it writes then. To limit it there would hold up the others who
// write to that filesystem, so a disk with one that is mounted on the node is none that a
// container comes by unseen.

// enough is the I/O, in bytes, from which an undeclared disk counts as the container's.
// Less may be a page of the runtime's program, or the superblock of a filesystem that is
// mounted or unmounted while the container calls sync(2). The smallest limit that a policy
// allows by default passes this much in 16 seconds.
const enough = 1 << 20

// findReached looks for undeclared disks of containers. What is found
// makes their groups restless.
func (p *Plugin) findReached(ctx context.Context, groups []*group) {
	of := p.reaching(groups)
	if len(of) == 0 {
		return
	}
	err := p.inFlight.passes.bounded(ctx, " reached", lookDeadline, func(ctx context.Context) error {
		stacks, sums := newStacks(p.storage), newSums(p.cgroups)
		for _, c := range of {
			if !p.mayHaveReached(sums, c) {
				continue
			}
			if p.reach(ctx, stacks, c); ctx.Err() != nil {
				return ctx.Err()
			}
		}
		return nil
	})
	if err != nil && ctx.Err() == nil {
		p.log.WithError(err).Warn("Finding undeclared disks failed for some containers")
	}
}

// reaching returns the containers of groups for which mayReach holds.
func (p *Plugin) reaching(groups []*group) []*container {
	out := make([]*container, 0, 2*len(groups))
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, g := range groups {
		for _, pod := range g.pods {
			for _, c := range pod.containers {
				if c.mayReach() {
					out = append(out, c)
				}
			}
		}
	}
	return out
}

// mayReach says that a "*" means what a container is seen to use. The caller holds
// Plugin.mu.
func (c *container) mayReach() bool {
	return c.mayRun() && c.cgroup != "" && c.disks.source == nil && c.decision.policy != nil &&
		c.pod.request().StarOf(c.name) && c.decision.policy.CheckRuntime(c.pod.request(), c.pod.handler) == nil
}

// isPartial says that not all disks that are to be limited are known, by a failure of
// ours. The caller holds Plugin.mu.
func (c *container) isPartial() bool { return c.disks.source != nil || c.use.unjudged && c.mayReach() }

// mayHaveReached spares most containers a look of their own: there is nothing to find
// where no cgroup above has used another disk than the declared ones of the container.
func (p *Plugin) mayHaveReached(sums sums, c *container) bool {
	now := p.snapshot(c)
	known := now.use.unjudged || now.use.notJudged != "" || len(now.use.reached) > 0 || len(now.use.charged) > 0
	return known || sums.untold(now.cgroup, &now.disks.facts)
}

// sums are the counters of cgroups that have others below, as one pass reads them. They
// count what those below did, too, and keep what removed ones did.
type sums struct {
	cgroups *cgroupfs.Hierarchy
	read    map[string]sum // by path
}

type sum struct {
	stats map[blkio.Dev]blkio.Stat
	err   error
}

func newSums(cgroups *cgroupfs.Hierarchy) sums { return sums{cgroups, map[string]sum{}} }

// untold reports whether a container may be charged on an undeclared disk, by what
// is above it, from the top: the first is above all pods and often answers for all.
func (s sums) untold(cgroup string, facts *policy.Container) bool {
	for i, r := range cgroup {
		if r == '/' && !s.of(cgroup[:i]).anyUntold(facts) {
			return false
		}
	}
	return true
}

func (s sums) of(cgroup string) sum {
	one, known := s.read[cgroup]
	if !known {
		one.stats, one.err = s.cgroups.Cgroup(cgroup).ReadIOStat()
		s.read[cgroup] = one
	}
	return one
}

// anyUntold also says so where nothing is known: the container's own will tell.
func (s sum) anyUntold(facts *policy.Container) bool {
	if s.err != nil {
		return true
	}
	for dev, stat := range s.stats {
		if stat.Bytes() > 0 && !isTold(facts, dev) {
			return true
		}
	}
	return false
}

// reach looks at what a container is charged with, and reports whether there is something
// to decide or to write anew.
func (p *Plugin) reach(ctx context.Context, stacks *stacks, c *container) bool {
	old, wanted := p.snapshotIf(c, (*container).mayReach)
	if !wanted {
		return false
	}
	stats, err := p.cgroups.Cgroup(old.cgroup).ReadIOStat()
	if errors.Is(err, blkio.ErrGone) || errors.Is(err, blkio.ErrNotSupported) {
		return false // it has ended, or the controller is yet to come
	}
	var found judgement
	if err == nil {
		var starred map[blkio.Dev]bool
		if old.use.unjudged {
			starred = p.starred(old.cgroup, c.pod.group.cgroup)
		}
		found, err = stacks.judge(ctx, &old, stats, starred)
	}
	if ctx.Err() != nil {
		return false
	}
	again, changed := p.judged(c, &found, err)
	switch {
	case again:
	case err != nil:
		old.logger(p.log).WithError(err).Warn("Finding undeclared disks of a container failed")
	default:
		old.tellReached(p.log, found.reached, stats)
	}
	return changed
}

// judged notes what a look found. It reports whether that failed as it did before, and
// whether there is something to decide or to write anew.
func (p *Plugin) judged(c *container, found *judgement, err error) (again, changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil { // what was found holds
		again = err.Error() == c.use.notJudged
		c.use.notJudged = err.Error()
		return again, false
	}
	changed = c.use.unjudged || !slices.Equal(found.reached, c.use.reached)
	c.use.reached, c.use.charged, c.use.unjudged, c.use.notJudged = found.reached, found.charged, false, ""
	if changed {
		c.pod.group.changed()
	}
	return false, changed
}

// tellReached logs those disks that the container, as it was before, was not known to use.
func (c *container) tellReached(log logrus.FieldLogger, reached []blkio.Disk, stats map[blkio.Dev]blkio.Stat) {
	for _, d := range reached {
		if !slices.Contains(c.use.reached, d) {
			c.logger(log).WithFields(logrus.Fields{"disk": d.Name, "dev": d.Dev.String(), "used": stats[d.Dev].String()}).
				Info(`Limiting an undeclared disk`)
		}
	}
}

// starred are the disks that an earlier process has limited for a "*" by the records of
// a container and of its pod. What it found stays found.
func (p *Plugin) starred(container, pod string) map[blkio.Dev]bool {
	out := map[blkio.Dev]bool{}
	for kind, cgroup := range map[string]string{record.KindContainer: container, record.KindPod: pod} {
		if cgroup == "" {
			continue
		}
		r, err := record.Read(p.cgroups.Cgroup(cgroup), kind)
		if err != nil || r == nil || r.Observed {
			continue // who writes the record next tells what is wrong with it
		}
		for _, s := range r.Settings {
			if s.Source.IsStar {
				out[s.Dev] = true
			}
		}
	}
	return out
}
