package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/nri-blkio/nri-blkio/blkio/calibrate"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
	"github.com/nri-blkio/nri-blkio/internal/terminal"
	"github.com/nri-blkio/nri-blkio/plugin/report"
)

const calibrateLong = `Measure how fast a disk is, and print io.cost's model and latency targets for the
node policy. Weights divide a disk by this model.

DISK is a name, such as sdb, or a path below /dev. Reads go to the disk itself,
which is opened read-only, with direct I/O. Writes go to a file without a name that
is created in the directory of --write-dir, a quarter of its free space or 1 GiB.
The file is gone when the command ends, even if it is killed. Without --write-dir,
writes are not measured, and the model has the rates of reads for them.

It measures sequential and random blocks from 4 KiB to 1 MiB, and several queue
depths. It takes less than a minute, uses the disk fully, and ends within a second
of ^C. Run it on the node itself as root, or by "kubectl blkio calibrate": the
DaemonSet's pods have no disks.

A busy disk is refused, because its figures would be too low: "nri-blkio top" shows
what uses it. The exit status is 1 if the figures are implausible, for example
because the volume of a cloud had burst credits left.

--save stores the result for this node's plugin under the disk's WWID, or its serial
number. The policy's model, if it has one for the disk, wins.`

type calibrateOptions struct {
	writeDir    string
	force, save bool
	output      output
}

func (a *app) calibrateCommand() *cobra.Command {
	var o calibrateOptions
	cmd := &cobra.Command{
		Use:   "calibrate DISK",
		Short: "Measure a disk's model for io.cost",
		Long:  calibrateLong,
		Example: `  nri-blkio calibrate sdb --write-dir /mnt/sdb
  nri-blkio calibrate nvme0n1 --write-dir /var/lib/containerd --save
  nri-blkio calibrate /dev/disk/by-id/wwn-0x5002538e40a2b1c9 -o json`,
		Args: operands(1, 1, "name one disk, such as sdb: nri-blkio devices lists them"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.calibrate(cmd.Context(), &o, args[0]) },
	}
	f := cmd.Flags()
	f.StringVar(&o.writeDir, "write-dir", "", "a directory of the node on the disk, to measure writes")
	f.BoolVar(&o.force, "force", false, "calibrate a busy disk, and save implausible figures")
	f.BoolVar(&o.save, "save", false, "save the result for the plugin")
	o.output.add(cmd)
	a.opts.addCalibrationFlag(cmd)
	return cmd
}

func (a *app) calibrate(ctx context.Context, o *calibrateOptions, name string) error {
	node, err := a.calibrateNode()
	if err != nil {
		return err
	}
	defer node.Storage.Close()
	defer node.Cgroups.Close()
	disk, err := calibrate.Find(ctx, node.Storage, node.Sysfs, name)
	if err != nil {
		return usage(err)
	}
	if o.save {
		if err := calibrate.IdentityOf(disk).Check(); err != nil {
			return usage(fmt.Errorf("--save: %w", err))
		}
	}
	cfg := calibrate.Config{
		Node: node, Disk: disk, Force: o.force,
		Device: a.opts.host("/dev/" + strings.ReplaceAll(disk.Name, "!", "/")), // as sysfs has "/"
	}
	if o.writeDir != "" {
		if err := a.opts.checkDir("--write-dir", o.writeDir); err != nil {
			return err
		}
		if cfg.WriteDir, err = node.OpenDir(ctx, a.opts.hostRoot, o.writeDir, disk.Disk); err != nil {
			return usage(fmt.Errorf("--write-dir: %w", err))
		}
		defer cfg.WriteDir.Close()
	}
	c, err := a.measure(ctx, cfg)
	if err != nil {
		return err
	}
	return a.finishCalibration(o, disk, c)
}

func (a *app) calibrateNode() (*calibrate.Node, error) {
	cgroups, err := a.cgroups()
	if err != nil {
		return nil, err
	}
	disks, err := a.opts.storage()
	if err != nil {
		cgroups.Close() // the error that counts is the one before
		return nil, err
	}
	return &calibrate.Node{
		Storage: disks, Sysfs: a.opts.sysfs(), Cgroups: cgroups, Own: calibrate.OwnCgroup(),
	}, nil
}

// rewrite clears the line of a terminal.
const rewrite = "\r\x1b[K"

// measure calibrates the disk, with its progress on a terminal.
func (a *app) measure(ctx context.Context, cfg calibrate.Config) (*calibrate.Calibration, error) {
	cfg.Progress = func(float64, string) {}
	if f, ok := a.stderr.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		cfg.Progress = func(done float64, step string) {
			fmt.Fprintf(f, "%s%3.0f %% %s", rewrite, 100*done, step)
		}
		defer fmt.Fprint(f, rewrite)
	}
	c, err := calibrate.Run(ctx, cfg)
	if errors.Is(err, context.Canceled) {
		return nil, errors.New("calibrate: interrupted, nothing was saved")
	}
	return c, err
}

func (a *app) finishCalibration(o *calibrateOptions, d *storage.DiskInfo, c *calibrate.Calibration) error {
	r, err := report.NewCalibration(d, c)
	if err != nil {
		return err
	}
	if err := a.print(o.output, r, r.Write); err != nil {
		return err
	}
	for _, w := range c.Warnings {
		terminal.Notes(a.stderr, "warning", w.Text)
	}
	switch {
	case o.save && !c.IsPlausible() && !o.force:
		terminal.Notes(a.stderr, "warning", "implausible figures are not saved (add --force to save them)")
	case o.save:
		file, err := calibrate.Save(a.opts.host(a.opts.calibrationDir), c)
		if err != nil {
			return err
		}
		terminal.Notes(a.stderr, "saved", filepath.Base(file))
	}
	if !c.IsPlausible() {
		return findings()
	}
	return nil
}
