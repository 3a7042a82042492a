package plugin

import (
	"cmp"
	"maps"
	"path"
	"slices"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
)

// mayChange notes whether the disks of a resolved container can become
// others while it runs.
func (c *container) mayChange() {
	c.disks.propagates = propagates(c.pod.request(), c.disks.source)
	if c.disks.follows = nil; c.disks.propagates || grows(&c.disks.facts) {
		c.disks.follows = c.disks.source
	}
}

// propagates reports whether a target can mean what the host mounts on a volume, or below
// it, later.
func propagates(req *policy.Request, spec *containerSpec) bool {
	return slices.ContainsFunc(spec.Mounts, func(m specMount) bool {
		return m.IsPropagated() && (req.Star() || len(req.Volumes()) > 0 || hasPathIn(req.Paths(), path.Clean(m.Destination)))
	})
}

// grows reports whether something is on a filesystem that can be given more disks, or on
// a device that is away.
func grows(facts *policy.Container) bool {
	can := func(b *blkio.Backing) bool { return b.Missing || b.FSType == "btrfs" || b.FSType == "bcachefs" }
	return can(&facts.Rootfs) || slices.ContainsFunc(facts.Mounts, func(m policy.Mount) bool {
		return can(&m.Backing) || slices.ContainsFunc(m.Below, func(b policy.Below) bool { return can(&b.Backing) })
	})
}

// past is what accrue needs beside the facts.
type past struct {
	paths []string             // that the request names, sorted
	gone  func(blkio.Dev) bool // reports whether the node has no such disk
}

func (p *Plugin) past(pod *pod) past {
	return past{pod.request().Paths(), p.isGone}
}

// accrue adds to what was found in a running container what was found before. A disk
// that it could write to once is limited for as long as it runs: what the host has
// unmounted, the container may still have, in another place or as an open file. A disk
// that the node has no more is not added: it is found again if it comes back.
func (p past) accrue(facts, before *policy.Container) {
	facts.Rootfs = p.both(&facts.Rootfs, &before.Rootfs)
	if len(facts.Mounts) != len(before.Mounts) {
		return // it was not resolved before
	}
	for i := range facts.Mounts {
		p.accrueMount(&facts.Mounts[i], &before.Mounts[i])
	}
}

func (p past) accrueMount(m, old *policy.Mount) {
	below := map[string]blkio.Backing{}
	var unmounted []policy.Below
	for _, b := range old.Below {
		if p.isNamed(b.Path) {
			below[b.Path] = b.Backing
		} else {
			unmounted = append(unmounted, b) // or not: then it is among the new ones
		}
	}
	for _, b := range m.Below {
		// A path that led elsewhere has led to what was there.
		below[b.Path] = p.both(&b.Backing, old.BackingOf(b.Path))
	}
	m.Backing = p.both(&m.Backing, &old.Backing)
	p.addDisks(m, below, unmounted)
	m.Below = nil
	for _, path := range slices.Sorted(maps.Keys(below)) {
		m.Below = append(m.Below, policy.Below{Path: path, Backing: below[path]})
	}
}

// isNamed reports whether the request names a path that is at dir or below it.
func (p past) isNamed(dir string) bool { return hasPathIn(p.paths, dir) }

// addDisks adds the disks of mounts that only "*" means: one entry for all of them that
// no other entry has. A container that others mount into, such as one with the kubelet's
// directory, comes by thousands of such mounts, and by few disks.
func (p past) addDisks(m *policy.Mount, below map[string]blkio.Backing, unmounted []policy.Below) {
	seen := map[blkio.Dev]bool{}
	note := func(b *blkio.Backing) {
		for _, d := range b.Disks {
			seen[d.Dev] = true
		}
	}
	if !m.ReadOnly { // which the mounts below it are not
		note(&m.Backing)
	}
	for _, b := range below {
		note(&b)
	}
	at, rest := "", blkio.Backing{}
	for _, b := range unmounted {
		for _, d := range b.Backing.Disks {
			if seen[d.Dev] || p.gone(d.Dev) {
				continue
			}
			seen[d.Dev] = true
			if at == "" {
				at, rest = b.Path, b.Backing
				rest.Disks, rest.Mountpoint = nil, "" // it is no more to be synced there
			}
			rest.Disks = append(rest.Disks, d)
		}
	}
	if at == "" {
		return
	}
	slices.SortFunc(rest.Disks, func(a, b blkio.Disk) int { return a.Dev.Compare(b.Dev) })
	if now, taken := below[at]; taken { // one without these disks is mounted there now
		rest = p.both(&now, &rest)
	}
	below[at] = rest
}

// both is a backing with the disks of an earlier one as well.
func (p past) both(now, before *blkio.Backing) blkio.Backing {
	if len(before.Disks) == 0 {
		return *now
	}
	if len(now.Disks) == 0 {
		out := *before
		out.Err = now.Err // it is to be looked at again
		out.Missing = out.Missing || now.Missing
		return out
	}
	out := *now
	out.Disks = slices.Clone(now.Disks)
	for _, d := range before.Disks {
		if !slices.Contains(out.Disks, d) && !p.gone(d.Dev) {
			out.Disks = append(out.Disks, d)
		}
	}
	slices.SortFunc(out.Disks, func(a, b blkio.Disk) int { return a.Dev.Compare(b.Dev) })
	out.Warning = cmp.Or(now.Warning, before.Warning)
	return out
}

// MountsChanged resolves those containers again that receive mounts of the host while they
// run. It does not wait for that.
func (p *Plugin) MountsChanged() {
	p.lookAgain(func(c *container) bool { return c.disks.propagates })
}

// DisksChanged reconciles all pods now instead of at the next resync, because a disk that
// was removed lost its limits, and may have returned. Containers whose disks may have
// changed are resolved again. It does not wait for that.
func (p *Plugin) DisksChanged() {
	p.lookAgain(func(c *container) bool { return c.disks.follows != nil })
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
			if c.mayRun() && of(c) {
				c.lookAgain()
				p.markDirty(pod.group)
			}
		}
	}
}

// lookAgain has settle look into a container once more, if its disks may have become
// others. The caller holds mu.
func (c *container) lookAgain() {
	if c.disks.follows != nil {
		c.disks.source, c.look.again = c.disks.follows, true
	}
}

// beginLook returns a copy of a container to look into. What changes from now on may
// be missed by that look.
func (p *Plugin) beginLook(c *container) container {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.look.again, c.look.began = false, time.Now()
	return *c
}

// endLook gives the token back that was taken for a look.
func (p *Plugin) endLook(c *container) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.look.began = time.Time{}
	<-c.look.token
}
