package calibrate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
)

// Node has the facts about the node's use of its disks.
type Node struct {
	Storage *storage.Storage
	Sysfs   storage.Sysfs
	Cgroups *cgroupfs.Hierarchy
	// Own is the path of this process's cgroup, as OwnCgroup returns it.
	Own string
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

// use watches the disk, and describes how busy it is; "" if it is idle.
func (n *Node) use(ctx context.Context, d *storage.DiskInfo) (string, error) {
	before, err := n.Sysfs.ReadDiskStat(d.Dev)
	if err != nil {
		return "", err
	}
	start := time.Now()
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
	return fmt.Sprintf("it is busy: %.0f operations/s, %.0f %% of the time", rate, 100*part), nil
}
