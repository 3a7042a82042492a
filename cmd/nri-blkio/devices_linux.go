package main

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
	"github.com/nri-blkio/nri-blkio/plugin/inspect"
)

const devicesLong = `Draw the node's storage as a tree, and show what the kernel can enforce on each
disk. The tree has disks, the devices on them (partitions, LVM, dm-crypt, RAID),
filesystems, and the volumes of pods.

A limit goes to the whole device that the filesystem is on: the disk of a partition,
a logical volume, an encrypted or RAID device. So the columns about limits are
filled in for whole devices, and BUFFERED for filesystems:
  MAX       io.max: bytes and operations per second
  WEIGHT    io.weight, which needs a kernel that has it, and io.cost enabled for the
            physical disk, in the root cgroup:
                echo "8:16 enable=1" > /sys/fs/cgroup/io.cost.qos
  LATENCY   io.latency, which nri-blkio does not write
  BUFFERED  whether write limits apply to buffered writes, not only to direct I/O
A number in brackets refers to a reason below the table.

A device or filesystem with several devices below it (RAID, LVM over two disks, btrfs
with two members) appears on each of them. It is drawn in full on the first; on the
others "^" marks it. With -o json the others are objects with "again": true and without
"children". Skip these objects to count each device, filesystem and volume once.

The table has the first 20 volumes of a place; --all draws all, and -o json always
has all. Pods are shown by name if a record or the kubelet's log directory has it,
otherwise by UID. Volumes on a network filesystem are listed below the tree. With
-o json, "elsewhere" has these and the volumes in memory.

Orphaned volumes come last ("orphans" with -o json). They are still mounted in the
kubelet's directory, although their pod has no cgroup, or has ended and has no
process. Below each are the other places where the filesystem is mounted, and the
processes that hold it: with open files there, or with a mount namespace that
contains it. Nothing is unmounted.

The exit status is 3 if a part of the node could not be read.`

type devicesOptions struct {
	all    bool
	output output
}

func (a *app) devicesCommand() *cobra.Command {
	var o devicesOptions
	cmd := &cobra.Command{
		Use:   "devices",
		Short: "Show the node's disks and volumes as a tree, and what each disk can enforce",
		Long:  devicesLong,
		Example: `  nri-blkio devices
  nri-blkio devices --all            # each volume, however many there are
  nri-blkio devices -o json`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.devices(cmd.Context(), &o) },
	}
	a.opts.addVolumeFlags(cmd)
	cmd.Flags().BoolVar(&o.all, "all", false, "draw all volumes, not the first 20 of each place")
	o.output.add(cmd)
	return cmd
}

// devicesReport is what devices shows.
type devicesReport struct {
	// Devices are the disks that nothing is below; see treeNode.
	Devices []*treeNode `json:"devices"`
	// Elsewhere are the volumes that are on no disk of the node.
	Elsewhere []*treeNode `json:"elsewhere"`
	// Orphans are the volumes that are still mounted though their pod is gone.
	Orphans []orphan          `json:"orphans"`
	Kernel  cgroupfs.Features `json:"kernel"`
}

func (a *app) devices(ctx context.Context, o *devicesOptions) error {
	root, err := a.opts.kubeletDir()
	if err != nil {
		return err
	}
	tree, err := a.openCgroups(a.opts.cgroupDir())
	if err != nil {
		return err
	}
	defer tree.Close()
	s, err := a.opts.storage()
	if err != nil {
		return err
	}
	defer s.Close()
	b := treeBuilder{storage: s, sys: a.opts.sysfs()}
	if b.features, err = tree.Probe(); err != nil {
		return err
	}
	b.qos, err = tree.ReadIOCostQOS()
	if err != nil && !errors.Is(err, blkio.ErrNotSupported) {
		return err
	}
	if b.devices, err = b.sys.Stack(); err != nil {
		return err
	}
	// What is not known of swaps and volumes hides no disk: it is told below.
	var lost []string
	if b.swaps, err = readSwaps(a.opts.host("/proc/swaps")); err != nil {
		lost = append(lost, err.Error())
	}
	report := devicesReport{Kernel: b.features}
	b.volumes, report.Orphans, lost = a.volumesOf(ctx, s, tree, root, lost)
	report.Devices, report.Elsewhere = b.build(ctx)
	if o.output.json() {
		err = printJSON(a.stdout, report)
	} else {
		err = a.printTree(&report, o.all)
	}
	notes(a.stderr, "warning", lost)
	if err == nil && len(lost) > 0 {
		return &exitError{status: exitUndetermined}
	}
	return err
}

// volumesOf finds the volumes, and what holds those that are orphaned. What could
// not be found out is added to lost.
func (a *app) volumesOf(ctx context.Context, s *storage.Storage, tree *cgroupfs.Hierarchy, kubeletRoot string, lost []string) ([]podVolume, []orphan, []string) {
	records, err := inspect.Records(tree, inspect.Filter{})
	if err != nil {
		lost = append(lost, err.Error())
	}
	f := newOrphanFinder(ctx, kubelet{s, a.opts.hostRoot, kubeletRoot}, tree, a.opts.orphanGrace, namesOf(records))
	volumes, err := f.volumes(ctx)
	if err != nil {
		lost = append(lost, err.Error())
	}
	orphans, err := f.find(ctx)
	if err != nil {
		lost = append(lost, err.Error())
	}
	volumes = withOrphans(volumes, orphans)
	for i := range volumes {
		volumes[i].pod = f.names[volumes[i].UID]
	}
	h := holderFinder{proc: os.DirFS(a.opts.host("/proc")), names: map[string]podName{}}
	for uid, name := range f.names {
		h.names[underscored(uid)] = name
	}
	ctx, cancel := context.WithTimeout(ctx, holdersTime)
	defer cancel()
	return volumes, orphans, append(lost, h.find(ctx, s.Mounts(), orphans)...)
}

// holdersTime bounds the look at all processes of a node.
const holdersTime = 10 * time.Second

// readSwaps returns none where the kernel is built without.
func readSwaps(name string) ([]storage.Swap, error) {
	f, err := os.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return storage.ParseSwaps(f)
}
