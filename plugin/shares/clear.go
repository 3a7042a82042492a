package shares

import (
	"errors"
	"fmt"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
)

// Clear removes the weights that a Keeper has set, where no Keeper runs. It returns a line for
// each of them, also with an error. With dryRun it changes nothing.
func Clear(cgroups *cgroupfs.Hierarchy, dryRun bool) (steps []string, err error) {
	var errs []error
	err = cgroups.Walk(Attribute, func(at cgroupfs.Cgroup, _ cgroupfs.Attribute) error {
		cleared, err := newCgroup(at, ofCost(cgroupfs.Cgroup.Write)).clear(dryRun)
		steps = append(steps, cleared...)
		if !errors.Is(err, blkio.ErrGone) {
			errs = append(errs, err)
		}
		return nil
	})
	return steps, errors.Join(append(errs, err)...)
}

func (c *cgroup) clear(dryRun bool) (steps []string, err error) {
	ours, err := c.readOurs()
	if err != nil {
		return nil, err
	}
	for _, dev := range ours {
		steps = append(steps, fmt.Sprintf("%s: write io.weight %q", c.Path(), dev.String()+" default"))
	}
	if dryRun {
		return steps, nil
	}
	return steps, c.unset(ours, ours)
}
