package enforce

import (
	"errors"
	"fmt"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/plugin/record"
)

// Clearer removes recorded limits from cgroups at an operator's request, whether a plugin runs
// or not.
type Clearer struct {
	DryRun bool // report the steps, and change nothing
}

// Clear marks a cgroup, then removes the limits of its record: in the other order a running
// plugin could restore them in between. It returns the steps that were made, also with an error.
func (c *Clearer) Clear(cg cgroupfs.Cgroup, r *record.Record) (steps []string, err error) {
	if !r.Cleared {
		if err := c.mark(cg, r, true); err != nil {
			return nil, err
		}
		steps = append(steps, "mark as cleared")
	}
	if r.Observed {
		return steps, nil // nothing was written
	}
	removed, err := c.remove(cg, r)
	again, verifyErr := c.verify(cg, r.Kind)
	return append(append(steps, removed...), again...), errors.Join(err, verifyErr)
}

// Undo removes the mark, so that a running plugin restores the limits.
func (c *Clearer) Undo(cg cgroupfs.Cgroup, r *record.Record) (steps []string, err error) {
	if !r.Cleared {
		return nil, nil
	}
	if err := c.mark(cg, r, false); err != nil {
		return nil, err
	}
	return []string{"remove the mark, the plugin restores the limits"}, nil
}

func (c *Clearer) remove(cg cgroupfs.Cgroup, r *record.Record) (steps []string, err error) {
	var errs []error
	for _, line := range r.Settings.Removals().Lines() {
		var err error
		if !c.DryRun {
			err = cg.Write(line)
		}
		switch {
		case errors.Is(err, blkio.ErrNoDevice): // the disk was removed, and its limits with it
		case err != nil:
			errs = append(errs, err)
		default:
			steps = append(steps, fmt.Sprintf("write %s %q", line.File, line.Text))
		}
	}
	if !c.DryRun && r.Kind == record.KindContainer {
		errs = append(errs, cg.ReplaceIOMaxBelow(removalsBelow(r)))
	}
	return steps, errors.Join(errs...)
}

// verify marks the cgroup once more if the plugin, which was inspecting it when it was marked,
// has written its record again.
func (c *Clearer) verify(cg cgroupfs.Cgroup, kind string) (steps []string, err error) {
	if c.DryRun {
		return nil, nil
	}
	now, err := record.Read(cg, kind)
	if err != nil || now == nil || now.Cleared {
		return nil, err
	}
	if err := c.mark(cg, now, true); err != nil {
		return nil, err
	}
	return c.remove(cg, now)
}

func (c *Clearer) mark(cg cgroupfs.Cgroup, r *record.Record, cleared bool) error {
	if c.DryRun {
		return nil
	}
	marked := *r
	marked.Cleared = cleared
	return record.Write(cg, &marked)
}

// removalsBelow returns the lines that remove a record's limits from a cgroup that the runtime has below the
// container's.
func removalsBelow(r *record.Record) []blkio.Replacement {
	var out []blkio.Replacement
	for _, s := range r.Settings {
		if s.IsLimit() {
			out = append(out, blkio.Replacement{Address: s.Address, From: s.Amount, To: s.Removal().Amount})
		}
	}
	return out
}
