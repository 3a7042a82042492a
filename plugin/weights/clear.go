package weights

import (
	"errors"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/plugin/iocost"
	"github.com/nri-blkio/nri-blkio/plugin/shares"
)

// Clear removes the settings of a Keeper, where no Keeper runs: the weights of cgroups above containers, and
// io.cost. It returns a line for each write, also with an error. With dryRun it changes nothing.
func Clear(cgroups *cgroupfs.Hierarchy, disks Disks, dryRun bool) (steps []string, err error) {
	steps, sharesErr := shares.Clear(cgroups, dryRun)
	identities := map[blkio.Dev]string{}
	all, disksErr := disks.Disks()
	for i := range all {
		identities[all[i].Dev] = identity(&all[i])
	}
	more, err := iocost.Clear(cgroups, identities, dryRun)
	if errors.Is(err, blkio.ErrNotSupported) { // the kernel has no io.cost
		err = nil
	}
	return append(steps, more...), errors.Join(sharesErr, disksErr, err)
}
