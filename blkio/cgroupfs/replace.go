package cgroupfs

import (
	"errors"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// ReplaceIOMaxBelow replaces values of io.max in the cgroups right below c. crun, with
// the systemd driver, has a container's processes in a cgroup of their own below
// the container's, and the limits of the OCI spec there: the lowest on the way
// holds. Other values than those to be replaced stay, since a container may run a cgroup
// manager itself.
func (c Cgroup) ReplaceIOMaxBelow(replacements []blkio.Replacement) error {
	if len(replacements) == 0 {
		return nil
	}
	children, err := c.Children()
	errs := []error{err}
	for _, child := range children {
		actual, err := child.ReadIOMax()
		if err != nil {
			continue // no io controller there, so no limits; or it was removed
		}
		for _, r := range replacements {
			if r.File() == blkio.IOMax && actual[r.Dev][r.Key] == r.From {
				for _, line := range blkio.Lines([]blkio.Value{{Address: r.Address, Amount: r.To}}) {
					errs = append(errs, child.Write(line))
				}
			}
		}
	}
	return errors.Join(errs...)
}
