package inventory

import (
	"slices"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// Spec is the runtime's description of a container, as far as its disks depend on it.
type Spec struct {
	Name    string
	Mounts  []Mount
	Devices []Device
}

// Mount is a mount of the OCI spec.
type Mount struct {
	Source, Destination, Type string
	Options                   []string
}

// Device is a device node of the OCI spec.
type Device struct {
	Path string
	Type string // "b" for a block device, "c" for a character device
	Dev  blkio.Dev
}

// IsBind reports whether the mount shows a directory of the host, and is not a new filesystem
// (proc, sysfs, tmpfs). The OCI spec allows either the type or an option to say so.
func (m *Mount) IsBind() bool {
	return m.Type == "bind" || slices.ContainsFunc(m.Options, func(o string) bool { return o == "bind" || o == "rbind" })
}

// IsRecursive reports whether the mount brings what is mounted below its source.
func (m *Mount) IsRecursive() bool { return slices.Contains(m.Options, "rbind") }

// IsReadOnly reports whether the mount is read-only. What is mounted below its source is not.
func (m *Mount) IsReadOnly() bool { return slices.Contains(m.Options, "ro") }

// IsPropagated reports whether what the host mounts at the source or below it later comes into
// the container (mountPropagation HostToContainer is rslave, Bidirectional is rshared).
func (m *Mount) IsPropagated() bool {
	return slices.ContainsFunc(m.Options, func(o string) bool {
		return o == "slave" || o == "rslave" || o == "shared" || o == "rshared"
	})
}

// IsHostOnly reports whether the device is /dev/mem or /dev/kmsg, which only the host and
// privileged containers have.
func (d *Device) IsHostOnly() bool {
	return d.Type == "c" && (d.Dev == blkio.Dev{Major: 1, Minor: 1} || d.Dev == blkio.Dev{Major: 1, Minor: 11})
}
