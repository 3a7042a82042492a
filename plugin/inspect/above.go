package inspect

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
)

// SharedDisk is a disk whose limit also throttles devices that are stored on it, such as
// logical volumes.
type SharedDisk struct {
	Disk  string   `json:"disk"`
	Above []string `json:"above"` // the devices that are stored on it
}

// String returns one line for the notes of status.
func (d *SharedDisk) String() string {
	return fmt.Sprintf("a limit on %s also applies to %s, which is stored on it", d.Disk, strings.Join(d.Above, ", "))
}

// SharedDisks returns those of the limited disks on which other devices are stored, sorted
// by name.
func SharedDisks(limited map[string]bool, stack []storage.BlockDevice) []SharedDisk {
	out := []SharedDisk{}
	for _, disk := range slices.Sorted(maps.Keys(limited)) {
		if names := above(stack, disk); len(names) > 0 {
			out = append(out, SharedDisk{disk, names})
		}
	}
	return out
}

// above returns the names of the devices that are made of a disk or of its partitions, at
// any height, in the stack's order.
func above(stack []storage.BlockDevice, disk string) []string {
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
		if on[d.Name] && d.Name != disk && d.Kind != storage.KindPartition {
			out = append(out, d.Name)
		}
	}
	return out
}
