package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/nri-blkio/nri-blkio/internal/terminal"
	"github.com/nri-blkio/nri-blkio/plugin/check"
	"github.com/nri-blkio/nri-blkio/plugin/runtimeconfig"
)

// addCheckFlags adds the flags that say where things are on the node.
func (o *options) addCheckFlags(cmd *cobra.Command) {
	o.addRootfsFlags(cmd)
	o.addKubeletFlag(cmd)
}

// readNode reads the facts about this node that decide about pods.
func (a *app) readNode(ctx context.Context) (check.Node, error) {
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
	return h.CheckNode(layers)
}
