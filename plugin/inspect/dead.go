package inspect

import (
	"cmp"
	"fmt"
	"io/fs"
	"maps"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// Owner is the container that a cgroup belonged to. Pod is unknownPod if no record names
// it.
type Owner struct {
	Namespace string `json:"namespace,omitempty"`
	Pod       string `json:"pod"` // unknownPod if no record names it
	UID       string `json:"uid,omitempty"`
	Container string `json:"container,omitempty"`
}

// DeadRow is a removed cgroup with data left to write to one disk.
type DeadRow struct {
	Owner
	CgroupID uint64 `json:"cgroupID,omitempty"`
	Disk     string `json:"disk,omitempty"` // or the kernel's name of a filesystem on several disks
	Dev      string `json:"dev,omitempty"`
	DrainsAt string `json:"drainsAt"`              // "wbps=512Ki", noLimit or unknownRate
	Measured uint64 `json:"measuredBps,omitempty"` // bytes per second; 0 if it was not measured
	Left     uint64 `json:"left,omitempty"`        // bytes; 0 if it is unknown
	Since    string `json:"since,omitempty"`       // RFC 3339
}

const (
	unknownPod  = "unknown"
	unknownRate = "unknown"
	noLimit     = "no limit"
)

// DeadReport has the removed cgroups with data left to write. If the kernel does not list
// them, Note describes how they were found.
type DeadReport struct {
	Rows []DeadRow
	Note string
}

// deadDeadline bounds the time of FindDead. It reads no disk, but a kernel in trouble may
// not answer.
const deadDeadline = 10 * time.Second

// FindDead finds removed cgroups with data left to write. everyPod is true if the records
// are those of all pods. debugfs is the directory in which the kernel lists cgroups with
// dirty data, from Linux 6.10 on.
func FindDead(tree *cgroupfs.Hierarchy, sys storage.Sysfs, debugfs fs.FS, records []Recorded, everyPod bool) DeadReport {
	f := deadFinder{
		tree: tree, debugfs: debugfs, records: records,
		name: func(dev blkio.Dev) string {
			disk, _ := sys.WholeDisk(dev) // a removed disk has no name
			return cmp.Or(disk.Name, dev.String())
		},
		everyPod: everyPod, noise: writebackNoise(runtime.NumCPU()), wait: waitSample,
	}
	found := make(chan DeadReport, 1)
	go func() { found <- f.find() }()
	select {
	case r := <-found:
		return r
	case <-time.After(deadDeadline):
		return DeadReport{Rows: []DeadRow{}, Note: fmt.Sprintf("reading data of ended containers timed out after %v", deadDeadline)}
	}
}

// writebackNoise returns the bytes that may be counted where there are none. Each CPU keeps up to some dozen
// pages of each counter to itself (WB_STAT_BATCH in include/linux/backing-dev.h, MEMCG_CHARGE_BATCH).
func writebackNoise(cpus int) uint64 { return uint64(max(1<<20, cpus<<16)) }

type deadFinder struct {
	tree     *cgroupfs.Hierarchy
	debugfs  fs.FS
	records  []Recorded
	name     func(blkio.Dev) string // of a disk
	everyPod bool                   // the records of all pods were read, so a cgroup that no record names belongs to no pod
	noise    uint64
	wait     func() time.Duration // between two reads
}

func (f *deadFinder) find() DeadReport {
	if len(f.records) == 0 {
		return DeadReport{Rows: []DeadRow{}}
	}
	stats, err := cgroupfs.ReadWritebackStats(f.debugfs)
	if err != nil {
		return f.infer(err)
	}
	return DeadReport{Rows: f.listed(stats)}
}

// Ended is an ended container by the record of its pod.
type Ended struct {
	Pod  *record.Record
	Exit *record.Exit
}

// EndedContainers returns the ended containers of the records, by the IDs of their cgroups.
func EndedContainers(records []Recorded) map[uint64]Ended {
	out := map[uint64]Ended{}
	for _, r := range records {
		for i := range r.Record.Exits {
			for _, id := range r.Record.Exits[i].CgroupIDs {
				out[id] = Ended{r.Record, &r.Record.Exits[i]}
			}
		}
	}
	return out
}

// limited returns the disks that a container or pod has a limit on, or had when it ended.
func (f *deadFinder) limited() map[blkio.Dev]bool {
	out := map[blkio.Dev]bool{}
	for _, r := range f.records {
		for _, s := range r.Record.Settings.In(blkio.IOMax) {
			out[s.Dev] = true
		}
		for _, e := range r.Record.Exits {
			for _, s := range e.Limits {
				out[s.Dev] = true
			}
		}
	}
	return out
}

// listed returns the removed cgroups in the kernel's list. The list is read before the tree
// of cgroups, so that a cgroup that is created in between does not count as removed.
func (f *deadFinder) listed(stats map[string][]cgroupfs.WritebackStat) []DeadRow {
	live, err := f.tree.IDs()
	features, probeErr := f.tree.Probe()
	seesAll := f.everyPod && err == nil && probeErr == nil && !features.Namespaced
	owners, limited := EndedContainers(f.records), f.limited()
	rows := []DeadRow{}
	for _, bdi := range slices.Sorted(maps.Keys(stats)) {
		dev, devErr := blkio.ParseDev(bdi)
		sums := bySubject(stats[bdi], owners)
		for _, id := range slices.Sorted(maps.Keys(sums)) {
			owner, known := owners[id]
			shown := known || seesAll && devErr == nil && limited[dev]
			if _, there := live[id]; there || !shown || !f.holds(sums[id]) {
				continue
			}
			row := DeadRow{Owner: Owner{Pod: unknownPod}, DrainsAt: unknownRate}
			if known {
				row = owner.row(dev, devErr == nil)
			}
			row.CgroupID, row.Left, row.Disk = id, sums[id].Left(), bdi
			if devErr == nil {
				row.Disk, row.Dev = f.name(dev), bdi
			}
			rows = append(rows, row)
		}
	}
	sortDead(rows)
	return rows
}

// bySubject adds up the rows of each container, and keeps the first of its cgroup IDs.
func bySubject(stats []cgroupfs.WritebackStat, owners map[uint64]Ended) map[uint64]cgroupfs.WritebackStat {
	out := map[uint64]cgroupfs.WritebackStat{}
	for _, w := range stats {
		id := w.CgroupID
		if owner, ok := owners[id]; ok {
			id = owner.Exit.CgroupIDs[0]
		}
		sum := out[id]
		sum.Dirty += w.Dirty
		sum.Writeback += w.Writeback
		sum.Inodes += w.Inodes
		out[id] = sum
	}
	return out
}

// holds reports whether a cgroup has data left to write, more than the kernel's counters
// can be wrong by.
func (f *deadFinder) holds(w cgroupfs.WritebackStat) bool {
	return w.Left() > f.noise || w.Inodes > 0 && w.Left() > 0
}

// row returns the row for an ended container by its record. dev is the disk if oneDisk is
// true.
func (e *Ended) row(dev blkio.Dev, oneDisk bool) DeadRow {
	row := DeadRow{
		Owner: Owner{Namespace: e.Pod.Namespace, Pod: e.Pod.Pod, UID: e.Pod.UID, Container: e.Exit.Container},
		Since: e.Exit.At.UTC().Format(time.RFC3339),
	}
	limits := e.limits()
	if oneDisk {
		row.DrainsAt = cmp.Or(drainRate(limits, dev), noLimit)
		return row
	}
	var each []string
	for _, l := range limits.Lines() {
		each = append(each, l.Dev.String()+" "+drainRate(limits, l.Dev))
	}
	row.DrainsAt = cmp.Or(strings.Join(each, "; "), noLimit)
	return row
}

// limits returns the limits on writes that apply to the data of an ended container. These are the lower ones of
// its own limits that were not lifted, and those of its pod.
func (e *Ended) limits() policy.Settings {
	if e.Pod.Observed || e.Pod.Cleared {
		return e.Exit.Limits.WriteLimits()
	}
	return e.Exit.Limits.Lowest(e.Pod.Settings).WriteLimits()
}

// drainRate formats the limits of one disk, "wbps=512Ki"; "" where there is none.
func drainRate(limits policy.Settings, dev blkio.Dev) string {
	var out []string
	for _, s := range limits {
		if s.Dev == dev {
			out = append(out, s.Key.String()+"="+annotation.FormatAmount(s.Key, s.Amount))
		}
	}
	return strings.Join(out, " ")
}

func sortDead(rows []DeadRow) {
	slices.SortStableFunc(rows, func(a, b DeadRow) int {
		if (a.Namespace == "") != (b.Namespace == "") {
			return cmp.Compare(b.Namespace, a.Namespace) // the unknown last
		}
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod),
			cmp.Compare(a.Container, b.Container), cmp.Compare(a.Since, b.Since), cmp.Compare(a.Disk, b.Disk))
	})
}
