package calibrate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
)

const (
	// watchTime is the time for which the disk is watched before a calibration.
	watchTime = time.Second
	// A disk is busy from this rate on, or with operations in flight for this part of the time.
	busyRate, busyPart = 50, 0.1
	// mostUsers is how many cgroups an error names.
	mostUsers = 3
)

// Node has the facts about the node's use of its disks.
type Node struct {
	Storage *storage.Storage
	Sysfs   storage.Sysfs
	Cgroups *cgroupfs.Hierarchy
	// Own is the path of this process's cgroup, as OwnCgroup returns it.
	Own string
	// NameOf names the container or pod of a cgroup; "" if it is not known.
	NameOf func(cgroup string) string
}

// OwnCgroup returns the path of this process's cgroup, "." if it is not known.
func OwnCgroup() string {
	data, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "."
	}
	return cgroupOf(string(data))
}

// cgroupOf parses /proc/PID/cgroup. The path begins with ".." if the cgroup is outside of the reader's
// cgroup namespace, whose root is the only one that is mounted.
//
//	0::/system.slice/ssh.service
//
// Source: cgroup_namespaces(7).
func cgroupOf(data string) string {
	for line := range strings.Lines(data) {
		if p, ok := strings.CutPrefix(strings.TrimSpace(line), "0::/"); ok && filepath.IsLocal(p) {
			return p
		}
	}
	return "."
}

// obstacles returns the reasons that would distort a calibration of the disk now.
func (n *Node) obstacles(ctx context.Context, d *storage.DiskInfo) (out []string, err error) {
	qos, err := n.Cgroups.ReadIOCostQOS()
	if err != nil && !errors.Is(err, blkio.ErrNotSupported) {
		return nil, err
	}
	if qos[d.Dev].Enabled {
		out = append(out, "io.cost is enabled on it, and would slow the calibration down")
	}
	for p := n.Own; ; {
		limits, err := n.Cgroups.Cgroup(p).ReadIOMax()
		// The root cgroup has no io.max, nor has a cgroup without the io controller. A cgroup that does not
		// exist here belongs to another tree.
		if err != nil && !errors.Is(err, blkio.ErrNotSupported) && !errors.Is(err, blkio.ErrGone) {
			return nil, fmt.Errorf("find the limits of this process: %w", err)
		}
		if _, isLimited := limits[d.Dev]; isLimited {
			out = append(out, "this process is limited on it, by io.max of its cgroup "+p)
		}
		cut := strings.LastIndexByte(p, '/')
		if cut <= 0 {
			break
		}
		p = p[:cut]
	}
	use, err := n.use(ctx, d)
	if use != "" {
		out = append(out, use)
	}
	return out, err
}

// use watches the disk, and describes its users; "" if the disk is idle.
func (n *Node) use(ctx context.Context, d *storage.DiskInfo) (string, error) {
	before, err := n.Sysfs.ReadDiskStat(d.Dev)
	if err != nil {
		return "", err
	}
	start, users := time.Now(), n.ioOf(d.Dev)
	select {
	case <-time.After(watchTime):
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	after, err := n.Sysfs.ReadDiskStat(d.Dev)
	if err != nil {
		return "", err
	}
	seconds, delta := time.Since(start).Seconds(), after.Sub(before)
	rate, part := float64(delta.Reads+delta.Writes)/seconds, min(1, delta.Active.Seconds()/seconds)
	if rate < busyRate && part < busyPart {
		return "", nil
	}
	parts := []string{fmt.Sprintf("it is busy: %.0f operations/s, %.0f %% of the time", rate, 100*part)}
	for _, by := range n.busiest(users, n.ioOf(d.Dev)) {
		parts = append(parts, fmt.Sprintf("%.0f/s by %s", by.operations/seconds, by.name))
	}
	return strings.Join(parts, ", "), nil
}

// ioOf returns the operations of each cgroup on a disk. It leaves out cgroups that cannot be read, because the
// result is only used in a message.
func (n *Node) ioOf(dev blkio.Dev) map[string]uint64 {
	out := map[string]uint64{}
	var visit func(c cgroupfs.Cgroup)
	visit = func(c cgroupfs.Cgroup) {
		stats, err := c.ReadIOStat()
		s, isUser := stats[dev]
		if err == nil && !isUser {
			return // neither are those below it
		}
		out[c.Path()] = s.Rios + s.Wios
		children, err := c.Children()
		if err != nil {
			return
		}
		for _, child := range children {
			visit(child)
		}
	}
	visit(n.Cgroups.Cgroup("."))
	return out
}

// user is a cgroup that uses a disk.
type user struct {
	cgroup, name string
	operations   float64
}

// busiest returns the cgroups with most operations between two reads, the lowest ones in the tree.
func (n *Node) busiest(before, after map[string]uint64) (out []user) {
	for cgroup, now := range after {
		if done := now - before[cgroup]; now > before[cgroup] && cgroup != "." {
			out = append(out, user{cgroup, cmp.Or(n.NameOf(cgroup), "cgroup "+cgroup), float64(done)})
		}
	}
	out = slices.DeleteFunc(out, func(u user) bool {
		return slices.ContainsFunc(out, func(other user) bool { return strings.HasPrefix(other.cgroup, u.cgroup+"/") })
	})
	slices.SortFunc(out, func(a, b user) int {
		return cmp.Or(cmp.Compare(b.operations, a.operations), cmp.Compare(a.cgroup, b.cgroup))
	})
	return out[:min(len(out), mostUsers)]
}
