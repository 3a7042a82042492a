// Package policy decides which block-I/O limits a container and a pod get,
// from the pod's annotations, the node's policy file, and facts about disks.
// It is pure: no I/O, no clock, no logging, and the same input gives the same
// bytes on every machine.
package policy

import (
	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// Container holds the facts about one container that the policy needs.
type Container struct {
	Name   string
	Rootfs blkio.Backing // of the writable layer
	Stage  Stage
	// MemoryLimited is true if it or its pod has a memory limit that bounds what it can have
	// dirty; see MemoryBoundsDirty.
	MemoryLimited bool
	Guarded       uint64 // the memory.high that it was given, 0 for none
	Mounts        []Mount
	// Reached are disks that it is seen to use though no mount or device of it tells
	// of them: one that was made in it while it runs, say. No path is on them.
	Reached []blkio.Disk
}

// Stage is how far a container has come, as far as decisions depend on it.
type Stage uint8

// The stages of a container.
const (
	Created Stage = iota // its creation can still set memory.high
	Running              // what only its creation can set comes too late
	Ended                // only its name is known
)

// Mount is one mount of a container.
type Mount struct {
	Destination string // path inside the container, absolute and clean
	ReadOnly    bool
	// Injected marks what the runtime and the kubelet put into each
	// container (/proc, /dev/shm, /etc/hosts, the service account): no
	// target of "*", though a path may still name it.
	Injected bool
	// Volume is the name of the pod's volume that it is of, or "" where nothing
	// on the node tells it. VolumePlugin is the kubelet's plugin that the volume
	// is of, or "" where that is not told.
	Volume, VolumePlugin string
	Backing              blkio.Backing
	Below                []Below // mounts below it that the container sees too
}

// Below is a mount below the source of a volume. Runtimes bind volumes with
// all that is mounted below (rbind), so it is in the container as well.
type Below struct {
	Path    string // inside the container, absolute and clean, below the Destination
	Backing blkio.Backing
}

// Skipped is a requested target that cannot be limited, where that is not an error: "*"
// on a tmpfs, or a default for a mount that the container does not have.
type Skipped struct {
	Source Source
	What   string // the mount or path
	Reason string
}

// Desired holds the decided settings of one cgroup.
type Desired struct {
	// Settings has memory.high only at the creation of a container, see Writeback.DirtyGuard.
	Settings     Settings
	Disks        map[blkio.Dev]string // the kernel's names of the disks that have settings
	Skipped      []Skipped            // the first 16, without duplicates
	SkippedMore  int                  // how many there are beyond those
	Warnings     []string             // the first 16, sorted, without duplicates; then "and N more"
	WarningKinds []blkio.WarningKind  // of all warnings, without duplicates, in any order
	Errors       []*annotation.Error  // all that is wrong, in order; see Policy.Container
}
