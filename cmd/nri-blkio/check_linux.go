package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/nri-blkio/nri-blkio/internal/terminal"
	"github.com/nri-blkio/nri-blkio/plugin/check"
	"github.com/nri-blkio/nri-blkio/plugin/inspect"
	"github.com/nri-blkio/nri-blkio/plugin/runtimeconfig"
	"github.com/nri-blkio/nri-blkio/policy"
)

func (o *options) addCheckFlags(cmd *cobra.Command) {
	o.addRootfsFlags(cmd)
	o.addKubeletFlag(cmd)
	o.addStateFlag(cmd)
	o.addCalibrationFlag(cmd)
}

func (a *app) runningPolicy() (*policy.Policy, check.PolicySource) {
	return inspect.RunningPolicy(a.opts.host(a.opts.stateDir), func(file, mode string) (*policy.Policy, error) {
		o := options{policy: file, mode: mode}
		return o.loadPolicy()
	})
}

// readNode reads the facts about this node that decide about pods under a policy. If the model of a disk cannot be
// read, its weights have no effect in the report.
func (a *app) readNode(ctx context.Context, p *policy.Policy) (check.Node, error) {
	if err := a.opts.checkRuntimeFlags(); err != nil {
		return check.Node{}, err
	}
	h, err := a.host() // stays open: the decisions read it
	if err != nil {
		return check.Node{}, err
	}
	layers, err := a.opts.runtime.Layers(ctx, "", "")
	if err != nil && !errors.Is(err, runtimeconfig.ErrNoSocket) {
		terminal.Notes(a.stderr, "rootfs is resolved from the runtime's configuration files", err.Error())
	}
	n, err := h.CheckNode(layers)
	if err != nil {
		return n, err
	}
	if n.Disks, err = h.CheckDisks(p, a.opts.disks()); err != nil {
		terminal.Notes(a.stderr, "warning", terminal.ErrorLines(err)...)
	}
	return n, nil
}
