package inventory

import (
	"cmp"
	"path"
	"slices"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// Container is what is known of the disks of one container. The zero value is a container
// without a description, of which nothing is to be found.
type Container struct {
	Facts policy.Container
	// Unresolved are mounts that no target of the request means, and that the container can
	// write to.
	Unresolved []UnresolvedMount

	spec *Spec // nil once all of it is resolved
	// follows is the description that another look needs, for a container whose disks may
	// become others while it runs, otherwise nil. propagates is true if that happens as the
	// host mounts something.
	follows    *Spec
	propagates bool
	found      bool // there was a look
	// uncompared are its mounts in the OCI spec, until those that its first process has
	// were compared with them; nil if no path on the host can have been led elsewhere.
	uncompared []Mount
}

// UnresolvedMount is a mount of which not all was resolved: only what a target means is.
type UnresolvedMount struct {
	Source      string // on the host
	Self, Below bool   // what is to be resolved: it, the mounts below it
}

// NewContainer returns a container of which nothing was found yet.
func NewContainer(spec *Spec) Container {
	return Container{spec: spec, Facts: policy.Container{Name: spec.Name}}
}

// IsResolved reports whether there is nothing left to find.
func (c *Container) IsResolved() bool { return c.spec == nil }

// Follows reports whether the disks may become others while the container runs.
func (c *Container) Follows() bool { return c.follows != nil }

// Propagates reports whether the disks may become others as the host mounts something.
func (c *Container) Propagates() bool { return c.propagates }

// LookAgain has the disks found again if they may have become others. It reports whether they
// may.
func (c *Container) LookAgain() bool {
	if c.follows != nil {
		c.spec = c.follows
	}
	return c.follows != nil
}

// IsUncompared reports whether the mounts of the first process are still to be compared with
// the spec, see Finder.Compare.
func (c *Container) IsUncompared() bool { return c.uncompared != nil }

// SetCompared ends the comparison: the container has no process.
func (c *Container) SetCompared() { c.uncompared = nil }

// Err returns why the disks of a mount could not be found.
func (c *Container) Err() error {
	err := c.Facts.Rootfs.Err
	for i := range c.Facts.Mounts {
		m := &c.Facts.Mounts[i]
		err = cmp.Or(err, m.Backing.Err)
		for k := range m.Below {
			err = cmp.Or(err, m.Below[k].Backing.Err)
		}
	}
	return err
}

// unresolved returns the mounts that a container can write to, or below, and of which not all
// was resolved.
func (s *Spec) unresolved(found []policy.Mount) []UnresolvedMount {
	var out []UnresolvedMount
	for i := range s.Mounts {
		m, known := &s.Mounts[i], &found[i]
		u := UnresolvedMount{
			Source: m.Source,
			Self:   known.Backing.Unresolved && !known.ReadOnly,
			Below:  m.IsBind() && m.IsRecursive(), // read-only does not reach those
		}
		if u.Self || u.Below {
			out = append(out, u)
		}
	}
	return out
}

// propagates reports whether a target can mean what the host mounts on a volume, or below
// it, later.
func (s *Spec) propagates(req *annotation.Request) bool {
	return slices.ContainsFunc(s.Mounts, func(m Mount) bool {
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
