package main

import (
	"bytes"
	"context"

	"github.com/spf13/cobra"

	"github.com/nri-blkio/nri-blkio/internal/terminal"
	"github.com/nri-blkio/nri-blkio/plugin/report"
)

const devicesLong = `Draw the node's storage as a tree, and show what the kernel can enforce on each
disk. The tree has disks, the devices on them (partitions, LVM, dm-crypt, RAID),
filesystems, and the volumes of pods.

A limit goes to the whole device that the filesystem is on: the disk of a partition,
a logical volume, an encrypted or RAID device. So the columns about limits are
filled in for whole devices, and BUFFERED for filesystems:
  MAX       io.max: bytes and operations per second
  WEIGHT    io.weight, which needs a kernel that has it, and io.cost enabled for the
            physical disk: see the second table
  BUFFERED  whether write limits apply to buffered writes, not only to direct I/O
A number in brackets refers to a reason below the table.

A device or filesystem with several devices below it (RAID, LVM over two disks, btrfs
with two members) appears on each of them. It is drawn in full on the first; on the
others "^" marks it. With -o json the others are objects with "again": true and without
"children". Skip these objects to count each device, filesystem and volume once.

The second table has the physical disks. IO.COST is "on", "on demand" if run enables
it when a container with a weight uses the disk, or "no" with the reason. MODEL FROM and
QOS FROM are the origins of io.cost's settings: policy, calibration, udev, kernel (a
guess), fixed (the model is not exceeded), or foreign (set by another program). The policy is that of the plugin that runs on this
node, unless --policy is given.

The tree has the first 20 volumes of a place; --all draws all, and -o json always
has all. Pods are shown by name if a record or the kubelet's log directory has it,
otherwise by UID. Volumes in memory and on a
network filesystem are left out.

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
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.devices(cmd.Context(), &o) },
	}
	a.opts.addVolumeFlags(cmd)
	a.opts.addPolicyFlag(cmd)
	a.opts.addStateFlag(cmd)
	a.opts.addCalibrationFlag(cmd)
	cmd.Flags().BoolVar(&o.all, "all", false, "draw all volumes, not the first 20 of each place")
	o.output.add(cmd)
	return cmd
}

func (a *app) devices(ctx context.Context, o *devicesOptions) error {
	h, err := a.host()
	if err != nil {
		return err
	}
	defer h.Close()
	r, err := h.Devices(ctx)
	if err != nil {
		return err
	}
	p, source, err := a.findPolicy(false)
	if err != nil {
		return err
	}
	r.Policy = source.String()
	h.AddCosts(&r, p, a.opts.disks())
	err = a.print(o.output, r, func(out *bytes.Buffer) { report.WriteDevices(out, &r, o.all) })
	terminal.Notes(a.stderr, "warning", r.Lost...)
	if err == nil && len(r.Lost) > 0 {
		return &exitError{status: exitUndetermined}
	}
	return err
}
