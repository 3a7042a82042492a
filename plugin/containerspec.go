package plugin

import (
	"slices"
	"strconv"

	"github.com/containerd/nri/pkg/api"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
)

// containerSpec is the runtime's description of a container, as far as its disks depend on it.
type containerSpec struct {
	Name    string
	Mounts  []specMount
	Devices []specDevice
	// MemoryLimit is the lower one of memory.max and memory.high in bytes, or policy.NoMemory.
	MemoryLimit uint64
}

// specMount is a mount of the OCI spec.
type specMount struct {
	Source, Destination, Type string
	Options                   []string
}

// specDevice is a device node of the OCI spec.
type specDevice struct {
	Path string
	Type string // "b" for a block device, "c" for a character device
	Dev  blkio.Dev
}

// IsBind reports whether the mount shows a directory of the host, and is not a new filesystem
// (proc, sysfs, tmpfs). The OCI spec allows either the type or an option to say so.
func (m *specMount) IsBind() bool {
	return m.Type == "bind" || slices.ContainsFunc(m.Options, func(o string) bool { return o == "bind" || o == "rbind" })
}

// IsRecursive reports whether the mount brings what is mounted below its source.
func (m *specMount) IsRecursive() bool { return slices.Contains(m.Options, "rbind") }

// IsReadOnly reports whether the mount is read-only. What is mounted below its source is not.
func (m *specMount) IsReadOnly() bool { return slices.Contains(m.Options, "ro") }

// IsPropagated reports whether what the host mounts at the source or below it later comes into
// the container (mountPropagation HostToContainer is rslave, Bidirectional is rshared).
func (m *specMount) IsPropagated() bool {
	return slices.ContainsFunc(m.Options, func(o string) bool {
		return o == "slave" || o == "rslave" || o == "shared" || o == "rshared"
	})
}

// IsHostOnly reports whether the device is /dev/mem or /dev/kmsg, which only the host and
// privileged containers have.
func (d *specDevice) IsHostOnly() bool {
	return d.Type == "c" && (d.Dev == blkio.Dev{Major: 1, Minor: 1} || d.Dev == blkio.Dev{Major: 1, Minor: 11})
}

// specOf returns what the disks of a container are found by. The rest of the description is a
// tenant's text, and may be long.
func specOf(ctr *api.Container) *containerSpec {
	out := &containerSpec{
		Name: ctr.GetName(), MemoryLimit: memoryLimit(ctr.GetLinux().GetResources()),
		Mounts: make([]specMount, 0, len(ctr.GetMounts())),
	}
	for _, m := range ctr.GetMounts() {
		out.Mounts = append(out.Mounts, specMount{m.GetSource(), m.GetDestination(), m.GetType(), m.GetOptions()})
	}
	for _, d := range ctr.GetLinux().GetDevices() {
		if d.GetMajor() >= 0 && d.GetMinor() >= 0 {
			dev := blkio.Dev{Major: uint32(d.GetMajor()), Minor: uint32(d.GetMinor())}
			out.Devices = append(out.Devices, specDevice{d.GetPath(), d.GetType(), dev})
		}
	}
	return out
}

// memoryLimit returns a container's memory limit in bytes. memory.high is what the
// kubelet's MemoryQoS sets ("max" where it is off), or another plugin, or our own
// dirtyGuard. Two plugins that set it fail the create.
func memoryLimit(r *api.LinuxResources) uint64 {
	limit := policy.NoMemory
	if v := r.GetMemory().GetLimit().GetValue(); v > 0 {
		limit = uint64(v)
	}
	if high, err := strconv.ParseUint(r.GetUnified()["memory.high"], 10, 64); err == nil {
		limit = min(limit, high)
	}
	return limit
}
