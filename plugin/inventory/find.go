package inventory

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"path"
	"slices"
	"strings"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/volumepath"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// Pod holds those facts about a pod that the disks of its containers depend on.
type Pod struct {
	UID     string
	Sandbox string             // its ID
	Targets annotation.Targets // that its limits and weights can select
}

// Finder finds the disks of containers.
type Finder struct {
	Storage Storage
	// KubeletRoot is the kubelet's directory on the node, free of symbolic links. The mounts of volumes in it are not compared, and
	// the other ones in it are injected.
	KubeletRoot string
	// ProcessMounts returns the mounts of a process in a cgroup. If it is nil, the mounts
	// of a container are not compared with its OCI spec.
	ProcessMounts func(ctx context.Context, pid int, cgroup string) ([]blkio.ProcessMount, error)
}

// Find searches for the disks that a target of the request can select, and adds them to those that were found
// before. If it cannot find some of them, c.Err returns the reason, and the caller has to call Find again. If
// ctx ends first, Find returns an error and does not change c.
func (f *Finder) Find(ctx context.Context, pod *Pod, layer Layer, c *Container) error {
	found, err := f.findAll(ctx, pod, layer, c.spec)
	if err != nil {
		return err
	}
	f.history(pod).accrue(&found, &c.Facts)
	c.Facts.Rootfs, c.Facts.Mounts, c.Facts.Physical = found.Rootfs, found.Mounts, found.Physical
	c.Facts.Under, c.Facts.Links = found.Under, found.Links
	c.spec.addLeftOut(&c.Facts, &pod.Targets)
	switch c.follows = followsNothing; {
	case c.spec.propagates(pod.Targets):
		c.follows = followsMounts
	case grows(&c.Facts):
		c.follows = followsDisks
	}
	if (c.targets == nil || !c.targets.Covers(pod.Targets)) && f.isRedirectable(pod, c) {
		c.isUncompared = true
	}
	if c.targets = &pod.Targets; c.Err() == nil {
		c.spec = nil
	}
	return nil
}

// findAll finds the disks of the writable layer and of the mounts, as they are now. The caller bounds it as a
// whole, so Resolve needs no goroutine for each path to be able to give up.
func (f *Finder) findAll(ctx context.Context, pod *Pod, layer Layer, spec *Spec) (policy.Container, error) {
	unhurried := context.WithoutCancel(ctx)
	out := policy.Container{Rootfs: *layer.Backing(unhurried, f.Storage), Mounts: f.declaredMounts(pod, layer, spec)}
	if !pod.Targets.HasRootfs() {
		out.Rootfs.Err = nil // no target means it
	}
	named := namePaths(out.Mounts, pod.Targets.Paths)
	s := search{storage: f.Storage, star: pod.Targets.HasStar(), volumes: pod.Targets.Volumes, sources: map[string]source{}}
	for i := range spec.Mounts {
		// Not after the last one: a disk that answers late has answered.
		if err := ctx.Err(); err != nil {
			return out, fmt.Errorf("look up the disks of %d mounts: %w", len(out.Mounts)-i, err)
		}
		of := named
		for len(named) > 0 && named[0].mount == i {
			named = named[1:]
		}
		s.find(unhurried, &spec.Mounts[i], &out.Mounts[i], of[:len(of)-len(named)])
	}
	if pod.Targets.Weights { // of a disk whose members cannot be read the weight has no effect, which is reported for the disk
		out.Physical = madeOf(devsOf(&out), func(dev blkio.Dev) []blkio.Disk {
			below, _ := f.Storage.Physical(dev)
			return below
		})
	}
	if pod.Targets.Disks {
		f.nameDisks(unhurried, &out)
	}
	return out, nil
}

// namedPath is a path that a target names, and the number of the mount that it is on.
type namedPath struct {
	mount int
	path  string
}

// namePaths finds the mounts that paths are on, in the order of the mounts.
func namePaths(mounts []policy.Mount, paths []string) []namedPath {
	if len(paths) == 0 {
		return nil
	}
	index, out := policy.IndexMounts(mounts), make([]namedPath, 0, len(paths))
	for _, path := range paths {
		if i := index.Find(path); i >= 0 {
			out = append(out, namedPath{i, path})
		}
	}
	slices.SortStableFunc(out, func(a, b namedPath) int { return cmp.Compare(a.mount, b.mount) })
	return out
}

// nameDisks adds what a target by the name of a disk can select: the disks below the disks of a container, and
// udev's links to all of them.
func (f *Finder) nameDisks(ctx context.Context, c *policy.Container) {
	c.Under, c.Links = map[blkio.Dev][]blkio.Disk{}, map[blkio.Dev][]string{}
	link := func(dev blkio.Dev) {
		if _, known := c.Links[dev]; !known {
			c.Links[dev] = f.Storage.Links(dev)
		}
	}
	for o := range c.Objects() {
		for _, d := range o.Disks {
			if _, known := c.Under[d.Dev]; known {
				continue
			}
			c.Under[d.Dev] = f.Storage.Under(ctx, d.Dev)
			link(d.Dev)
			for _, below := range c.Under[d.Dev] {
				link(below.Dev)
			}
		}
	}
}

// declaredMounts returns the mounts and the raw block volumes of a container, in the order of the runtime. It
// does not find the disks of the mounts.
func (f *Finder) declaredMounts(pod *Pod, layer Layer, spec *Spec) []policy.Mount {
	own := f.injectedInto(pod, layer)
	out := make([]policy.Mount, 0, len(spec.Mounts)+len(spec.Devices))
	for i := range spec.Mounts {
		m := &spec.Mounts[i]
		mount := policy.Mount{Destination: path.Clean(m.Destination), ReadOnly: m.IsReadOnly(), Injected: own.has(m), Backing: notSelected}
		if len(pod.Targets.Volumes) > 0 { // otherwise the name is not needed
			mount.Volume, mount.VolumePlugin = volumepath.NameOf(pod.UID, m.Source)
		}
		out = append(out, mount)
	}
	return append(out, f.devices(spec)...)
}

// devices returns the raw block volumes of a container, which are nodes in /dev without a mount. A privileged
// container has all of the host's devices instead. There a path may name one, but "*" covers only the disks
// that the container uses, see Usage. Kubernetes accepts a path without a slash at its beginning, and the runtime makes the node
// below the root of the container.
func (f *Finder) devices(spec *Spec) []policy.Mount {
	privileged := slices.ContainsFunc(spec.Devices, func(d Device) bool { return d.IsHostOnly() })
	var out []policy.Mount
	for _, d := range spec.Devices {
		if d.Type == "b" {
			out = append(out, policy.Mount{Destination: path.Clean("/" + d.Path), Injected: privileged, Backing: new(f.Storage.Device(d.Dev))})
		}
	}
	return out
}

// search finds the disks of a container's mounts. It resolves each directory of the host once, and keeps each
// set of disks once, because a tenant may mount the same volume a thousand times.
type search struct {
	storage Storage
	star    bool
	volumes []string // sorted
	sources map[string]source
	found   [][]blkio.Disk // the sets of disks that "*" has already
	// into is the mount whose submounts add adds. Both are in use for "*" only.
	into *policy.Mount
	add  func(at string, b *blkio.Backing) (more bool)
}

// source is a directory of the host that was resolved.
type source struct {
	backing *blkio.Backing // nil if only its submounts were resolved
	through bool           // its submounts were resolved for "*"
}

// notSelected is the backing of each mount that no target selects. Most mounts of a container are such.
var notSelected = &blkio.Backing{Reason: "not resolved: no annotation names it", Unresolved: true}

// find resolves the disks of a mount if a target of the request can select it. That takes longer than all other
// parts of a decision.
func (s *search) find(ctx context.Context, m *Mount, out *policy.Mount, named []namedPath) {
	star := s.star && !out.Injected
	_, volume := slices.BinarySearch(s.volumes, out.Volume)
	switch {
	case !star && !volume && len(named) == 0:
		return
	case !m.IsBind():
		out.Backing = &blkio.Backing{FSType: m.Type, Reason: m.Type + " is not stored on a disk"}
		return
	}
	out.Backing = s.resolve(ctx, m.Source)
	if star && !out.ReadOnly { // The mounts below it are not read-only.
		s.isNew(out.Backing.Disks)
	}
	if m.IsRecursive() {
		s.named(ctx, m.Source, out, named)
		if star {
			s.submounts(ctx, m.Source, out)
		}
	}
}

func (s *search) resolve(ctx context.Context, source string) *blkio.Backing {
	known := s.sources[source]
	if known.backing == nil {
		known.backing = s.storage.Resolve(ctx, source)
		s.sources[source] = known
	}
	return known.backing
}

// named adds the mounts below a volume that named paths are on.
func (s *search) named(ctx context.Context, source string, m *policy.Mount, named []namedPath) {
	known := map[string]bool{}
	for _, name := range named {
		rel := strings.Trim(strings.TrimPrefix(name.path, strings.TrimSuffix(m.Destination, "/")), "/")
		if rel == "" {
			continue
		}
		if at, b, ok := s.storage.Below(ctx, source, rel); ok && !known[at] {
			known[at] = true
			m.Below = append(m.Below, policy.Below{Path: path.Join(m.Destination, at), Backing: b})
		}
	}
}

// submounts adds, for "*", the mounts below a volume: one for each further set of disks.
func (s *search) submounts(ctx context.Context, source string, m *policy.Mount) {
	source = path.Clean(source)
	known := s.sources[source]
	if known.through {
		return
	}
	known.through = true
	s.sources[source] = known
	s.into = m
	if s.add == nil {
		s.add = s.addSubmount
	}
	s.storage.Submounts(ctx, source)(s.add)
}

// addSubmount adds a mount below the volume of the mount into, unless its disks are known.
func (s *search) addSubmount(at string, b *blkio.Backing) (more bool) {
	if len(b.Disks) > 0 && s.isNew(b.Disks) {
		s.into.Below = append(s.into.Below, policy.Below{Path: path.Join(s.into.Destination, at), Backing: b})
	}
	return true
}

// isNew adds a set of disks, and reports whether it was not there before. Their number is
// bounded by the node's disks, not by its mounts.
func (s *search) isNew(disks []blkio.Disk) bool {
	if slices.ContainsFunc(s.found, func(known []blkio.Disk) bool { return slices.Equal(known, disks) }) {
		return false
	}
	s.found = append(s.found, disks)
	return true
}

// Resolver finds the disks that a path of the node is stored on.
type Resolver interface {
	// Resolve returns the backing of a path, see storage.Storage.
	Resolve(ctx context.Context, hostPath string) *blkio.Backing
}

// Storage finds the disks of mounts and devices. It is a *storage.Storage, which documents
// the methods.
type Storage interface {
	Resolver
	Refresh(ctx context.Context) error
	Below(ctx context.Context, hostPath, rel string) (at string, b *blkio.Backing, ok bool)
	Submounts(ctx context.Context, hostPath string) iter.Seq2[string, *blkio.Backing]
	Device(dev blkio.Dev) blkio.Backing
	Physical(disk blkio.Dev) ([]blkio.Disk, error)
	Under(ctx context.Context, disk blkio.Dev) []blkio.Disk
	Links(disk blkio.Dev) []string
}

// Disks finds out how the disks of the node are stacked and used. It is a *storage.Storage,
// which documents the methods.
type Disks interface {
	Device(dev blkio.Dev) blkio.Backing
	Under(ctx context.Context, disk blkio.Dev) []blkio.Disk
	SwapDisks(ctx context.Context) ([]blkio.Disk, error)
	MountedDisks() map[blkio.Dev]bool
}
