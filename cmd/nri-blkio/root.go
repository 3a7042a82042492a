package main

import (
	"github.com/spf13/cobra"
)

const rootLong = `Block I/O limits for Kubernetes pods.

nri-blkio is an NRI plugin for containerd and CRI-O. Pods request limits in
annotations, and the plugin enforces them with io.max of cgroup v2, from the
container's first instruction.

    limits.blkio.noderesource.dev/container.db: "/var/lib/postgresql wbps=50Mi"
    limits.blkio.noderesource.dev/containers:   "rootfs wbps=10Mi"
    limits.blkio.noderesource.dev/pod-total:    "* wbps=100Mi"
    weight.blkio.noderesource.dev/container.db: "50"`

func (a *app) rootCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "nri-blkio",
		Short: "Block I/O limits for Kubernetes pods",
		Long:  rootLong + exitHelp,
		Example: `  nri-blkio devices                 show the node's disks and what each can enforce
  nri-blkio check -f pod.yaml       show the limits that a pod would get on this node
  nri-blkio run                     run the node agent
  nri-blkio status                  show requested limits and limits in force
  nri-blkio top                     show what containers do on their disks, and how much they wait
  nri-blkio why prod/db-0           say what a pod waits for on its disks
  nri-blkio calibrate sdb           measure a disk, so that weights divide it as they should
  nri-blkio owner FILE              name the container whose limit applies to writes to a file`,
		SilenceErrors: true, // app.run prints them, in one line
		SilenceUsage:  true,
		Args:          knownCommand,
		Version:       versionText(),
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },

		PersistentPreRunE: checkFlags,
	}
	cmd.SetVersionTemplate("{{.Version}}\n")
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usage(err) })
	a.addNodeFlags(cmd)
	cmd.AddCommand(a.checkCommand(), a.versionCommand())
	cmd.AddCommand(a.nodeCommands()...)
	for _, c := range append(cmd.Commands(), cmd) {
		c.Args = usageArgs(c.Args)
	}
	return cmd
}
