package plugin

import (
	"strconv"
	"strings"

	"github.com/containerd/nri/pkg/api"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
)

// inSpec returns the part of the desired settings that the spec can carry. Where
// the runtime may write the value in one go, that is one disk: the kernel
// takes one device per write, and runc 1.1 does not split lines (docs/reference/quirks.md).
// start writes the other disks. What a fresh cgroup has anyway is left out.
func inSpec(s policy.Settings, splitsLines bool) policy.Settings {
	s = s.Where(func(x policy.Setting) bool { return x.IsLimit() })
	if splitsLines || len(s) == 0 {
		return s
	}
	first := s[0].Dev // of io.max, if that has any
	return s.Where(func(x policy.Setting) bool { return !x.Key.IsRate() || x.Dev == first })
}

// adjustment returns settings in the form of the OCI spec, nil for none.
func adjustment(s policy.Settings) *api.ContainerAdjustment {
	if len(s) == 0 {
		return nil
	}
	adjust := &api.ContainerAdjustment{}
	unified := map[string]string{}
	for _, l := range s.Lines() {
		if before := unified[l.File]; before != "" {
			l.Text = before + "\n" + l.Text
		}
		unified[l.File] = l.Text
	}
	for file, text := range unified {
		adjust.AddLinuxUnified(file, strings.TrimPrefix(text, "default ")) // of io.weight
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
func specOf(ctr *api.Container) *Spec {
	out := &Spec{Name: ctr.GetName(), Mounts: make([]Mount, 0, len(ctr.GetMounts()))}
	for _, m := range ctr.GetMounts() {
		out.Mounts = append(out.Mounts, Mount{m.GetSource(), m.GetDestination(), m.GetType(), m.GetOptions()})
	}
	for _, d := range ctr.GetLinux().GetDevices() {
		if d.GetMajor() >= 0 && d.GetMinor() >= 0 {
			dev := blkio.Dev{Major: uint32(d.GetMajor()), Minor: uint32(d.GetMinor())}
			out.Devices = append(out.Devices, Device{d.GetPath(), d.GetType(), dev})
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

// specValues returns the io.max and the io.weight that a container's spec has, without what a
// fresh cgroup has anyway. We put them there, or another plugin, or a runtime's configuration.
func specValues(ctr *api.Container) policy.Settings {
	unified := ctr.GetLinux().GetResources().GetUnified()
	if len(unified) == 0 {
		return nil // Mostly it is so, and errors take time to make.
	}
	var out []policy.Setting
	limits, _ := blkio.ParseValues(blkio.IOMax, unified["io.max"]) // not ours if it cannot be parsed
	for _, v := range limits.Sorted() {
		out = append(out, policy.Setting{Value: v})
	}
	if weight, err := blkio.ParseAmount(unified["io.weight"]); err == nil {
		out = append(out, policy.Setting{Value: blkio.Value{Address: blkio.Address{Key: blkio.Weight}, Amount: weight}})
	}
	return policy.NewSettings(out...).Where(func(s policy.Setting) bool { return s.IsLimit() })
}
