package cgroupfs

import (
	"errors"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// ReplaceIOMaxBelow replaces values of io.max in the children of c. With the systemd driver
// crun runs the processes of a container in a child of the container's cgroup, and writes
// the limits of the OCI spec there. The smallest limit on the path to the root holds.
// Values that are not to be replaced stay, since a container may run a cgroup manager
// itself.
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
