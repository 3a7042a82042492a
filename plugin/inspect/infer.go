package inspect

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/policy"
)

// Without wb_stats the kernel does not list removed cgroups. But the counters of a pod
// include those of its removed containers: they are the difference between the counters of
// the pod and of its running containers. That shows neither the container nor the disk.

const (
	// sampleTime is the time between two samples of a pod's counters.
	sampleTime = time.Second
	// minGrowth is more than running containers write, in bytes, between the reading of
	// their counters and of the pod's.
	minGrowth = 64 << 10
)

const inferredText = "%v, so this is inferred: LEFT is what is charged to all ended containers of a pod, on all disks; " +
	"of several, CONTAINER is the last one whose limits were not lifted; measured is what the pod wrote in %v beyond its running containers"

// suspect is a pod with removed cgroups of ended containers.
type suspect struct {
	Recorded
	left     uint64
	leftOK   bool
	before   written
	beforeOK bool
}

// infer finds the data that ended containers of each pod have left, on kernels without
// wb_stats.
func (f *deadFinder) infer(why error) DeadReport {
	out := DeadReport{Rows: []DeadRow{}}
	var suspects []suspect
	for _, r := range f.records {
		if r.Record.Kind != record.KindPod || len(r.Record.Exits) == 0 {
			continue
		}
		if dying, err := r.Cgroup.ReadDying(); err != nil || dying == 0 {
			continue
		}
		out.Note = fmt.Sprintf(inferredText, why, sampleTime)
		s := suspect{Recorded: r}
		s.left, s.leftOK = f.unwritten(r.Cgroup)
		if s.leftOK && s.left == 0 {
			continue // clean pages, mostly
		}
		s.before, s.beforeOK = readWritten(r.Cgroup)
		suspects = append(suspects, s)
	}
	if len(suspects) > 0 {
		passed := f.wait()
		for _, s := range suspects {
			out.Rows = append(out.Rows, f.inferredRows(&s, passed)...)
		}
	}
	sortDead(out.Rows)
	return out
}

// waitSample waits until the second sample is due. It returns the time that it waited,
// which may be longer on a busy node.
func waitSample() time.Duration {
	began := time.Now()
	time.Sleep(sampleTime)
	return time.Since(began)
}

// inferredRows returns a row for each limited disk that ended containers of the pod have
// written to. If they have written to none, it returns one row for the data that they have
// left.
func (f *deadFinder) inferredRows(s *suspect, passed time.Duration) []DeadRow {
	grown := map[blkio.Dev]uint64{}
	if after, ok := readWritten(s.Cgroup); ok && s.beforeOK {
		grown = after.since(s.before)
	}
	e := Ended{s.Record, likeliest(s.Record.Exits)}
	limited := f.limited()
	var rows []DeadRow
	for _, dev := range slices.SortedFunc(maps.Keys(grown), blkio.Dev.Compare) {
		if limited[dev] && grown[dev] >= minGrowth {
			row := e.row(dev, true)
			row.Disk, row.Dev, row.Left = f.name(dev), dev.String(), s.left
			row.Measured = uint64(float64(grown[dev]) / passed.Seconds())
			rows = append(rows, row)
		}
	}
	if len(rows) > 0 || !s.leftOK {
		return rows
	}
	// Nothing was written, as may be at a small limit; or elsewhere.
	dev, one := soleDev(e.limits())
	row := e.row(dev, one)
	row.Left = s.left
	if one {
		row.Disk, row.Dev = f.name(dev), dev.String()
	}
	return []DeadRow{row}
}

// likeliest returns the last container whose limits were not lifted or, if there is none,
// the last one: the data of the others was written without delay.
func likeliest(exits []record.Exit) *record.Exit {
	for i := len(exits) - 1; i >= 0; i-- {
		if len(exits[i].Limits) > 0 {
			return &exits[i]
		}
	}
	return &exits[len(exits)-1]
}

func soleDev(limits policy.Settings) (dev blkio.Dev, one bool) {
	for _, s := range limits {
		if one && s.Dev != dev {
			return dev, false
		}
		dev, one = s.Dev, true
	}
	return dev, one
}

// unwritten returns the bytes that are charged to the pod and to none of its children. It
// returns 0 if the kernel's counters may be wrong by as much. ok is false without the
// memory controller.
func (f *deadFinder) unwritten(pod cgroupfs.Cgroup) (left uint64, ok bool) {
	children, err := pod.Children()
	if err != nil {
		return 0, false
	}
	var living uint64
	for _, c := range children {
		n, err := c.ReadUnwritten()
		if err != nil {
			return 0, false // without the controller, or just removed
		}
		living += n
	}
	all, err := pod.ReadUnwritten()
	if err != nil {
		return 0, false
	}
	if all < living || all-living <= f.noise {
		return 0, true
	}
	return all - living, true
}

// written counts the bytes that a pod and each of its children have written.
type written struct {
	pod      map[blkio.Dev]blkio.Stat
	children map[string]map[blkio.Dev]blkio.Stat
}

func readWritten(pod cgroupfs.Cgroup) (written, bool) {
	w := written{children: map[string]map[blkio.Dev]blkio.Stat{}}
	var err error
	if w.pod, err = pod.ReadIOStat(); err != nil {
		return w, false
	}
	children, err := pod.Children()
	if err != nil {
		return w, false
	}
	for _, c := range children {
		if w.children[c.Path()], err = c.ReadIOStat(); err != nil {
			return w, false
		}
	}
	return w, true
}

// since returns the bytes that removed cgroups have written between two samples, by disk.
// It returns none if a child was removed in between, whose bytes are in one of the samples
// only.
func (w written) since(before written) map[blkio.Dev]uint64 {
	out := map[blkio.Dev]uint64{}
	for path := range before.children {
		if _, ok := w.children[path]; !ok {
			return out
		}
	}
	for dev, now := range w.pod {
		grown := int64(now.Wbytes - before.pod[dev].Wbytes)
		for path, stats := range w.children {
			grown -= int64(stats[dev].Wbytes - before.children[path][dev].Wbytes)
		}
		if grown > 0 {
			out[dev] = uint64(grown)
		}
	}
	return out
}
