package plugin

import (
	"context"
	"errors"
	"path"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
)

// exitPlan is what is to be done when a container ends, as of the last look at it. What
// has to be synced is found at its end, see findUnsynced: by then no caller waits.
type exitPlan struct {
	limits  policy.Settings    // of io.max of its cgroup, to be lifted
	limited map[blkio.Dev]bool // disks with a limit on writes, its own or the pod's
}

// nothing reports whether no limit is on what the container writes.
func (e *exitPlan) nothing() bool { return len(e.limited) == 0 }

func exitPlanOf(own, pod policy.Settings) exitPlan {
	limited := map[blkio.Dev]bool{}
	for _, all := range []policy.Settings{own, pod} {
		for _, s := range all {
			if s.LimitsWrites() {
				limited[s.Dev] = true
			}
		}
	}
	return exitPlan{own.In(blkio.IOMax), limited}
}

// tidyPatience is what one pod's turn is waited for: with a disk that does not
// answer, one may not end.
const tidyPatience = time.Minute

// tidy has the kernel let go of what the dead keep, pod by pod: it takes CPU time.
func (p *Plugin) tidy(ctx context.Context, g *group) {
	select {
	case p.exits.tidying <- struct{}{}:
		defer func() { <-p.exits.tidying }()
	case <-ctx.Done():
		return
	case <-time.After(tidyPatience):
		p.log.WithField("cgroup", g.cgroup).Warnf("Releasing files of ended containers is delayed: another pod's release took more than %v", tidyPatience)
		return
	}
	p.dropCache(g)
	p.releaseDead(g)
}

// dropCache has the page cache of a pod forgotten in which nothing runs any more:
// pages that stay charged to the dead would keep their files from ever being
// anybody else's, such as the next pod's on the same volume.
func (p *Plugin) dropCache(g *group) {
	v := p.viewOf(g)
	if !v.Drained || v.shared || v.cgroup == "" || len(p.strangers(&v)) > 0 {
		return
	}
	err := p.cgroups.Cgroup(g.cgroup).DropCache()
	if err != nil && !errors.Is(err, blkio.ErrGone) && !errors.Is(err, blkio.ErrNotSupported) {
		p.log.WithError(err).WithField("cgroup", g.cgroup).Warn("Dropping the page cache of an ended pod failed: its files may stay with a removed cgroup")
	}
}

// releaseDead has files of dead cgroups given to living ones: that of a container
// that has been synced is removed or about to be, and so may that of its pod.
func (p *Plugin) releaseDead(g *group) {
	if g.cgroup == "" || !p.releases() {
		return
	}
	// The root's directory is not writable without a capability.
	if err := p.cgroups.Cgroup(path.Dir(g.cgroup)).ReleaseDeadOwners(); err != nil {
		p.log.WithError(err).Warn("Releasing files of ended containers failed")
	}
}

// releases reports whether the kernel may be made to move the inodes of removed cgroups:
// the policy can ask for that on a kernel that is not known to contain the corrections.
func (p *Plugin) releases() bool {
	return p.kernel.Corrected() || p.policy.Load().Writeback.Repair == policy.RepairOn
}

// sayReleases logs what ended containers keep on such a kernel.
func (p *Plugin) sayReleases() {
	if !p.releases() {
		p.log.WithField("kernel", p.kernel.String()).
			Info("Files of ended containers keep their owner until the kernel releases them (writeback.repair: true overrides this)")
	}
}

// end closes a container in the drain. The caller holds Plugin.mu.
func (g *group) end(id string, written bool) {
	g.drain.End(id, written)
	g.changed()
}
