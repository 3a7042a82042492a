package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin"
	"github.com/nri-blkio/nri-blkio/policy"
)

// pluginSocketEnv is set by a runtime that starts a pre-installed plugin.
const pluginSocketEnv = "NRI_PLUGIN_SOCKET"

const runLong = `Run the plugin: connect to the container runtime and limit what it starts.

It reconnects for ever. Limits stay in force while it is down or disconnected;
containers that start meanwhile get theirs when it is back. One instance works
on a node, a second one stands by (the lock is nri-blkio.lock beside the socket).

The policy file is looked at every few seconds. A changed one takes effect for
running containers too; a bad one is refused with an error in the log, and the
old one stays in force.

With --metrics-address it serves metrics for Prometheus there, at /metrics. Bind
it to 127.0.0.1 or the node's address: there is no TLS and no authentication.

Installed as /opt/nri/plugins/90-nri-blkio the program is started by the runtime
without arguments; the policy then comes from /etc/nri/conf.d/90-nri-blkio.conf,
and there are no metrics.`

func (a *app) runCommand() *cobra.Command {
	var (
		socket, index, metrics string
		resync                 time.Duration
	)
	cmd := &cobra.Command{
		Use:   "run",
		Short: "The plugin",
		Long:  runLong,
		Example: `  nri-blkio run
  nri-blkio run --policy /etc/nri-blkio/policy.yaml --log-format json
  nri-blkio run --metrics-address 127.0.0.1:9467
  nri-blkio run --host-root /host --cgroup-root /host-cgroup   # in a container`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.runPlugin(cmd.Context(), plugin.RunConfig{
				Socket: socket, Index: index, Preinstalled: a.opts.preinstalled,
			}, resync, metrics)
		},
	}
	f := cmd.Flags()
	f.StringVar(&socket, "socket", "/var/run/nri/nri.sock", "the runtime's NRI socket")
	f.StringVar(&index, "index", "90", "the order among NRI plugins, 00 to 99; late, to see the others' mounts")
	f.DurationVar(&resync, "resync", 30*time.Second, "time between two comparisons of the whole node with what was asked")
	f.StringVar(&metrics, "metrics-address", "", "serve metrics for Prometheus at this HOST:PORT (default: not at all)")
	a.opts.addPolicyFlag(cmd)
	a.opts.addRootfsFlags(cmd)
	return cmd
}

func (a *app) runPlugin(ctx context.Context, cfg plugin.RunConfig, resync time.Duration, metrics string) error {
	if a.getenv("GOGC") == "" {
		debug.SetGCPercent(50) // a node of 250 pods in under 20 MiB, for a little more CPU
	}
	log, err := a.logger()
	if err != nil {
		return err
	}
	// Before all else: that the address is taken is an error of the command line.
	listener, err := listenMetrics(ctx, metrics)
	if err != nil {
		return err
	}
	// Read before the plugin reads it, so that no change is missed in between.
	last, lastErr := readPolicy(a.opts.policy)
	p, err := a.newPlugin(ctx, log, resync)
	if err != nil {
		return err
	}
	if a.opts.policy != "" {
		w := policyWatch{file: a.opts.policy, every: policyPoll, reload: p.Reload, log: log}
		go w.run(ctx, last, lastErr)
	}
	if listener != nil {
		go serveMetrics(ctx, listener, p, log)
	}
	log.WithField("version", versionText()).Info("Started")
	if err := p.Run(ctx, cfg); err != nil {
		return err
	}
	log.Info("Stopped, limits stay in force")
	return nil
}

func (a *app) newPlugin(ctx context.Context, log *logrus.Logger, resync time.Duration) (*plugin.Plugin, error) {
	tree, err := a.openCgroups(a.opts.cgroupDir())
	if err != nil {
		return nil, err
	}
	n, err := a.opts.openNode(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := a.opts.rootfsDir()
	if err != nil {
		return nil, err
	}
	n.storage.Pin(dir)
	entry := log.WithField("directory", dir)
	if n.rootfs.Reason != "" {
		entry.WithField("reason", n.rootfs.Reason).Warn("Writable layers cannot be limited, the target rootfs will be refused")
	} else {
		entry.WithField("disks", diskNames(n.rootfs.Disks)).Info("Found the disk under writable layers")
	}
	go func() {
		// Without it each create reads a changed mount table itself.
		if err := n.storage.Watch(ctx); err != nil && ctx.Err() == nil {
			log.WithError(err).Warn("Mounts are not watched, creates take longer")
		}
	}()
	return plugin.New(plugin.Config{
		Log: log, Policy: n.policy, Storage: n.storage, Cgroups: tree, Rootfs: dir, Resync: resync,
		Sync: a.opts.sync,
	})
}

// policyPoll is how often the policy file is read. It is small, and polling
// sees what a watch of one inode does not: the symlinks of a ConfigMap.
const policyPoll = 5 * time.Second

// policyWatch looks at the policy file again and again.
type policyWatch struct {
	file   string
	every  time.Duration
	reload func(*policy.Policy)
	log    logrus.FieldLogger
}

// run calls reload for each new content that is a valid policy, until ctx
// ends. last and lastErr are what was read before.
func (w *policyWatch) run(ctx context.Context, last []byte, lastErr string) {
	log := w.log.WithField("policy", w.file)
	tick := time.NewTicker(w.every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		data, err := readPolicy(w.file)
		if bytes.Equal(data, last) && err == lastErr {
			continue
		}
		last, lastErr = data, err
		if err != "" {
			log.WithField("error", err).Error("The policy cannot be read, the old one stays in force")
			continue
		}
		p, parseErr := policy.ParseFile(data)
		if parseErr != nil {
			log.WithError(parseErr).Error("The new policy is refused, the old one stays in force")
			continue
		}
		w.reload(p)
		log.Info("The new policy is in force")
	}
}

// readPolicy gives the error as text, so that the same one is said once.
func readPolicy(file string) ([]byte, string) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Sprint(err)
	}
	return data, ""
}

func diskNames(disks []blkio.Disk) []string {
	var out []string
	for _, d := range disks {
		out = append(out, d.Name)
	}
	return out
}
