// Package inventory finds the disks of containers: those of the writable layer, of the
// mounts, and of the devices. It makes no decisions about limits.
package inventory

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math"
	"path"
	"slices"
	"strings"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// Container has the disks of one container, as far as they were found. The zero value is a
// container without an OCI spec, for which there is nothing to find.
type Container struct {
	Facts policy.Container
	// Strays are the filesystems that Compare found writable in the container and that its OCI spec
	// does not lead to, each by its mountpoint on the node. Their disks are part of Facts.
	Strays []blkio.Backing
	// Added are the mounts that Compare found on other disks than the OCI spec leads to, one for each set of disks.
	Added []blkio.ProcessMount

	// Size is the memory in bytes that the facts of the OCI spec take.
	Size int

	spec *Spec // nil once all its disks are found
	// kept is the OCI spec, to find the disks again: of further targets, and if they can change
	// while the container runs.
	kept    *Spec
	follows follows
	targets *annotation.Targets // that the last Find has searched for; nil before
	// isUncompared is true until the mounts of the OCI spec have been compared with those of the container's first process. It is
	// false if no path of the host can have been led elsewhere.
	isUncompared bool
}

// follows is what can change the disks of a container while it runs.
type follows uint8

// The changes.
const (
	followsNothing follows = iota
	followsDisks           // a filesystem can get more disks, or a device can come back
	followsMounts          // as well as mounts of the host
)

// UnresolvedMount is a mount with disks that were not searched for.
type UnresolvedMount struct {
	Source      string // path on the node
	Self, Below bool   // not searched for: the disks of the mount itself, those of the mounts below it
}

// NewContainer returns a container whose disks have not been searched for. It keeps the spec, reduced to
// those facts that a decision depends on.
func NewContainer(spec *Spec) Container { return NewContainerWithin(spec, math.MaxInt) }

// NewContainerWithin is NewContainer, and keeps no more facts than those that fit into room.
func NewContainerWithin(spec *Spec, room int) Container {
	before := spec.LeftOut
	size := spec.Reduce(room)
	spec.TooMany = spec.TooMany || spec.LeftOut > before
	return Container{Size: size, spec: spec, kept: spec, Facts: policy.Container{Name: spec.Name}}
}

// HasTooManyMounts reports whether some mounts were not kept, because there was no room for them.
func (c *Container) HasTooManyMounts() bool { return c.kept != nil && c.kept.TooMany }

// IsResolved reports whether all disks have been found.
func (c *Container) IsResolved() bool { return c.spec == nil }

// Follows reports whether the disks can change while the container runs.
func (c *Container) Follows() bool { return c.follows != followsNothing }

// Propagates reports whether mounts of the host can change the disks.
func (c *Container) Propagates() bool { return c.follows == followsMounts }

// Invalidate makes the container unresolved if its disks can change while it runs, so that the
// next Find resolves them again. It reports whether they can change.
func (c *Container) Invalidate() bool {
	if c.Follows() {
		c.spec = c.kept
	}
	return c.Follows()
}

// InvalidateFor makes the container unresolved if the last Find did not cover all of these targets, so that the
// next Find resolves them. A change of the node policy can add targets while the container runs.
func (c *Container) InvalidateFor(t annotation.Targets) {
	if c.targets != nil && !c.Covers(t) {
		c.spec = c.kept
	}
}

// Covers reports whether the last Find has searched for all of these targets.
func (c *Container) Covers(t annotation.Targets) bool { return c.targets != nil && c.targets.Covers(t) }

// IsUncompared reports whether the mounts of the container's first process have still to be
// compared with the OCI spec, see Finder.Compare.
func (c *Container) IsUncompared() bool { return c.isUncompared }

// SetCompared ends the comparison without a result, for a container without a process.
func (c *Container) SetCompared() { c.isUncompared = false }

// Err returns why the disks of a mount, or of the writable layer, could not be found. A
// later try may succeed. Mounts that were left out by Spec.Reduce do not cause an error.
func (c *Container) Err() error {
	for o := range c.Facts.Objects() {
		if o.Err != nil && !isLeftOut(o.Backing) {
			return o.Err
		}
	}
	return nil
}

// Unresolved returns the mounts that the container can write to, or below, and that no target of the request selects. Their disks
// were not searched for. It returns nil before the first Find.
func (c *Container) Unresolved() (out []UnresolvedMount) {
	if c.kept == nil || len(c.Facts.Mounts) < len(c.kept.Mounts) {
		return nil
	}
	for i := range c.kept.Mounts {
		m, known := &c.kept.Mounts[i], &c.Facts.Mounts[i]
		u := UnresolvedMount{
			Source: m.Source,
			Self:   known.Backing.Unresolved && !known.ReadOnly,
			Below:  m.IsRecursive(), // read-only does not reach those
		}
		if m.IsBind() && (u.Self || u.Below) {
			out = append(out, u)
		}
	}
	return out
}

// propagates reports whether a target can cover a filesystem that the host mounts on a volume, or below it,
// later.
func (s *Spec) propagates(t annotation.Targets) bool {
	return slices.ContainsFunc(s.Mounts, func(m Mount) bool {
		return m.IsPropagated() && (t.HasStar() || len(t.Volumes) > 0 || hasPathIn(t.Paths, path.Clean(m.Destination)))
	})
}

// grows reports whether something is on a filesystem that can be given more disks, or on
// a device that is away.
func grows(facts *policy.Container) bool {
	for o := range facts.Objects() {
		if o.Missing || o.FSType == "btrfs" || o.FSType == "bcachefs" {
			return true
		}
	}
	return false
}

// Layer is the location of writable layers. Exactly one of its fields is set.
type Layer struct {
	Dir     string // directory on the node, on the filesystem of the layers
	Reason  string // why the layers are on no disk that can be limited, as in blkio.Backing
	Unknown string // why the location is unknown for now
}

// Layers has the locations of writable layers by runtime handler. A runtime can store the layers of each
// handler elsewhere.
type Layers struct {
	Default  Layer            // for handlers that are not in the map
	Handlers map[string]Layer // "" is the handler of pods without a RuntimeClass
}

// Of returns the location of a handler's layers.
func (l Layers) Of(handler string) Layer {
	if own, ok := l.Handlers[handler]; ok {
		return own
	}
	return l.Default
}

// Equal reports whether both have the same locations.
func (l Layers) Equal(other Layers) bool {
	return l.Default == other.Default && maps.Equal(l.Handlers, other.Handlers)
}

// noOverlay is why writable layers cannot be limited that are on other disks than the runtime says, and not in one directory.
const noOverlay = "the root of a container is no overlay, and is on another disk than the runtime or its configuration says"

// SeenLayer returns the location of writable layers, and the disks of one of them, by the root mount of a process whose container has
// executed nothing yet. If the root is an overlay, the location is the directory of all upper layers: DIR of containerd's DIR/NUMBER/fs
// and of CRI-O's DIR/ID/diff. For another kind of root, for example a device for each container, the location has only a reason. The disks are
// nil if they are unknown, or if the upper layers of two containers can be on two filesystems.
func (f *Finder) SeenLayer(ctx context.Context, pid int, cgroup string) (Layer, []blkio.Disk, error) {
	mounts, err := f.ProcessMounts(ctx, pid, cgroup)
	if err != nil {
		return Layer{}, nil, err
	}
	i := slices.IndexFunc(mounts, func(m blkio.ProcessMount) bool { return m.IsRoot })
	if i < 0 {
		return Layer{}, nil, nil
	}
	root := &mounts[i]
	if path.IsAbs(root.Upper) {
		dir := path.Dir(path.Dir(root.Upper))
		if own, all := f.Storage.Resolve(ctx, root.Upper), f.Storage.Resolve(ctx, dir); own.Mountpoint == all.Mountpoint {
			return Layer{Dir: dir}, own.Disks, nil
		}
	} else if root.Upper == "" && root.Backing != nil && root.Backing.FSType != "overlay" {
		return Layer{Reason: noOverlay}, root.Backing.Disks, nil
	}
	return Layer{}, nil, nil
}

// Backing returns the disks that the layers are stored on.
func (l Layer) Backing(ctx context.Context, s Resolver) *blkio.Backing {
	switch {
	case l.Unknown != "":
		return &blkio.Backing{Reason: "the location of writable layers is unknown", Err: errors.New(l.Unknown)}
	case l.Reason != "":
		return &blkio.Backing{Reason: l.Reason}
	}
	return s.Resolve(ctx, l.Dir)
}

// history adds the disks that were found in a container before to those that are found now.
type history struct {
	paths []string             // that the request names, sorted
	gone  func(blkio.Dev) bool // reports whether the node has no such disk
}

func (f *Finder) history(pod *Pod) history {
	return history{pod.Targets.Paths, func(dev blkio.Dev) bool { return f.Storage.Device(dev).Missing }}
}

// accrue adds the disks that were found in a running container before to those that are found now. A disk that
// the container could write to once is limited for as long as it runs. The container may still have a
// filesystem that the host has unmounted, in another place or as an open file. A disk that the node does not
// have any more is not added. It is found again if it returns.
func (h history) accrue(facts, before *policy.Container) {
	facts.Rootfs = *h.both(&facts.Rootfs, &before.Rootfs)
	if len(before.Mounts) < len(facts.Mounts) {
		return // it was not resolved before
	}
	for i := range facts.Mounts {
		h.accrueMount(&facts.Mounts[i], &before.Mounts[i])
	}
}

func (h history) accrueMount(m, old *policy.Mount) {
	below := map[string]*blkio.Backing{}
	var unmounted []policy.Below
	for _, b := range old.Below {
		if h.isNamed(b.Path) {
			below[b.Path] = b.Backing
		} else {
			unmounted = append(unmounted, b) // or not: then it is among the new ones
		}
	}
	for _, b := range m.Below {
		// The disks to which the path led before stay.
		below[b.Path] = h.both(b.Backing, old.BackingOf(b.Path))
	}
	m.Backing = h.both(m.Backing, old.Backing)
	h.addDisks(m, below, unmounted)
	m.Below = nil
	for _, path := range slices.Sorted(maps.Keys(below)) {
		m.Below = append(m.Below, policy.Below{Path: path, Backing: below[path]})
	}
}

// isNamed reports whether the request names a path that is at dir or below it.
func (h history) isNamed(dir string) bool { return hasPathIn(h.paths, dir) }

// addDisks adds the disks of mounts that only "*" covers: one entry for all of them that no other entry has. A
// container that others mount into, such as one with the kubelet's directory, gets thousands of such mounts, on
// few disks.
func (h history) addDisks(m *policy.Mount, below map[string]*blkio.Backing, unmounted []policy.Below) {
	seen := map[blkio.Dev]bool{}
	note := func(b *blkio.Backing) {
		for _, d := range b.Disks {
			seen[d.Dev] = true
		}
	}
	if !m.ReadOnly { // which the mounts below it are not
		note(m.Backing)
	}
	for _, b := range below {
		note(b)
	}
	at, rest := "", blkio.Backing{}
	for _, b := range unmounted {
		for _, d := range b.Backing.Disks {
			if seen[d.Dev] || h.gone(d.Dev) {
				continue
			}
			seen[d.Dev] = true
			if at == "" {
				at, rest = b.Path, *b.Backing
				rest.Disks, rest.Mountpoint = nil, "" // the filesystem is not mounted there any more, so there is nothing to sync
			}
			rest.Disks = append(rest.Disks, d)
		}
	}
	if at == "" {
		return
	}
	slices.SortFunc(rest.Disks, func(a, b blkio.Disk) int { return a.Dev.Compare(b.Dev) })
	if now, taken := below[at]; taken { // one without these disks is mounted there now
		below[at] = h.both(now, &rest)
	} else {
		below[at] = &rest
	}
}

func (h history) both(now, before *blkio.Backing) *blkio.Backing {
	if len(before.Disks) == 0 {
		return now
	}
	if len(now.Disks) == 0 {
		out := *before
		out.Err = now.Err // it has to be resolved again
		out.Missing = out.Missing || now.Missing
		return &out
	}
	out := *now
	out.Disks = slices.Clone(now.Disks)
	for _, d := range before.Disks {
		if !slices.Contains(out.Disks, d) && !h.gone(d.Dev) {
			out.Disks = append(out.Disks, d)
		}
	}
	slices.SortFunc(out.Disks, func(a, b blkio.Disk) int { return a.Dev.Compare(b.Dev) })
	out.Warning = cmp.Or(now.Warning, before.Warning)
	return &out
}

// hasPathIn reports whether one of these paths, which are sorted and clean, is a
// clean directory or in it.
func hasPathIn(paths []string, dir string) bool {
	dir = strings.TrimSuffix(dir, "/")
	if _, ok := slices.BinarySearch(paths, dir); ok {
		return true
	}
	i, _ := slices.BinarySearch(paths, dir+"/")
	return i < len(paths) && strings.HasPrefix(paths[i], dir+"/")
}
