// Package policy decides which limits and weights a container and a pod get, from the pod's
// annotations, the node policy, and facts about disks. It is pure: no I/O, no clock, no
// logging, and the same input gives the same bytes on every machine.
package policy

import (
	"iter"
	"slices"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// Container holds the facts about one container that decisions need.
type Container struct {
	Name   string
	Rootfs blkio.Backing // of the writable layer
	Stage  Stage
	// MemoryLimited is true if the container or its pod has a memory limit that bounds its
	// dirty pages, see MemoryBoundsDirty.
	MemoryLimited bool
	Guarded       uint64 // the memory.high in bytes that it got at its creation; 0 for none
	Mounts        []Mount
	// Undeclared are the disks that io.stat shows in use by the container although no mount or
	// device declares them. No path of the container is on them, so only "*" includes them.
	Undeclared []blkio.Disk
	Stack
}

// Stack has the disks below the disks of a container, as far as a decision needs them.
type Stack struct {
	// Physical has the physical disks below a disk that is made of others, such as a logical
	// volume. Weights have an effect there.
	Physical map[blkio.Dev][]blkio.Disk
	// Lowest has the physical disks below a disk that is made of others, also those below the file of a loop device. Limits
	// there count for the budget of the namespace. Only a budget needs them: it is nil if they were not searched for.
	Lowest map[blkio.Dev][]blkio.Disk
	// Under has all disks below a disk, and Links has udev's links to a disk, such as "/dev/disk/by-id/x". Only
	// the target disk:GLOB needs them.
	Under map[blkio.Dev][]blkio.Disk
	Links map[blkio.Dev][]string
}

// Stage is how far the life of a container has come.
type Stage uint8

// The stages of a container.
const (
	Created  Stage = iota // being created; memory.high can still be set
	Running               // created; memory.high cannot be set any more
	Ended                 // ended; only its name is known
	Rejected              // rejected: it does not run
	Late                  // running, although the budget of its namespace has no room for it
)

// UnlessAllRejected returns containers as they are, unless all were rejected. Then none of them runs, and what would apply to their
// pod harms nobody: they are returned as if they were being created.
func UnlessAllRejected(cs []Container) []Container {
	if slices.ContainsFunc(cs, func(c Container) bool { return c.Stage != Rejected }) {
		return cs
	}
	out := slices.Clone(cs)
	for i := range out {
		out[i].Stage = Created
	}
	return out
}

// Mount is one mount of a container.
type Mount struct {
	Destination string // path inside the container, absolute and clean
	ReadOnly    bool
	// Injected is true for files that the runtime or the kubelet mounts into each container
	// (/proc, /dev/shm, /etc/hosts, the service account). "*" does not include them, but a
	// path can select them.
	Injected bool
	// Volume is the name of the pod's volume that is mounted, and VolumePlugin the
	// kubelet's plugin for that volume. Each is "" if it is unknown.
	Volume, VolumePlugin string
	Backing              *blkio.Backing // never nil; shared by the mounts of a filesystem, and must not be changed
	Below                []Below        // mounts below the volume's directory, which the container sees as well
}

// Below is a mount below the directory of a volume. Runtimes bind volumes recursively
// (rbind), so the container has that mount as well.
type Below struct {
	Path    string         // inside the container, absolute and clean, below the Destination
	Backing *blkio.Backing // as that of a Mount
}

// Skipped is a target that is left out without an error. Examples are a tmpfs in "*", and a mount that the
// container does not have, in the scope "containers".
type Skipped struct {
	Source Source
	What   string // the mount, path or volume
	Reason string
}

// Extent has the disks that a decision depends on, with limits there or without.
type Extent struct {
	// Weighted are the physical disks that the weights are about, sorted by number. io.cost has
	// to be enabled there.
	Weighted []blkio.Disk
	// Uses are the amounts that the container uses of the budget for its namespace, sorted by address.
	Uses []Use
	// Lowest is that of the container, if its namespace has a budget.
	Lowest map[blkio.Dev][]blkio.Disk
	// Covers is true for a key if Settings and Uses have it for each disk of the container's mounts, by a "*" or the
	// budget for its namespace. The container uses no other disks, except undeclared ones.
	Covers byKey[bool]
}

// Desired holds the desired settings of one cgroup, and the reports about them.
type Desired struct {
	// Settings has memory.high only at the creation of a container, see Writeback.DirtyGuard.
	Settings Settings
	Disks    map[blkio.Dev]string // kernel names of the disks in Settings and Lowered, and of those that are lent
	// Lowered has values that annotations ask for, or an earlier policy granted, and that are not in force now. The
	// reason is that the class of the rule is lower, that a budget has no room, or that the rule ignores annotations. Ignored is true
	// in the last case.
	Lowered Settings
	Ignored bool
	Extent
	Omitted
	Warnings     []string            // the first 16, sorted, without duplicates; then "and N more"
	WarningKinds []blkio.WarningKind // of all warnings, without duplicates, unsorted
	Errors       []*annotation.Error // all errors, in the order of Policy.Container
}

// Omitted has what is left out of a decision without an error.
type Omitted struct {
	Skipped     []Skipped           // the first 16, without duplicates
	SkippedMore int                 // how many are left out of Skipped
	Claims      []*annotation.Error // the reasons why limits of claims do not count; they are among the warnings
	// Unenforced has the reasons why something that a tenant has written has no effect, although it is no error: limits of a claim,
	// a class that an annotation chooses, or annotations that the rule ignores. It has none of a default of the policy.
	Unenforced []*annotation.Error
}

// Object is a path of a container, with what is there.
type Object struct {
	*blkio.Backing
	Path               string // "rootfs" for the writable layer
	ReadOnly, Injected bool   // see Mount
}

// Objects returns the writable layer, and each mount with those below it.
func (c *Container) Objects() iter.Seq[Object] {
	return func(yield func(Object) bool) {
		if !yield(Object{Backing: &c.Rootfs, Path: "rootfs"}) {
			return
		}
		for i := range c.Mounts {
			m := &c.Mounts[i]
			if !yield(Object{m.Backing, m.Destination, m.ReadOnly, m.Injected}) {
				return
			}
			for k := range m.Below {
				// Read-only does not reach further than the mount itself: "ro" is not
				// recursive (mount_setattr(2) is, and runtimes use it for "rro" only).
				if !yield(Object{m.Below[k].Backing, m.Below[k].Path, false, m.Injected}) {
					return
				}
			}
		}
	}
}

// starred returns what "*" includes.
func (c *Container) starred() iter.Seq[Object] {
	return func(yield func(Object) bool) {
		for o := range c.Objects() {
			if !o.Injected && !yield(o) {
				return
			}
		}
		if len(c.Undeclared) > 0 {
			yield(Object{Backing: &blkio.Backing{Disks: c.Undeclared}, Path: "what it uses"})
		}
	}
}
