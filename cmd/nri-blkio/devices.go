package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nri-blkio/nri-blkio/blkio"
)

const devicesLong = `List the node's disks: what is mounted from them, and what the kernel can
enforce there.

MAX is about limits (io.max). WEIGHT is about io.weight, which needs a kernel
that has it and io.cost switched on for the physical disk, in the root cgroup:

    echo "8:16 enable=1" > /sys/fs/cgroup/io.cost.qos

A limit goes to the device that the filesystem sits on: the disk of a partition,
a logical volume, an encrypted or RAID device. BELOW names what that is made of.`

func (a *app) devicesCommand() *cobra.Command {
	var o output
	cmd := &cobra.Command{
		Use:   "devices",
		Short: "The node's disks, and what each can enforce",
		Long:  devicesLong,
		Example: `  nri-blkio devices
  nri-blkio devices -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.devices(cmd.Context(), o.json()) },
	}
	o.add(cmd)
	return cmd
}

func (a *app) devices(ctx context.Context, asJSON bool) error {
	tree, err := a.openCgroups(a.opts.cgroupDir())
	if err != nil {
		return err
	}
	defer tree.Close()
	features, err := tree.Probe()
	if err != nil {
		return err
	}
	qos, err := tree.ReadIOCostQOS()
	if err != nil && !errors.Is(err, blkio.ErrNotSupported) {
		return err
	}
	sys := a.opts.sysfs()
	disks, err := sys.Disks()
	if err != nil {
		return err
	}
	s, err := a.opts.storage()
	if err != nil {
		return err
	}
	defer s.Close()
	mounted := filesystems(ctx, s)
	rows := make([]deviceRow, 0, len(disks))
	for _, d := range disks {
		row := newDeviceRow(d, mounted[d.Dev])
		row.Max = maxSupport(features)
		row.Weight = weightOf(features, qos, d, sys)
		rows = append(rows, row)
	}
	return a.printDevices(rows, features, asJSON)
}

func (a *app) printDevices(rows []deviceRow, features blkio.Features, asJSON bool) error {
	if asJSON {
		return printJSON(a.stdout, map[string]any{"devices": rows, "kernel": features})
	}
	t := newTable(a.stdout, "DEVICE", "NAME", "SIZE", "MODEL", "BELOW", "FILESYSTEMS", "MAX", "WEIGHT")
	for _, r := range rows {
		t.row(r.Dev, r.Name, formatBytes(r.Size), r.Model, strings.Join(r.Below, ","), r.mounts(), r.Max.String(), r.Weight.String())
	}
	return t.flush()
}

// deviceRow is one disk.
type deviceRow struct {
	Dev         string       `json:"dev"`
	Name        string       `json:"name"`
	Model       string       `json:"model,omitempty"`
	Size        uint64       `json:"size"`
	Rotational  bool         `json:"rotational"`
	ReadOnly    bool         `json:"readOnly"`
	Scheduler   string       `json:"scheduler,omitempty"`
	Below       []string     `json:"below,omitempty"`
	Partitions  []string     `json:"partitions,omitempty"`
	Filesystems []filesystem `json:"filesystems,omitempty"`
	Max         support      `json:"max"`
	Weight      support      `json:"weight"`
}

// filesystem is one that has this disk below it.
type filesystem struct {
	Type       string   `json:"type"`
	Mountpoint []string `json:"mountpoints"`
	Warning    string   `json:"warning,omitempty"`
	whole      bool     // the first mountpoint is of all of it
}

// support is whether a disk can enforce something, and why not.
type support struct {
	OK     blkio.Tri `json:"ok"`
	Reason string    `json:"reason,omitempty"`
}

func (s support) String() string {
	if s.Reason == "" {
		return s.OK.String()
	}
	return s.OK.String() + ": " + s.Reason
}

func newDeviceRow(d blkio.DiskInfo, mounted []filesystem) deviceRow {
	return deviceRow{
		Dev: d.Dev.String(), Name: d.Name, Model: d.Model, Size: d.Size, Rotational: d.Rotational,
		ReadOnly: d.ReadOnly, Scheduler: d.Scheduler, Below: diskNames(d.Below), Partitions: diskNames(d.Partitions),
		Filesystems: mounted,
	}
}

// mounts is a cell: each filesystem with its first mountpoint.
func (r *deviceRow) mounts() string {
	var cells []string
	for _, fs := range r.Filesystems {
		cell := fs.Type + " " + safe(fs.Mountpoint[0])
		if more := len(fs.Mountpoint) - 1; more > 0 {
			cell += fmt.Sprintf(" (+%d)", more)
		}
		cells = append(cells, cell)
	}
	return strings.Join(cells, ", ")
}

// filesystems finds what is mounted from each disk. Volumes appear in many
// mounts; each filesystem is resolved once.
func filesystems(ctx context.Context, s *blkio.Storage) map[blkio.Dev][]filesystem {
	byDev := map[blkio.Dev]*filesystem{}
	var order []blkio.Dev
	for _, m := range s.Mounts().All() {
		fs := byDev[m.Dev]
		if fs == nil {
			fs = &filesystem{Type: m.FSType}
			byDev[m.Dev] = fs
			order = append(order, m.Dev)
		}
		if m.Root == "/" && !fs.whole { // a mount of all of it says more than one of a part
			fs.whole = true
			fs.Mountpoint = slices.Insert(fs.Mountpoint, 0, m.Mountpoint)
		} else {
			fs.Mountpoint = append(fs.Mountpoint, m.Mountpoint)
		}
	}
	out := map[blkio.Dev][]filesystem{}
	for _, dev := range order {
		fs := byDev[dev]
		b := s.Resolve(ctx, fs.Mountpoint[0])
		if b.FSType != fs.Type {
			continue // hidden under another mount
		}
		if b.Warning != nil {
			fs.Warning = b.Warning.Text
		}
		for _, d := range b.Disks {
			out[d.Dev] = append(out[d.Dev], *fs)
		}
	}
	return out
}

func maxSupport(f blkio.Features) support {
	switch f.IOMax {
	case blkio.No:
		return support{blkio.No, "the kernel has no io.max (CONFIG_BLK_DEV_THROTTLING)"}
	case blkio.Unknown:
		return support{blkio.Unknown, "no cgroup has the io controller yet"}
	}
	return support{OK: blkio.Yes}
}

func weightOf(f blkio.Features, qos map[blkio.Dev]bool, d blkio.DiskInfo, sys blkio.Sysfs) support {
	switch {
	case f.IOWeight == blkio.No:
		return support{blkio.No, "the kernel has no io.weight (CONFIG_BLK_CGROUP_IOCOST)"}
	case f.IOWeight == blkio.Unknown:
		return support{blkio.Unknown, "no cgroup has the io controller yet"}
	case f.Namespaced:
		return support{blkio.Unknown, "io.cost.qos is not visible in this cgroup namespace"}
	}
	physical, err := sys.Physical(d.Dev)
	if err != nil {
		return support{blkio.Unknown, err.Error()}
	}
	for _, p := range physical {
		if qos[p.Dev] {
			continue
		}
		switch {
		case p.Dev != d.Dev:
			return support{blkio.No, "io.cost is off on " + p.Name + " below"}
		case d.Scheduler == "bfq":
			return support{blkio.No, "io.cost is off, and bfq looks at io.bfq.weight alone"}
		}
		return support{blkio.No, "io.cost is off"}
	}
	return support{OK: blkio.Yes}
}
