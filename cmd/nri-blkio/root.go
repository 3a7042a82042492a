package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/nri-blkio/nri-blkio/policy"
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
  nri-blkio owner FILE              name the container whose limit applies to writes to a file`,
		SilenceErrors: true, // app.run prints them, in one line
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },

		PersistentPreRunE: checkFlags,
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usage(err) })
	a.addNodeFlags(cmd)
	cmd.AddCommand(a.checkCommand(), a.versionCommand())
	cmd.AddCommand(a.nodeCommands()...)
	for _, c := range append(cmd.Commands(), cmd) {
		c.Args = usageArgs(c.Args)
	}
	return cmd
}

func (o *options) addPolicyFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.policy, "policy", "", "the node policy file (default: the built-in policy;\nfor check: that of the running plugin)")
}

func (o *options) loadPolicy() (*policy.Policy, error) {
	if o.policy == "" {
		return o.withMode(policy.Default())
	}
	data, err := os.ReadFile(o.policy)
	if err != nil {
		return nil, named(fmt.Errorf("read policy: %w", err))
	}
	p, err := o.parsePolicy(data)
	if err != nil {
		return nil, usage(fmt.Errorf("read %s: %w", o.policy, err))
	}
	return p, nil
}

func (o *options) parsePolicy(data []byte) (*policy.Policy, error) {
	p, err := policy.ParseFile(data)
	if err != nil {
		return nil, err
	}
	return o.withMode(p)
}

func (o *options) withMode(p *policy.Policy) (*policy.Policy, error) {
	switch m := policy.Mode(o.mode); m {
	case "":
	case policy.ModeEnforce, policy.ModeObserve:
		p.Mode = m
	default:
		return nil, usage(fmt.Errorf("--mode: unknown value %q (write %s or %s)", o.mode, policy.ModeEnforce, policy.ModeObserve))
	}
	return p, nil
}
