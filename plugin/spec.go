package plugin

import (
	"fmt"

	"github.com/containerd/nri/pkg/api"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
)

// adjustment is the part of the desired limits that the spec can carry. Where
// the runtime may write the value in one go, that is one disk: the kernel
// takes one device per write, and runc 1.1 does not split lines (docs/reference/quirks.md).
// start writes the other disks.
func adjustment(d policy.Desired, splitsLines bool) (*api.ContainerAdjustment, map[blkio.Dev]blkio.Limits) {
	var lines string
	var spec map[blkio.Dev]blkio.Limits
	for _, disk := range d.Disks {
		limits := finite(disk.Limits)
		if limits.IsZero() {
			continue
		}
		if lines != "" {
			if !splitsLines {
				break
			}
			lines += "\n"
		}
		lines += blkio.DevLimits{Dev: disk.Disk.Dev, Limits: limits}.String()
		if spec == nil {
			spec = map[blkio.Dev]blkio.Limits{}
		}
		spec[disk.Disk.Dev] = limits
	}
	if lines == "" && d.Weight == 0 {
		return nil, nil
	}
	adjust := &api.ContainerAdjustment{}
	if lines != "" {
		adjust.AddLinuxUnified("io.max", lines)
	}
	if d.MemoryHigh != 0 {
		adjust.AddLinuxUnified("memory.high", fmt.Sprint(d.MemoryHigh))
	}
	if d.Weight != 0 {
		adjust.AddLinuxUnified("io.weight", fmt.Sprint(d.Weight))
	}
	return adjust, spec
}

// finite leaves out what a fresh cgroup has anyway.
func finite(l blkio.Limits) blkio.Limits {
	for k, rate := range l {
		if rate == blkio.Max {
			l[k] = blkio.Unset
		}
	}
	return l
}

// describe renders desired limits for a log field.
func describe(d policy.Desired) []string {
	var out []string
	for _, disk := range d.Disks {
		out = append(out, disk.Disk.Name+" "+disk.Limits.String())
	}
	if d.Weight != 0 {
		out = append(out, fmt.Sprintf("io.weight %d", d.Weight))
	}
	return out
}
