package plugin

import (
	"slices"
	"strings"

	"github.com/containerd/nri/pkg/api"

	"github.com/nri-blkio/nri-blkio/policy"
)

// mayChange notes whether the disks of a container that was looked into can become
// others while it runs.
func (c *container) mayChange() {
	c.propagates, c.grows = propagates(c.pod.request, c.source), grows(&c.facts)
	if c.follows = nil; c.propagates || c.grows {
		c.follows = c.source
	}
}

// propagates says whether a target can mean what the host mounts below a volume later
// (its mountPropagation: HostToContainer is rslave, Bidirectional rshared).
func propagates(req *policy.Request, ctr *api.Container) bool {
	return slices.ContainsFunc(ctr.GetMounts(), func(m *api.Mount) bool {
		if !slices.ContainsFunc(m.GetOptions(), isPropagated) {
			return false
		}
		dir := strings.TrimSuffix(m.GetDestination(), "/")
		return req.Star() || slices.ContainsFunc(below(req.Paths(), dir), func(p string) bool { return len(p) > len(dir)+1 })
	})
}

func isPropagated(option string) bool {
	switch option {
	case "slave", "rslave", "shared", "rshared":
		return true
	}
	return false
}

// grows says whether something is on a filesystem that can be given more disks.
func grows(facts *policy.Container) bool {
	can := func(fstype string) bool { return fstype == "btrfs" || fstype == "bcachefs" }
	return can(facts.Rootfs.FSType) || slices.ContainsFunc(facts.Mounts, func(m policy.Mount) bool {
		return can(m.Backing.FSType) || slices.ContainsFunc(m.Below, func(b policy.Below) bool { return can(b.Backing.FSType) })
	})
}

// MountsChanged has the containers looked into again that mounts of the host come
// into while they run. It does not wait for that.
func (p *Plugin) MountsChanged() {
	p.lookAgain(func(c *container) bool { return c.propagates })
}

// DisksChanged has all pods looked at now, not as late as with the next resync: a disk
// that left took its limits along, and may be back. Containers whose filesystems may
// have other disks now are looked into again. It does not wait for that.
func (p *Plugin) DisksChanged() {
	p.lookAgain(func(c *container) bool { return c.grows })
	select {
	case p.look <- struct{}{}:
	default: // that is to come
	}
}

func (p *Plugin) lookAgain(of func(*container) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, pod := range p.pods {
		for _, c := range pod.containers {
			if c.running && of(c) {
				c.source, c.again = c.follows, true
				p.markDirty(pod.group)
			}
		}
	}
}

// beginLook returns a copy of a container to look into. What changes from now on may
// be missed by that look.
func (p *Plugin) beginLook(c *container) container {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.again = false
	return *c
}
