package why

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/blkio/wait"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/plugin/runtimeconfig"
)

// Measured is what was measured of a node in some time.
type Measured struct {
	Target   Subject // zero: all pods
	Duration time.Duration
	// Within are the IDs of the target's cgroups, with those below.
	Within map[uint64]bool
	Used   map[blkio.Dev]bool // the disks that the target has ever used
	id     uint64             // of the target
	Times  wait.Times
	// Unknown are the causes that the kernel does not tell, with the reasons. NoWaits is the reason why none was
	// counted.
	Unknown map[wait.Cause]error
	NoWaits error
	// Unsampled is the reason why waits for a journal that began before, and have not ended, are not seen.
	Unsampled error
	Unread    error    // why cgroups and records are missing
	Cgroups   []Cgroup // pods, containers and those above the target: the target, its pod, and the others
	// CPU and Memory are the parts of the time in which some thread of the target waited for a CPU, or for memory; nil
	// if the kernel has no pressure stall information.
	CPU, Memory *float64
	Subjects    map[uint64]Subject // of the IDs in Times
	Disks       map[blkio.Dev]string
}

// Cgroup is what was measured of a cgroup.
type Cgroup struct {
	Subject
	wait.Activity
	Record    *record.Record // nil: none
	Unwritten uint64         // bytes that are dirty or under writeback; not read without a target
}

// Node is where Measure measures.
type Node struct {
	Cgroups *cgroupfs.Hierarchy
	Pods    []runtimeconfig.Pod // nil: the runtime did not answer
	Disk    func(blkio.Dev) string
	Btrfs   func(blkio.Dev) bool // reports whether a disk has btrfs
	Proc    string               // where procfs is mounted
	Attach  func() (Observer, error)
}

// Observer counts waits, see wait.Observer.
type Observer interface {
	Read() (wait.Times, error)
	Unknown() map[wait.Cause]error
	Close() error
}

// reading is what is read of a cgroup at one time.
type reading struct {
	use         wait.Use
	cpu, memory *blkio.Pressure
}

// Measure measures for a duration. The error names the target if the node does not have it.
func Measure(ctx context.Context, node Node, target Target, duration time.Duration) (_ Measured, err error) {
	n, namesErr := newNames(node.Cgroups, node.Pods)
	subject, err := n.find(target)
	if err != nil {
		return Measured{}, errors.Join(err, namesErr)
	}
	began := n.sample(node, subject)
	w, err := watch(node, n, subject)
	if err != nil {
		return Measured{}, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	select {
	case <-time.After(duration):
	case <-ctx.Done(): // what was measured until then is an answer as well
	}
	m, err := w.Next()
	if err != nil {
		return Measured{}, err
	}
	// Of a wait that began before the programs were attached they see nothing, and pressure leaves a journal out.
	if threads := n.sample(node, subject).Since(began)[wait.Journal]; threads > 0 && m.NoWaits == nil {
		m.Times.At[wait.Place{Cause: wait.Journal, Cgroup: m.id}] = wait.Time{Sum: time.Duration(threads) * m.Times.Duration}
	}
	m.Unsampled = wait.MaySample(node.Proc)
	if len(m.Cgroups) == 0 || m.Cgroups[0].Cgroup != subject.Cgroup {
		return Measured{}, fmt.Errorf("%s ended while it was measured", subject)
	}
	return m, nil
}

// sample returns what the threads of the target wait for now. It is empty without the rights.
func (n *names) sample(node Node, target Subject) *wait.Samples {
	s := &wait.Samples{}
	for _, dir := range n.paths {
		if dir == target.Cgroup || strings.HasPrefix(dir, target.Cgroup+"/") {
			if pids, err := node.Cgroups.Cgroup(dir).Processes(); err == nil {
				_ = s.Sample(node.Proc, pids)
			}
		}
	}
	return s
}

// readAll reads the pods and their containers, and the cgroups above the target. One that is removed meanwhile is left out.
func readAll(tree *cgroupfs.Hierarchy, n *names, target Subject) map[string]reading {
	out := map[string]reading{}
	for _, dir := range n.paths {
		pod, container := split(dir)
		if dir != path.Join(pod, container) && !strings.HasPrefix(target.Cgroup, dir+"/") {
			continue
		}
		c := tree.Cgroup(dir)
		use, err := wait.ReadUse(c)
		if err != nil {
			continue
		}
		r := reading{use: use}
		if dir == target.Cgroup {
			r.cpu, r.memory = pressure(c, "cpu.pressure"), pressure(c, "memory.pressure")
		}
		out[dir] = r
	}
	return out
}

func pressure(c cgroupfs.Cgroup, file string) *blkio.Pressure {
	text, err := c.ReadText(file, nil)
	if err != nil {
		return nil
	}
	p, err := blkio.ParsePressure(string(text))
	if err != nil {
		return nil
	}
	return &p
}

// compare fills what follows from two readings.
func (m *Measured) compare(node Node, n *names, earlier, later map[string]reading) {
	m.Disks, m.Subjects, m.Within, m.Used = map[blkio.Dev]string{}, map[uint64]Subject{}, map[uint64]bool{}, map[blkio.Dev]bool{}
	for dir, r := range later {
		before, ok := earlier[dir]
		if !ok {
			continue
		}
		c := Cgroup{Subject: n.at(dir), Activity: wait.UseBetween(before.use, r.use), Record: n.records[dir]}
		if m.Target != (Subject{}) {
			c.Unwritten, _ = node.Cgroups.Cgroup(dir).ReadUnwritten() // 0 without the memory controller
		}
		if dir == m.Target.Cgroup {
			m.Duration = c.Duration
			for dev, s := range r.use.Stat {
				m.Used[dev] = s.Rios+s.Wios > 0 // the kernel also lists others
			}
			m.CPU, m.Memory = some(before.cpu, r.cpu, c.Duration), some(before.memory, r.memory, c.Duration)
		}
		for _, d := range c.Disks {
			m.addDisk(node, d.Dev)
		}
		m.Cgroups = append(m.Cgroups, c)
	}
	slices.SortFunc(m.Cgroups, func(a, b Cgroup) int {
		return cmp.Or(strings.Compare(m.order(a), m.order(b)), strings.Compare(a.Cgroup, b.Cgroup))
	})
	for at := range m.Times.At {
		for _, id := range []uint64{at.Cgroup, at.By} {
			if _, known := m.Subjects[id]; !known {
				m.Subjects[id] = n.of(id)
			}
		}
		if at.Dev != (blkio.Dev{}) {
			m.addDisk(node, at.Dev)
		}
	}
	for id, dir := range n.paths {
		if dir == m.Target.Cgroup || strings.HasPrefix(dir, m.Target.Cgroup+"/") {
			m.Within[id] = true
		}
		if dir == m.Target.Cgroup {
			m.id = id
		}
	}
}

// noteBtrfs makes waits for a journal unknown if the target, or without one any pod, uses a disk with btrfs. No program counts its
// commits, and pressure has no wait for them.
func (m *Measured) noteBtrfs(node Node) {
	used := m.Used
	if m.Target == (Subject{}) {
		used = map[blkio.Dev]bool{}
		for i := range m.Cgroups {
			for _, d := range m.Cgroups[i].Disks {
				used[d.Dev] = true
			}
		}
	}
	for _, dev := range slices.SortedFunc(maps.Keys(used), blkio.Dev.Compare) {
		if used[dev] && m.NoWaits == nil && m.Unknown[wait.Journal] == nil && node.Btrfs(dev) {
			m.Unknown = maps.Clone(m.Unknown)
			if m.Unknown == nil {
				m.Unknown = map[wait.Cause]error{}
			}
			m.Unknown[wait.Journal] = fmt.Errorf("commits of btrfs, which %s has, are not counted: look for btrfs_ in /proc/PID/stack of its threads", node.Disk(dev))
		}
	}
}

func (m *Measured) addDisk(node Node, dev blkio.Dev) {
	if _, known := m.Disks[dev]; !known {
		m.Disks[dev] = node.Disk(dev)
	}
}

// order puts the target first, then its pod.
func (m *Measured) order(c Cgroup) string {
	switch {
	case c.Cgroup == m.Target.Cgroup:
		return "0"
	case c.isOfPod(m.Target):
		return "1"
	}
	return "2"
}

func some(earlier, later *blkio.Pressure, d time.Duration) *float64 {
	if earlier == nil || later == nil || d <= 0 {
		return nil
	}
	part := (later.Some - earlier.Some).Seconds() / d.Seconds()
	return &part
}
