package inspect

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/blkio/hostfs"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
	"github.com/nri-blkio/nri-blkio/plugin/burst"
	"github.com/nri-blkio/nri-blkio/plugin/iocost"
)

// Host has the parts of a node that the reports read.
type Host struct {
	Cgroups     *cgroupfs.Hierarchy
	Storage     *storage.Storage
	StorageErr  error // why Storage is nil; Status reports the rest without it
	Sysfs       storage.Sysfs
	Root        hostfs.Root
	Proc        fs.FS         // /proc
	Bursts      *burst.File   // the credits of bursts; nil if they are unknown
	StateDir    string        // where "nri-blkio run" writes its state, as this process sees it
	KubeletRoot string        // the kubelet's root directory, a path of the node
	OrphanGrace time.Duration // age from which on the directory of a pod without a cgroup counts as that of an orphan
}

// Close closes the cgroups and the storage.
func (h *Host) Close() {
	h.Cgroups.Close()
	if h.Storage != nil {
		h.Storage.Close()
	}
}

// DevicesReport is the storage of a node: its disks, and all that is on them.
type DevicesReport struct {
	// Devices are the physical disks, see Node.
	Devices []*Node `json:"devices"`
	// Orphans are the orphaned volumes.
	Orphans []Orphan          `json:"orphans"`
	Kernel  cgroupfs.Features `json:"kernel"`
	// Policy is the name of the policy that Costs depend on.
	Policy string `json:"policy"`
	// Costs are the physical disks with io.cost, or the reason why they have none, see AddCosts.
	Costs []Cost `json:"ioCost"`
	// Promised is policy.Policy.Promised.
	Promised string `json:"promised,omitempty"`
	// Lost are the reasons why swaps, volumes or orphans may be missing.
	Lost []string `json:"-"`
}

// Devices reads the node's storage. It returns an error if the disks, or the features of
// the kernel, cannot be read.
func (h *Host) Devices(ctx context.Context) (DevicesReport, error) {
	if h.Storage == nil {
		return DevicesReport{}, h.StorageErr
	}
	b := treeBuilder{storage: h.Storage, sys: h.Sysfs}
	var err error
	if b.features, err = h.Cgroups.Probe(); err != nil {
		return DevicesReport{}, err
	}
	b.qos, err = h.Cgroups.ReadIOCostQOS()
	if err != nil && !errors.Is(err, blkio.ErrNotSupported) {
		return DevicesReport{}, err
	}
	if b.bfq, err = iocost.ServesBFQ(h.Cgroups); err != nil {
		return DevicesReport{}, err
	}
	if b.devices, err = b.sys.Stack(); err != nil {
		return DevicesReport{}, err
	}
	r := DevicesReport{Kernel: b.features, Costs: []Cost{}}
	if b.swaps, err = h.swaps(); err != nil {
		r.Lost = append(r.Lost, err.Error())
	}
	b.volumes = h.volumes(ctx, &r)
	r.Devices = b.build(ctx)
	return r, nil
}

// swaps returns none if the kernel is built without.
func (h *Host) swaps() ([]storage.Swap, error) {
	f, err := h.Root.Open("/proc/swaps")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return storage.ParseSwaps(f)
}

// volumes finds the volumes, and adds to the report those that are orphaned with the processes
// that hold them.
func (h *Host) volumes(ctx context.Context, r *DevicesReport) []podVolume {
	lost := func(err error) {
		if err != nil {
			r.Lost = append(r.Lost, err.Error())
		}
	}
	records, err := Records(h.Cgroups, Filter{})
	lost(err)
	f := h.orphanFinder(ctx, records)
	volumes, err := f.volumes(ctx)
	lost(err)
	r.Orphans, err = f.find(ctx)
	lost(err)
	volumes = withOrphans(volumes, r.Orphans)
	for i := range volumes {
		volumes[i].pod = f.names[volumes[i].UID]
	}
	holders := holderFinder{proc: h.Proc, names: map[string]podName{}}
	for uid, name := range f.names {
		holders.names[underscored(uid)] = name
	}
	ctx, cancel := context.WithTimeout(ctx, searchTime)
	defer cancel()
	r.Lost = append(r.Lost, holders.find(ctx, h.Storage.Mounts(), r.Orphans)...)
	return volumes
}

// searchTime bounds the time to read all processes of a node, and that to read all pods.
const searchTime = 10 * time.Second

// Orphans returns the orphaned volumes of the selected pods, without their holders. With an
// error, some may be missing.
func (h *Host) Orphans(ctx context.Context, records []Recorded, filter Filter) ([]Orphan, error) {
	ctx, cancel := context.WithTimeout(ctx, searchTime)
	defer cancel()
	found, err := h.orphanFinder(ctx, records).find(ctx)
	return slices.DeleteFunc(found, func(o Orphan) bool {
		return !filter.Matches(o.Namespace, o.Pod)
	}), err
}
