package inspect

import (
	"slices"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
)

// Support reports whether the kernel can enforce a control on a device. Reason is set if it
// cannot.
type Support struct {
	OK     blkio.Tri `json:"ok"`
	Reason string    `json:"reason,omitempty"`
}

const noIOCgroup = "no cgroup has the io controller yet"

// maxSupport is the answer for all disks.
func maxSupport(f cgroupfs.Features) Support {
	switch f.IOMax {
	case blkio.No:
		return Support{blkio.No, "the kernel has no io.max (CONFIG_BLK_DEV_THROTTLING)"}
	case blkio.Unknown:
		return Support{blkio.Unknown, noIOCgroup}
	}
	return Support{OK: blkio.Yes}
}

const hiddenCost = "io.cost.qos is not visible in this cgroup namespace"

func (b *treeBuilder) weightOf(d storage.DiskInfo) Support {
	physical, err := b.sys.Physical(d.Dev)
	rest := slices.DeleteFunc(slices.Clone(physical), func(p blkio.Disk) bool { return b.bfq[p.Dev] })
	switch {
	case len(physical) > len(rest) && len(rest) == 0:
		return Support{OK: blkio.Yes}
	case b.features.IOWeight == blkio.No:
		return Support{blkio.No, "the kernel has no io.weight (CONFIG_BLK_CGROUP_IOCOST)"}
	case b.features.IOWeight == blkio.Unknown:
		return Support{blkio.Unknown, noIOCgroup}
	case b.features.Namespaced:
		return Support{blkio.Unknown, hiddenCost}
	case err != nil:
		return Support{blkio.Unknown, err.Error()}
	}
	for _, p := range rest {
		if b.qos[p.Dev].Enabled {
			continue
		}
		switch {
		case p.Dev != d.Dev:
			return Support{blkio.No, "io.cost is off on " + p.Name + " below"}
		case d.Scheduler == "bfq":
			return Support{blkio.No, "io.cost is off, and bfq uses only io.bfq.weight"}
		}
		return Support{blkio.No, "io.cost is off"}
	}
	return Support{OK: blkio.Yes}
}
