package policy

import "github.com/nri-blkio/nri-blkio/blkio"

// byName limits the disks whose names match a glob: those under the root filesystems and the volumes, those below
// them, and those that are seen to be used. I/O to a disk is I/O to the disks below it as well, and the kernel
// limits it on each.
//
// Other disks of the node get no limit, although the operator writes the entry: the container has no I/O there,
// and each line costs memory in the kernel and room in the record. If it begins to use one, that is seen.
func (e *evaluation) byName(cs []Container) {
	matched, isUnknown := false, false
	for i := range cs {
		c := &cs[i]
		one := func(b *blkio.Backing, what string) {
			if b.Err != nil { // it is unknown whether there is a disk
				if !e.missed && hasLimit(e.values) {
					e.missed = true
					e.fail(e.unlimited(c, b, what))
				}
				return
			}
			found := blkio.Backing{Warning: b.Warning}
			for _, d := range b.Disks {
				isUnknown = isUnknown || d.Dev.IsUnknown()
				found.Disks = e.appendMatching(found.Disks, c, d)
				for _, below := range c.Under[d.Dev] {
					found.Disks = e.appendMatching(found.Disks, c, below)
				}
			}
			if len(found.Disks) > 0 {
				matched = true
				e.apply(&found, what, e.values)
			}
		}
		one(&c.Rootfs, "rootfs")
		for k := range c.Mounts {
			m := &c.Mounts[k]
			if m.Injected {
				continue
			}
			one(m.Backing, m.Destination)
			for n := range m.Below {
				one(m.Below[n].Backing, m.Below[n].Path)
			}
		}
		one(&blkio.Backing{Disks: c.Undeclared}, "what it uses")
	}
	switch {
	case matched || e.missed:
	case isUnknown:
		e.skip(e.entry.Target.Text, "only a node shows the names of the disks")
	default:
		e.skip(e.entry.Target.Text, "no disk of the container has such a name")
	}
}

// appendMatching adds a disk whose name the current entry matches.
func (e *evaluation) appendMatching(to []blkio.Disk, c *Container, d blkio.Disk) []blkio.Disk {
	if d.Dev.IsUnknown() || !e.entry.Target.MatchesDisk(d.Name, c.Links[d.Dev]) {
		return to
	}
	return append(to, d)
}
