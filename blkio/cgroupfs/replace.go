package cgroupfs

import (
	"errors"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// Replacement is one value of io.max and what is to be there instead.
type Replacement struct {
	Dev      blkio.Dev
	Key      blkio.Key
	From, To blkio.Amount
}

// ReplaceIOMaxBelow replaces values in the cgroups right below c. crun, with
// the systemd driver, has a container's processes in a cgroup of their own below
// the container's, and the limits of the OCI spec there: the lowest on the way
// holds. Values that differ from what is to be replaced are left alone, since a
// container may run a cgroup manager itself.
func (c Cgroup) ReplaceIOMaxBelow(replacements []Replacement) error {
	if len(replacements) == 0 {
		return nil
	}
	children, err := c.Children()
	errs := []error{err}
	for _, child := range children {
		actual, err := child.ReadIOMax()
		if err != nil {
			continue // no io controller there, so no limits; or it has gone
		}
		for _, r := range replacements {
			if actual[r.Dev][r.Key] == r.From {
				line := blkio.DevLimits{Dev: r.Dev}
				line.Limits[r.Key] = r.To
				errs = append(errs, child.WriteIOMax(line))
			}
		}
	}
	return errors.Join(errs...)
}
