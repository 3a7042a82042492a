package inspect

import (
	"cmp"
	"runtime"
	"strings"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// DeadRow is a pod with data of ended containers left to write. The kernel keeps such data with removed cgroups,
// which no program can read. But the counters of a pod include them: the data is what is charged to the pod and
// to none of its running containers. That shows neither the container nor the disk.
type DeadRow struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	UID       string `json:"uid"`
	Container string `json:"container"`      // of several, the last one whose limits were not lifted
	Disk      string `json:"disk,omitempty"` // if the limits are on one disk
	Dev       string `json:"dev,omitempty"`
	DrainsAt  string `json:"drainsAt"` // "wbps=512Ki", or noLimit
	Left      uint64 `json:"left"`     // bytes, on all disks
	Since     string `json:"since"`    // RFC 3339
}

const noLimit = "no limit"

// FindDead finds the pods with data of ended containers left to write. A pod without the memory controller has
// no counters of that. name names a disk.
func FindDead(records []Recorded, name func(blkio.Dev) string) []DeadRow {
	rows := []DeadRow{}
	for _, r := range records {
		if r.Record.Kind != record.KindPod || len(r.Record.Exits) == 0 {
			continue
		}
		left := unwritten(r.Cgroup)
		if left <= writebackNoise(runtime.NumCPU()) {
			continue
		}
		e := Ended{r.Record, likeliest(r.Record.Exits)}
		rows = append(rows, e.row(left, name))
	}
	return rows
}

// writebackNoise returns the bytes that may be counted where there are none. Each CPU keeps up to some dozen
// pages of each counter to itself (MEMCG_CHARGE_BATCH in include/linux/memcontrol.h).
func writebackNoise(cpus int) uint64 { return uint64(max(1<<20, cpus<<16)) }

// unwritten returns the bytes that are charged to the pod and to none of its children, 0 if that is unknown.
func unwritten(pod cgroupfs.Cgroup) uint64 {
	children, err := pod.Children()
	if err != nil {
		return 0
	}
	var living uint64
	for _, c := range children {
		n, err := c.ReadUnwritten()
		if err != nil {
			return 0 // without the controller, or just removed
		}
		living += n
	}
	all, err := pod.ReadUnwritten()
	if err != nil || all < living {
		return 0
	}
	return all - living
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

// likeliest returns the last container whose limits were not lifted or, if there is none, the last one: the data
// of the others was written without delay.
func likeliest(exits []record.Exit) *record.Exit {
	for i := len(exits) - 1; i >= 0; i-- {
		if len(exits[i].Limits) > 0 {
			return &exits[i]
		}
	}
	return &exits[len(exits)-1]
}

// row returns the row for an ended container by its record.
func (e *Ended) row(left uint64, name func(blkio.Dev) string) DeadRow {
	row := DeadRow{
		Namespace: e.Pod.Namespace, Pod: e.Pod.Pod, UID: e.Pod.UID, Container: e.Exit.Container,
		Since: e.Exit.At.UTC().Format(time.RFC3339), DrainsAt: noLimit, Left: left,
	}
	limits := e.limits()
	switch lines := limits.Lines(); len(lines) {
	case 0:
	case 1:
		row.Dev, row.Disk, row.DrainsAt = lines[0].Dev.String(), name(lines[0].Dev), drainRate(limits, lines[0].Dev)
	default:
		var each []string
		for _, l := range lines {
			each = append(each, l.Dev.String()+" "+drainRate(limits, l.Dev))
		}
		row.DrainsAt = strings.Join(each, "; ")
	}
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

// drainRate formats the limits of one disk, "wbps=512Ki".
func drainRate(limits policy.Settings, dev blkio.Dev) string {
	var out []string
	for _, s := range limits {
		if s.Dev == dev {
			out = append(out, s.Key.String()+"="+annotation.FormatAmount(s.Key, s.Amount))
		}
	}
	return strings.Join(out, " ")
}

// DiskName returns the kernel's name of a disk, or its number if it was removed.
func (h *Host) DiskName(dev blkio.Dev) string {
	disk, _ := h.Sysfs.WholeDisk(dev) // a removed disk has no name
	return cmp.Or(disk.Name, dev.String())
}
