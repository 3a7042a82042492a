package inspect

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/blkio/hostfs"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
	"github.com/nri-blkio/nri-blkio/plugin/burst"
	"github.com/nri-blkio/nri-blkio/plugin/iocost"
	"github.com/nri-blkio/nri-blkio/plugin/weights"
	"github.com/nri-blkio/nri-blkio/policy"
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

// Support reports whether the kernel can enforce a control on a device. Reason is set if it
// cannot.
type Support struct {
	OK     blkio.Tri `json:"ok"`
	Reason string    `json:"reason,omitempty"`
}

const noIOCgroup = "no cgroup has the io controller yet"

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

// Cost describes io.cost on a physical disk, or bfq.
type Cost struct {
	Disk   string    `json:"disk"`
	Dev    string    `json:"dev"`
	By     string    `json:"by,omitempty"` // iocost.BFQ if the operator has chosen it, "" for io.cost
	State  CostState `json:"state"`
	Reason string    `json:"reason,omitempty"` // why run does not enable it
	// Model and QOS are those in force, or those that would be. Their values are "" if only the
	// kernel has some, and shows them once io.cost was enabled on the disk.
	Model   CostValues `json:"model,omitzero"`
	QOS     CostValues `json:"qos,omitzero"`
	Warning string     `json:"warning,omitempty"` // about the model
}

// CostState is whether io.cost is enabled on a disk.
type CostState string

// The states of io.cost on a disk.
const (
	CostOn       CostState = "on"        // enabled now, by this program or another one
	CostOnDemand CostState = "on demand" // run enables it when a container with a weight uses the disk
	CostNo       CostState = "no"        // run does not enable it
	CostUnknown  CostState = "unknown"
)

// CostValues has a model or a QOS.
type CostValues struct {
	Origin iocost.Origin `json:"origin"`
	Values string        `json:"values,omitempty"` // in the form of io.cost.model and io.cost.qos
}

// AddCosts adds io.cost of the physical disks to the report, as run would decide with a policy.
func (h *Host) AddCosts(r *DevicesReport, p *policy.Policy, known weights.Disks) {
	r.Promised = p.Promised()
	states, err := weights.Preview(h.Cgroups, p, known)
	if err != nil {
		r.Lost = append(r.Lost, err.Error())
	}
	for i := range states {
		dev := states[i].Disk.Dev.String()
		if slices.ContainsFunc(r.Devices, func(n *Node) bool { return n.Dev == dev && n.Max != nil }) {
			r.Costs = append(r.Costs, newCost(&states[i], r.Kernel.Namespaced))
		}
	}
}

// newCost describes one disk. hidden is true if the files of io.cost are not visible here.
func newCost(s *iocost.State, hidden bool) Cost {
	c := Cost{Disk: s.Disk.Name, Dev: s.Disk.Dev.String(), By: s.By, Reason: s.Reason}
	switch {
	case hidden && s.By == "":
		c.State, c.Reason = CostUnknown, hiddenCost
	case s.Works:
		c.State = CostOn
	case s.Enabled:
		c.State = CostOnDemand
	default:
		c.State = CostNo
	}
	if c.State != CostOn && c.State != CostOnDemand {
		return c
	}
	if s.By != "" {
		return c
	}
	model, from := s.CostModel()
	c.Model.Origin = from
	if model != nil {
		c.Model.Values = model.String()
	}
	qos, qosFrom := s.CostQOS()
	if c.QOS.Origin = qosFrom; qos != nil {
		c.QOS.Values = qos.String()
	}
	switch {
	case from == iocost.FromKernel:
		c.Warning = GuessedModel
	case qos != nil && s.HasShortPeriod():
		c.Warning = fmt.Sprintf("io.cost's period of %v is short for this disk, so weights may have no effect: raise rlat and wlat in the qos of %s", qos.Period(), c.QOS.Origin)
	}
	return c
}

// GuessedModel is the warning for a model that nothing but the kernel knows.
const GuessedModel = "the model is the kernel's guess: calibrate the disk, or give its model in the node policy"
