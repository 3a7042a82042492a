package inventory

import (
	"slices"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// Spec has those parts of a container's OCI spec that its disks depend on.
type Spec struct {
	Name    string
	Mounts  []Mount
	Devices []Device
	LeftOut int // the number of mounts and devices that the container has besides, see Reduce
	// TooMany is true if there was no room for those beside the other containers of the pod, see NewContainerWithin.
	TooMany bool
}

// Mount is a mount of the OCI spec.
type Mount struct {
	Source, Destination, Type string
	Options                   []string
	// IsCut is true if the spec lacks a mount or a device at the destination or below it, see Reduce.
	IsCut bool
}

// Device is a device node of the OCI spec.
type Device struct {
	Path string
	Type string // "b" for a block device, "c" for a character device
	Dev  blkio.Dev
}

// IsBind reports whether the mount shows a path of the host, and is no new filesystem such
// as proc or tmpfs. In an OCI spec either the type or an option has that.
func (m *Mount) IsBind() bool {
	return m.Type == "bind" || slices.ContainsFunc(m.Options, func(o string) bool { return o == "bind" || o == "rbind" })
}

// IsRecursive reports whether the mount includes the mounts below its source.
func (m *Mount) IsRecursive() bool { return slices.Contains(m.Options, "rbind") }

// IsReadOnly reports whether the mount itself is read-only. Mounts below its source may be
// writable.
func (m *Mount) IsReadOnly() bool { return slices.Contains(m.Options, "ro") }

// IsPropagated reports whether later mounts of the host, at the source or below it, appear
// in the container. The options are rslave for mountPropagation HostToContainer, and
// rshared for Bidirectional.
func (m *Mount) IsPropagated() bool {
	return slices.ContainsFunc(m.Options, func(o string) bool {
		return o == "slave" || o == "rslave" || o == "shared" || o == "rshared"
	})
}

// IsHostOnly reports whether the device is /dev/mem or /dev/kmsg, which only the host and
// privileged containers have.
func (d Device) IsHostOnly() bool {
	return d.Type == "c" && (d.Dev == blkio.Dev{Major: 1, Minor: 1} || d.Dev == blkio.Dev{Major: 1, Minor: 11})
}
