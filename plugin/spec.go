package plugin

import (
	"strconv"
	"strings"

	"github.com/containerd/nri/pkg/api"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/enforce/plan"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
	"github.com/nri-blkio/nri-blkio/policy"
)

// adjustment returns settings in the form of the OCI spec, nil for none.
func adjustment(s policy.Settings) *api.ContainerAdjustment {
	if len(s) == 0 {
		return nil
	}
	adjust := &api.ContainerAdjustment{}
	for file, text := range plan.Unified(s) {
		adjust.AddLinuxUnified(file, text)
	}
	return adjust
}

// describe renders desired settings for a log field.
func describe(d policy.Desired) []string {
	var out []string
	for _, l := range d.Settings.Lines() {
		if name, isDisk := d.Disks[l.Dev]; isDisk && l.File == blkio.IOMax {
			out = append(out, strings.Replace(l.Text, l.Dev.String(), name, 1))
		} else {
			out = append(out, l.String())
		}
	}
	return out
}

// specOf returns what the disks of a container are found by. The rest of the description is a
// tenant's text, and may be long.
func specOf(ctr *api.Container) *inventory.Spec {
	out := &inventory.Spec{Name: ctr.GetName(), Mounts: make([]inventory.Mount, 0, len(ctr.GetMounts()))}
	for _, m := range ctr.GetMounts() {
		out.Mounts = append(out.Mounts, inventory.Mount{Source: m.GetSource(), Destination: m.GetDestination(), Type: m.GetType(), Options: m.GetOptions()})
	}
	for _, d := range ctr.GetLinux().GetDevices() {
		if d.GetMajor() >= 0 && d.GetMinor() >= 0 {
			dev := blkio.Dev{Major: uint32(d.GetMajor()), Minor: uint32(d.GetMinor())}
			out.Devices = append(out.Devices, inventory.Device{Path: d.GetPath(), Type: d.GetType(), Dev: dev})
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
