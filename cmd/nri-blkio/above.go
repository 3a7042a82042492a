package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// warnAbove says which devices a limit throttles beside the disk that it is for: the logical
// volumes on that disk, say, whose filesystems others use.
func (r *podResult) warnAbove(stack []blkio.BlockDevice) {
	for _, w := range r.Writes {
		if w.File != "io.max" || w.Dev == "" {
			continue
		}
		if names := above(stack, w.Disk); len(names) > 0 {
			r.Warnings = append(r.Warnings, fmt.Sprintf("a limit on %s holds for %s as well, which is stored on it", w.Disk, strings.Join(names, ", ")))
		}
	}
	r.tidy()
}

// above returns the names of the devices that are made of a disk or of its partitions, at
// any height, in the stack's order.
func above(stack []blkio.BlockDevice, disk string) []string {
	on := map[string]bool{disk: true}
	for range stack { // at most so high
		before := len(on)
		for _, d := range stack {
			if slices.ContainsFunc(d.Parents, func(p blkio.Disk) bool { return on[p.Name] }) {
				on[d.Name] = true
			}
		}
		if len(on) == before {
			break
		}
	}
	var out []string
	for _, d := range stack {
		if on[d.Name] && d.Name != disk && d.Kind != blkio.KindPartition {
			out = append(out, d.Name)
		}
	}
	return out
}
