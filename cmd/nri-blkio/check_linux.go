package main

import (
	"cmp"
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/nri-blkio/nri-blkio/internal/terminal"
	"github.com/nri-blkio/nri-blkio/plugin/check"
	"github.com/nri-blkio/nri-blkio/plugin/health"
	"github.com/nri-blkio/nri-blkio/plugin/runtimeconfig"
	"github.com/nri-blkio/nri-blkio/policy"
)

// addCheckFlags adds the flags with the node's paths.
func (o *options) addCheckFlags(cmd *cobra.Command) {
	o.addRootfsFlags(cmd)
	o.addKubeletFlag(cmd)
	o.addStateFlag(cmd)
	o.addCalibrationFlag(cmd)
}

// runningPolicy returns the policy of the plugin that runs on this node, or the built-in one. The
// plugin's file can be missing here: that of a DaemonSet is in its pods.
func (a *app) runningPolicy() usedPolicy {
	builtIn := func(unknown string) usedPolicy {
		return usedPolicy{policy: policy.Default(), name: builtInPolicy, unknown: unknown + "; the built-in one was used"}
	}
	running, err := health.Read(a.opts.host(a.opts.stateDir), health.Limits)
	switch {
	case err != nil:
		return builtIn(err.Error())
	case running == nil:
		return usedPolicy{policy: policy.Default(), name: builtInPolicy + " (no plugin runs on this node)"}
	case running.PolicyOfRuntime:
		return builtIn("the running plugin has that of the runtime's configuration")
	}
	o := a.opts
	o.policy = running.Policy
	if !running.RuleModes { // otherwise --mode was not given
		o.mode = running.Mode
	}
	p, err := o.loadPolicy()
	if err != nil {
		return builtIn("that of the running plugin cannot be read here: " + err.Error())
	}
	return usedPolicy{policy: p, name: cmp.Or(running.Policy, builtInPolicy) + " (of the running plugin), mode " + running.Mode}
}

// readNode reads the facts about this node that decide about pods under a policy. If a disk's model cannot be
// read, only notes are left out.
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
	var errs [2]error
	n.Disks, errs[0] = h.CheckDisks(p, a.opts.disks())
	n.Share, errs[1] = h.CheckShare()
	if err := errors.Join(errs[:]...); err != nil {
		terminal.Notes(a.stderr, "warning", terminal.ErrorLines(err)...)
	}
	return n, nil
}
