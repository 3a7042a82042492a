package enforce

import (
	"errors"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/plugin/enforce/plan"
	"github.com/nri-blkio/nri-blkio/plugin/record"
)

func (c *change) write(lines []blkio.Line) ([]blkio.Line, error) {
	written, err := writeLines(lines, c.Cgroup.Write, c.isRemoved)
	c.hasRemoved = c.hasRemoved || len(written) < len(lines)
	return written, err
}

// writeLines writes the lines and returns them without those whose disk has been removed from the node. No I/O
// can go to such a disk, and its limit is written once the disk is back.
func writeLines(lines []blkio.Line, write func(blkio.Line) error, isRemoved func(blkio.Dev) bool) ([]blkio.Line, error) {
	var errs []error
	var present []blkio.Line
	for _, l := range lines {
		err := write(l)
		if !errors.Is(err, blkio.ErrNoDevice) || !isRemoved(l.Dev) {
			present, errs = append(present, l), append(errs, err)
		}
	}
	return present, errors.Join(errs...)
}

// isForeign reports whether another user may write the record.
func (c *change) isForeign() bool {
	dir, _ := record.PlaceOf(c.Cgroup, c.record.Kind)
	return record.Foreign(dir)
}

// sweep removes the records of a pod that do not count any more. These are the records of containers whose
// cgroups were removed, and those that containers have written on their own directories.
func (e *Enforcer) sweep(p *plan.Plan) {
	dirs := map[cgroupfs.Cgroup]bool{}
	if p.Pod.Cgroup != "" {
		dirs[e.Cgroups.Cgroup(p.Pod.Cgroup)] = true
	}
	for i := range p.Containers {
		cg := e.Cgroups.Cgroup(p.Containers[i].Cgroup)
		dir, _ := record.PlaceOf(cg, record.KindContainer)
		dirs[dir] = true
		_ = cg.RemoveXattr(record.Xattr) // it does no harm
	}
	for dir := range dirs {
		recorded, err := dir.ListAbove(record.Xattr)
		if err != nil {
			continue // it was removed, and all records with it
		}
		for _, cg := range recorded {
			if !cg.Exists() {
				_ = record.Remove(cg, record.KindContainer) // the next pass tries again
			}
		}
	}
}
