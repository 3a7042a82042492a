package policy

import (
	"slices"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// StillGranted is the kind of the warning of KeepGranted.
const StillGranted blkio.WarningKind = "still_granted"

const stillGranted = "this node's policy refuses now what it granted before: that stays in force for as long as the container runs"

// KeepGranted is for a request that was granted and that the policy now refuses, as a
// reload has made it stricter. It adds to d, with a warning, what former has of the
// entries that d refuses. To lift these limits would leave unlimited what asked for the
// lowest ones.
func (d *Desired) KeepGranted(former Desired) {
	kept := false
	for i := range former.Disks {
		old := &former.Disks[i]
		for k, rate := range old.Limits {
			if rate == blkio.Unset || !d.refuses(old.Sources[k]) {
				continue
			}
			if now := d.row(old.Disk); now.Limits[k] == blkio.Unset {
				now.Limits[k], now.Sources[k] = rate, old.Sources[k]
				kept = true
			}
		}
	}
	if d.Weight == 0 && former.Weight != 0 && d.refuses(former.WeightSource) {
		d.Weight, d.WeightSource = former.Weight, former.WeightSource
		kept = true
	}
	if kept {
		d.Warnings = append(d.Warnings, stillGranted)
		d.warned(StillGranted)
	}
}

// refuses reports whether what a value comes from is among the errors.
func (d *Desired) refuses(s Source) bool {
	return slices.ContainsFunc(d.Errors, func(e *Error) bool { return e.Concerns(s) })
}

// row returns the limits of a disk, which it adds where there are none.
func (d *Desired) row(disk blkio.Disk) *DiskLimits {
	i, found := slices.BinarySearchFunc(d.Disks, disk.Dev, func(l DiskLimits, dev blkio.Dev) int { return l.Disk.Dev.Compare(dev) })
	if !found {
		d.Disks = slices.Insert(d.Disks, i, DiskLimits{Disk: disk})
	}
	return &d.Disks[i]
}
