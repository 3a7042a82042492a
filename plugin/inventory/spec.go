package inventory

import "github.com/nri-blkio/nri-blkio/blkio"

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
	Options                   Options
	// IsCut is true if the spec lacks a mount or a device at the destination or below it, see Reduce.
	IsCut bool
}

// Device is a device node of the OCI spec.
type Device struct {
	Path string
	Type string // "b" for a block device, "c" for a character device
	Dev  blkio.Dev
}

// Options are those options of a mount that a decision depends on. The others are a tenant's text and are not kept.
type Options uint8

// The options. Each of the first two makes the mount a bind.
const (
	bindOption Options = 1 << iota
	recursiveOption
	readOnlyOption
	propagatedOption
)

// ParseOptions returns the options that a decision depends on.
func ParseOptions(options ...string) (out Options) {
	for _, o := range options {
		switch o {
		case "bind":
			out |= bindOption
		case "rbind":
			out |= recursiveOption
		case "ro":
			out |= readOnlyOption
		case "slave", "rslave", "shared", "rshared":
			out |= propagatedOption
		}
	}
	return out
}

// IsBind reports whether the mount shows a path of the host, and is no new filesystem such
// as proc or tmpfs. In an OCI spec either the type or an option has that.
func (m *Mount) IsBind() bool {
	return m.Type == "bind" || m.Options&(bindOption|recursiveOption) != 0
}

// IsRecursive reports whether the mount includes the mounts below its source.
func (m *Mount) IsRecursive() bool { return m.Options&recursiveOption != 0 }

// IsReadOnly reports whether the mount itself is read-only. Mounts below its source may be
// writable.
func (m *Mount) IsReadOnly() bool { return m.Options&readOnlyOption != 0 }

// IsPropagated reports whether later mounts of the host, at the source or below it, appear
// in the container. The options are rslave for mountPropagation HostToContainer, and
// rshared for Bidirectional.
func (m *Mount) IsPropagated() bool { return m.Options&propagatedOption != 0 }

// IsHostOnly reports whether the device is /dev/mem or /dev/kmsg, which only the host and
// privileged containers have.
func (d Device) IsHostOnly() bool {
	return d.Type == "c" && (d.Dev == blkio.Dev{Major: 1, Minor: 1} || d.Dev == blkio.Dev{Major: 1, Minor: 11})
}
