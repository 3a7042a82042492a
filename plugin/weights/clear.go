package weights

import (
	"errors"

	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/plugin/iocost"
	"github.com/nri-blkio/nri-blkio/plugin/shares"
)

// Clear removes the settings of a Keeper, where no Keeper runs: the weights of cgroups above containers,
// io.cost and bfq. It returns a line for each write, also with an error. With dryRun it changes nothing.
func Clear(cgroups *cgroupfs.Hierarchy, disks Disks, dryRun bool) (steps []string, err error) {
	steps, sharesErr := shares.Clear(cgroups, dryRun)
	all, disksErr := disks.Disks()
	setups := make([]iocost.Setup, len(all))
	for i := range all {
		setups[i] = iocost.Setup{Disk: all[i].Disk, Identity: identity(&all[i]), Scheduler: all[i].Scheduler, LowLatency: all[i].LowLatency}
	}
	more, err := iocost.Clear(cgroups, disks.SetQueue, setups, dryRun)
	return append(steps, more...), errors.Join(sharesErr, disksErr, err)
}
