package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/nri-blkio/nri-blkio/blkio/hostfs"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
	"github.com/nri-blkio/nri-blkio/internal/terminal"
	"github.com/nri-blkio/nri-blkio/plugin"
	"github.com/nri-blkio/nri-blkio/plugin/part"
	"github.com/nri-blkio/nri-blkio/plugin/reminder"
	"github.com/nri-blkio/nri-blkio/plugin/runtimeconfig"
	"github.com/nri-blkio/nri-blkio/plugin/volumepath"
	"github.com/nri-blkio/nri-blkio/policy"
)

// limits returns the part that limits containers. distribute passes the policy that the runtime
// sends a pre-installed plugin to all parts.
//
// Containers start without limits until the runtime has registered the plugin. So only what a decision needs is read before
// that, and nothing that can hang.
func (r *runner) limits(ctx context.Context, n *node, distribute func(*policy.Policy)) (part.Part, error) {
	if err := r.opts.checkRuntimeFlags(); err != nil {
		return part.Part{}, err
	}
	if !path.IsAbs(r.opts.kubeletRoot) {
		return part.Part{}, usage(fmt.Errorf("--kubelet-root: %q is not an absolute path", r.opts.kubeletRoot))
	}
	rootfs := runtimeconfig.Watch{Config: &r.opts.runtime, Storage: n.storage, Log: r.log}
	cfg := plugin.Config{
		Log: r.log, Policy: n.policy, Storage: n.storage, Cgroups: n.cgroups, Resync: r.resync,
		KubeletRoot:   linkedKubelet(ctx, n.storage.Locate, r.opts.kubeletRoot),
		ProcessMounts: n.storage.ProcessMounts, NodeMemory: n.memory, Kernel: n.kernel,
		Layers: runtimeconfig.Unasked(), ReadLayers: rootfs.Layers, Sync: r.opts.sync, Recovery: r.recovery,
		Bursts: burstFile(r.opts.stateDir),
	}
	var metrics []prometheus.Collector
	events := r.newRecorder()
	if events != nil {
		cfg.Events, metrics = events, append(metrics, events)
	}
	p, err := plugin.New(cfg, r.opts.disks())
	if err != nil {
		return part.Part{}, err
	}
	r.awaitRegistration = p.AwaitRegistration
	metrics = append(append(metrics, p), r.readDocuments(ctx, p)...)
	go func() {
		if p.AwaitRegistration(ctx); ctx.Err() != nil {
			return
		}
		if events != nil {
			r.watchContested(ctx, events, p)
			r.reportNode(ctx, events, p)
		}
		r.watchNode(ctx, n, p)
	}()
	running := r.RunConfig
	running.Distribute = distribute
	run := func(ctx context.Context) error { return p.Run(ctx, running) }
	return part.Part{Metrics: metrics, Reload: p.Reload, Run: r.publishing(r.opts.stateDir, p.Health, run)}, nil
}

// watchNode reports changes of mounts and disks to the plugin until ctx ends.
func (r *runner) watchNode(ctx context.Context, n *node, p *plugin.Plugin) {
	keep := func(without string, fn func() error) {
		guarded := func() error { return r.recovery.Guarded(fn) }
		go reminder.Keep(ctx, 30*time.Second, guarded, func(err error) { r.log.WithError(err).Warn(without) })
	}
	// Each change has all containers resolved again that follow the mounts of the host.
	mountsChanged := paced(ctx, time.Second, func() { r.recovery.Step("find mounts", p.MountsChanged) })
	keep("Mounts are not watched: creates take longer, and what is mounted into a running container is limited late", func() error {
		mountsChanged() // some changes may have been missed
		return n.storage.Watch(ctx, mountsChanged)
	})
	keep("Disks are not watched: one that comes back gets its limits with the next resync", func() error {
		return storage.WatchDisks(ctx, func() { // in a goroutine of its own
			r.recovery.Step("refresh changed disks", func() {
				if err := n.storage.DisksChanged(ctx); err != nil && ctx.Err() == nil {
					r.log.WithError(err).Warn("Refreshing changed disks failed")
				}
				p.DisksChanged()
			})
		})
	})
}

// linkedKubelet returns the kubelet's root directory as the paths of mounts have it: the runtime resolves a symbolic link to it, or to
// the directory of the pods in it.
func linkedKubelet(ctx context.Context, locate func(context.Context, string) (string, bool), root string) string {
	if pods, isLocal := locate(ctx, volumepath.Pods(root)); isLocal && pods == volumepath.Pods(path.Dir(pods)) {
		return path.Dir(pods)
	}
	return root
}

// paced returns a function that has fn called soon, and at most once in each pause until ctx ends. Calls within a pause become
// one call after it. The function does not wait for fn.
func paced(ctx context.Context, pause time.Duration, fn func()) (soon func()) {
	due := make(chan struct{}, 1)
	go func() {
		for ctx.Err() == nil {
			select {
			case <-due:
			case <-ctx.Done():
				return
			}
			fn()
			reminder.Sleep(ctx, pause)
		}
	}()
	return func() { reminder.Wake(due) }
}

// syncCommand returns the command that run starts for each sync. A sync that hangs in the kernel
// then keeps a process of its own, and no thread of the plugin.
func (a *app) syncCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "sync DIRECTORY",
		Short:  "Sync a filesystem (used by run)",
		Args:   cobra.ExactArgs(1),
		Hidden: true,
		RunE:   func(_ *cobra.Command, args []string) error { return hostfs.Sync(args[0]) },
	}
}

// sync syncs the filesystem of a path of the node, in another process. When ctx ends, it kills the
// process, and returns when the kernel has ended it. Callers run one sync of a filesystem at a time.
func (o *options) sync(ctx context.Context, hostPath string) error {
	cmd := exec.CommandContext(ctx, "/proc/self/exe", "sync", o.host(hostPath))
	cmd.Env = []string{} // without the runtime's socket of a pre-installed plugin
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return errors.New(terminal.EscapeLine(fmt.Sprintf("%s: %v", out, err)))
	}
	return nil
}
