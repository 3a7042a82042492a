package plugin

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/sirupsen/logrus"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
	"github.com/nri-blkio/nri-blkio/plugin/volumepath"
	"github.com/nri-blkio/nri-blkio/policy"
)

// The runtime mounts a hostPath volume after the plugin has looked where its path leads.
// A tenant that can write to a directory above the volume can lead the path elsewhere in
// between, and back again. So the disks that a container can get at are those of the
// mounts that its first process has, which the runtime has made before StartContainer.
//
// The mounts of the spec are not matched with those of the process one by one: a symbolic
// link in an image or a volume moves a mountpoint, and mounts hide one another. A disk
// under any mount of the process counts unless the container may use it anyway: it was
// known when the limits were decided, or it is under a mount without a limit, for which
// the tenant may choose the disk. Limits that were asked for a path then hold for the
// unknown disk, too: those of the spec's mount around its mountpoint, or, where none is,
// those of all that were asked for.

// isRedirectable reports whether a limit depends on where a path of the host leads that
// a tenant may be able to change. The kubelet's directories for the pod are root's.
func (p *Plugin) isRedirectable(c *container) bool {
	if p.processMounts == nil {
		return false
	}
	for i := range c.disks.source.Mounts {
		m := &c.disks.source.Mounts[i]
		if isAsked(m, &c.disks.facts.Mounts[i]) && !p.isKubelets(c.pod.uid, m.Source) {
			return true
		}
	}
	return false
}

// isAsked reports whether a target of the request means a mount of the host.
func isAsked(m *specMount, found *policy.Mount) bool {
	return m.IsBind() && !found.NotAsked
}

// isKubelets reports whether a path is one that the kubelet has made for a pod: nothing
// but root can write to the directories above it. A pod's UID is not known before the
// pod is there, so no hostPath volume of its own can name such a path.
func (p *Plugin) isKubelets(uid, source string) bool {
	v, below, ok := volumepath.Parse(volumepath.Pods(p.kubelet), source)
	if !ok || v.UID != uid {
		return false
	}
	isSubPath := v.Plugin == "" && strings.Count(below, "/") == 1 // CONTAINER/INDEX
	return below == "" || isSubPath || v.Plugin == volumepath.CSI && below == "mount"
}

// pidUntold is a container's process ID until the event of its start names the process.
// The reconciler may see the container's cgroup before that event.
const pidUntold = -1

// isToCompare reports whether the mounts of a container that runs are still to be
// compared. The caller holds Plugin.mu, or has a copy.
func (c *container) isToCompare() bool {
	return c.disks.uncompared != nil && c.mayRun() && c.pid != pidUntold
}

// compareMounts adds to the facts of a container the disks under the mounts of its first
// process that the container was not known to have.
func (p *Plugin) compareMounts(ctx context.Context, c *container) error {
	if c.pid == 0 {
		c.logger(p.log).Warn("The runtime reports no process for a container: its mounts are not compared with the node's")
		c.disks.uncompared = nil
		return nil
	}
	err := p.findStrays(ctx, c)
	if errors.Is(err, storage.ErrNoProcess) {
		if populated, unknown := p.cgroups.Cgroup(c.cgroup).Populated(); unknown == nil && !populated {
			err = nil // it has ended
		}
	}
	if err != nil {
		return fmt.Errorf("compare mounts: %w", err)
	}
	c.disks.uncompared = nil
	return nil
}

func (p *Plugin) findStrays(ctx context.Context, c *container) error {
	mounts, err := p.processMounts(ctx, c.pid, c.cgroup)
	if err != nil {
		return err
	}
	found, err := p.strays(ctx, c, mounts)
	if err != nil {
		return err
	}
	return p.addStrays(c, found)
}

// strays returns those of a process's mounts that nothing declares.
func (p *Plugin) strays(ctx context.Context, c *container, mounts []blkio.ProcessMount) ([]blkio.ProcessMount, error) {
	d := declared{write: map[blkio.Dev]bool{}, read: map[blkio.Dev]bool{}}
	root := slices.IndexFunc(mounts, func(m blkio.ProcessMount) bool { return m.IsRoot })
	d.addFacts(&c.disks.facts, len(c.disks.uncompared), root >= 0 && mounts[root].ReadOnly)
	found := d.strays(mounts)
	if len(found) == 0 {
		return nil, nil
	}
	if err := p.storage.Refresh(ctx); err != nil {
		return nil, err
	}
	if err := d.addUnasked(ctx, p.storage, c); err != nil {
		return nil, err
	}
	return d.strays(found), nil
}

// declared are the disks that a container may use as far as its limits were decided: those
// that it may write to, and those that it may only read. One value covers both where the
// container writes.
type declared struct{ write, read map[blkio.Dev]bool }

func (d *declared) add(b *blkio.Backing, readOnly bool) {
	for _, disk := range b.Disks {
		if readOnly {
			d.read[disk.Dev] = true
		} else {
			d.write[disk.Dev] = true
		}
	}
}

// addFacts adds the disks that limits were decided for. The first n mounts are those of
// the spec; devices follow, of which those of a privileged container are not limited.
func (d *declared) addFacts(facts *policy.Container, n int, readOnlyRoot bool) {
	d.add(&facts.Rootfs, readOnlyRoot)
	for i := range facts.Mounts {
		m := &facts.Mounts[i]
		if i >= n && m.Injected {
			continue
		}
		d.add(&m.Backing, m.ReadOnly)
		for k := range m.Below {
			d.add(&m.Below[k].Backing, false)
		}
	}
}

// addUnasked adds the disks that no limit is asked for: those of mounts that no target
// means, and those mounted below a volume that a path alone means.
func (d *declared) addUnasked(ctx context.Context, storage Storage, c *container) error {
	through := map[string]bool{}
	for i := range c.disks.uncompared {
		m := &c.disks.uncompared[i]
		source := path.Clean(m.Source)
		if !m.IsBind() || through[source] {
			continue
		}
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		if !isAsked(m, &c.disks.facts.Mounts[i]) {
			b := storage.Resolve(context.WithoutCancel(ctx), source)
			d.add(&b, c.disks.facts.Mounts[i].ReadOnly)
		}
		if through[source] = m.IsRecursive(); through[source] {
			for _, b := range storage.Submounts(ctx, source) {
				d.add(&b, false)
			}
		}
	}
	return context.Cause(ctx) // the last list may have ended early
}

// covers reports whether a mount of a disk is one that the container may have.
func (d *declared) covers(disk blkio.Disk, readOnly bool) bool {
	return d.write[disk.Dev] || readOnly && d.read[disk.Dev]
}

// strays returns the mounts with a disk that is not declared, or that cannot be known.
func (d *declared) strays(mounts []blkio.ProcessMount) []blkio.ProcessMount {
	var out []blkio.ProcessMount
	for _, m := range mounts {
		isStray := func(disk blkio.Disk) bool { return !d.covers(disk, m.ReadOnly) }
		if !m.IsRoot && (m.Backing.Err != nil || slices.ContainsFunc(m.Backing.Disks, isStray)) {
			out = append(out, m)
		}
	}
	return out
}

// addStrays has limits that were asked for mounts of the spec hold for the disks of mounts
// that nothing declares. The error is that of a disk that cannot be found.
func (p *Plugin) addStrays(c *container, found []blkio.ProcessMount) error {
	if len(found) == 0 {
		return nil
	}
	type place struct {
		backing  *blkio.Backing
		readOnly bool
		around   int
	}
	done := map[place]bool{} // a tenant may mount one directory a thousand times
	index := policy.IndexMounts(c.disks.facts.Mounts)
	c.disks.facts.Mounts = slices.Clone(c.disks.facts.Mounts)
	var err error
	for _, m := range found {
		at := place{m.Backing, m.ReadOnly, index.Find(m.Mountpoint)}
		if done[at] {
			continue
		}
		done[at] = true
		err = errors.Join(err, m.Backing.Err)
		if len(m.Backing.Disks) > 0 {
			c.logger(p.log).WithFields(logrus.Fields{"mountpoint": m.Mountpoint, "disks": names(m.Backing.Disks)}).
				Warn("A mount of a container is on another disk than its path on the node led to: its limits hold for that disk as well")
			p.addStray(c, &m, at.around)
		}
	}
	return err
}

// addStray adds the disks of a mount to the spec's mount around its mountpoint if that can
// be the one, or to all that can be. What the spec mounts read-only is never writable.
func (p *Plugin) addStray(c *container, m *blkio.ProcessMount, around int) {
	canBe := func(i int) bool {
		return i >= 0 && i < len(c.disks.uncompared) && isAsked(&c.disks.uncompared[i], &c.disks.facts.Mounts[i]) &&
			(m.ReadOnly || !c.disks.facts.Mounts[i].ReadOnly)
	}
	past := p.past(c.pod)
	for i := range c.disks.uncompared {
		if !canBe(i) || canBe(around) && i != around {
			continue
		}
		to := &c.disks.facts.Mounts[i]
		to.Backing, to.Below = past.both(&to.Backing, m.Backing), slices.Clone(to.Below)
		for k := range to.Below {
			to.Below[k].Backing = past.both(&to.Below[k].Backing, m.Backing)
		}
	}
}

func names(disks []blkio.Disk) string {
	var out []string
	for _, d := range disks {
		out = append(out, d.Name)
	}
	return strings.Join(out, " ")
}
