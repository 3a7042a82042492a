package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
	"github.com/nri-blkio/nri-blkio/plugin/check"
	"github.com/nri-blkio/nri-blkio/plugin/inspect"
	"github.com/nri-blkio/nri-blkio/plugin/runtimeconfig"
)

// addCheckFlags adds the flags that say where things are on the node.
func (o *options) addCheckFlags(cmd *cobra.Command) {
	o.addRootfsFlags(cmd)
	o.addKubeletFlag(cmd)
}

// readNode reads what decides about pods on this node. finish adds warnings that depend on its
// stacked devices.
func (a *app) readNode(ctx context.Context) (n check.Node, finish func(*check.Result), _ error) {
	tree, err := a.openCgroups(a.opts.cgroupDir())
	if err != nil {
		return n, nil, err
	}
	defer tree.Close()
	if n.KubeletRoot, err = a.opts.kubeletDir(); err != nil {
		return n, nil, err
	}
	if err := a.opts.checkRuntimeFlags(); err != nil {
		return n, nil, err
	}
	layers, err := a.opts.runtime.Layers(ctx, "", "")
	if err != nil && !errors.Is(err, runtimeconfig.ErrNoSocket) {
		notes(a.stderr, "rootfs is resolved from the runtime's configuration files", []string{err.Error()})
	}
	s, err := a.opts.storage()
	if err != nil {
		return n, nil, err
	}
	n.Storage = s
	n.Rootfs = func(ctx context.Context, handler string) blkio.Backing { return layers.Of(handler).Backing(ctx, s) }
	if n.Memory, err = a.opts.memory(); err != nil {
		return n, nil, err
	}
	if n.Weights, err = readWeights(tree, a.opts.sysfs()); err != nil {
		return n, nil, err
	}
	stack, err := a.opts.sysfs().Stack()
	if err != nil {
		return n, nil, err
	}
	return n, func(r *check.Result) { warnAbove(r, stack) }, nil
}

// readWeights finds what io.weight does on this node.
func readWeights(tree *cgroupfs.Hierarchy, sys storage.Sysfs) (check.Weights, error) {
	features, err := tree.Probe()
	if err != nil {
		return check.Weights{}, err
	}
	w := check.Weights{Kernel: features.IOWeight}
	qos, err := tree.ReadIOCostQOS()
	if err != nil && !errors.Is(err, blkio.ErrNotSupported) {
		return w, err
	}
	w.IOCost = blkio.No
	for _, enabled := range qos {
		if enabled {
			w.IOCost = blkio.Yes
		}
	}
	disks, err := sys.Disks()
	if err != nil {
		return w, err
	}
	for _, d := range disks {
		if d.Scheduler == "bfq" {
			w.BFQ = append(w.BFQ, d.Name)
		}
	}
	return w, nil
}

// warnAbove adds a warning for each limit on a disk below other devices.
func warnAbove(r *check.Result, stack []storage.BlockDevice) {
	limited := map[string]bool{}
	for _, w := range r.Writes {
		if w.File == blkio.IOMax && w.Dev != "" {
			limited[w.Disk] = true
		}
	}
	for _, d := range inspect.SharedDisks(limited, stack) {
		r.Warnings = append(r.Warnings, d.String())
	}
}
