package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
	"github.com/nri-blkio/nri-blkio/plugin"
	"github.com/nri-blkio/nri-blkio/plugin/reminder"
	"github.com/nri-blkio/nri-blkio/plugin/runtimeconfig"
	"github.com/nri-blkio/nri-blkio/policy"
)

// A runtime that starts a pre-installed plugin sets these. The name is that of the file,
// without its index.
const (
	pluginSocketEnv = "NRI_PLUGIN_SOCKET"
	pluginNameEnv   = "NRI_PLUGIN_NAME"
)

const runLong = `Run the node agent: connect to the container runtime and limit the containers
that it starts.

It reconnects until it is stopped. Limits stay in force while it is stopped or
disconnected. Containers that start meanwhile are limited when it reconnects. One
instance works on a node, and a second one is on standby (the lock is nri-blkio.lock
beside the socket).

It checks the policy file for changes every few seconds. A changed policy also
applies to running containers. An invalid one is rejected with an error in the
log, and the old one stays in force.

The limits part and the writeback part run in one process, or with --only in two
processes with fewer privileges each. The writeback part moves files to their
writers where a limit matters. It needs a kernel with BTF, CAP_BPF, CAP_PERFMON and
CAP_DAC_READ_SEARCH; for mapped files also CAP_SYS_PTRACE, CAP_SYS_NICE, CAP_FOWNER
and the node's PID namespace. It does not need the socket. If something is missing,
the log says so, and the limits part works alone.

The validator runs only with --only validator. It is a second plugin. It rejects
containers of annotated pods on which the limits part made no decision, because
that does not run, hangs, or failed. It needs only the socket, and containerd 2.2 or
later.

With --metrics-address it serves metrics for Prometheus at /metrics, without TLS and
authentication. Use an address that only the scraper can reach.

The runtime starts a program that is installed as /opt/nri/plugins/90-nri-blkio,
without arguments. The policy then comes from /etc/nri/conf.d/90-nri-blkio.conf,
and there are no metrics. As /opt/nri/plugins/90-nri-blkio-validator it is the validator.`

// runOptions are the flags of run.
type runOptions struct {
	plugin.RunConfig
	resync  time.Duration
	metrics string
	only    string
}

// The parts of run that can run alone.
const (
	onlyLimits    = "limits"
	onlyWriteback = "writeback"
	onlyValidator = "validator"
)

func (a *app) runCommand() *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the node agent",
		Long:  runLong,
		Example: `  nri-blkio run
  nri-blkio run --policy /etc/nri-blkio/policy.yaml --log-format json
  nri-blkio run --metrics-address 127.0.0.1:9467
  nri-blkio run --only limits       # and, with other privileges:
  nri-blkio run --only writeback
  nri-blkio run --only validator
  nri-blkio run --host-root /host --cgroup-root /host-cgroup   # in a container`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Preinstalled = a.opts.preinstalled
			if o.Preinstalled && a.getenv(pluginNameEnv) == plugin.ValidatorName {
				o.only = onlyValidator
			}
			return a.runParts(cmd.Context(), &o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Socket, "socket", plugin.DefaultSocket, "the runtime's NRI socket")
	f.StringVar(&o.Index, "index", "90", "the order among NRI plugins, 00 to 99; a high index sees the mounts that others add")
	f.DurationVar(&o.resync, "resync", 30*time.Second, "interval at which all limits of the node are compared and corrected")
	f.StringVar(&o.metrics, "metrics-address", "", "serve metrics for Prometheus at this HOST:PORT (default: off)")
	f.StringVar(&o.only, "only", "", "one part: limits, writeback (moves files to their writers),\nor validator (rejects containers that the limits part did not decide)")
	f.StringVar(&a.opts.mode, "mode", "", "enforce or observe; overrides the policy")
	a.opts.addStateFlag(cmd)
	a.opts.addPolicyFlag(cmd)
	a.opts.addRootfsFlags(cmd)
	a.opts.addKubeletFlag(cmd)
	return cmd
}

// validate checks the flags whose values a library would take as they are.
func (o *runOptions) validate() error {
	if len(o.Index) != 2 || strings.Trim(o.Index, "0123456789") != "" {
		return fmt.Errorf("--index: invalid value %q (write two digits)", o.Index)
	}
	if o.resync < minResync {
		return fmt.Errorf("--resync: %v is too short (minimum %v)", o.resync, minResync)
	}
	if only := []string{"", onlyLimits, onlyWriteback, onlyValidator}; !slices.Contains(only, o.only) {
		return fmt.Errorf("--only: unknown part %q (write %s)", o.only, strings.Join(only[1:], ", "))
	}
	return nil
}

// minResync is a time in which a pass over the pods of a large node ends.
const minResync = time.Second

// part is one that runs, and reports.
type part struct {
	prometheus.Collector
	reload func(*policy.Policy)
	run    func(context.Context) error
}

// parts run in one process.
type parts []part

// reload gives each part a new policy.
func (ps parts) reload(p *policy.Policy) {
	for _, part := range ps {
		part.reload(p)
	}
}

func (a *app) runParts(ctx context.Context, o *runOptions) error {
	log, err := a.logger()
	if err != nil {
		return err
	}
	if err := a.saveMemory(); err != nil {
		log.WithError(err).Warn("Transparent huge pages stay enabled for this process")
	}
	if err := o.validate(); err != nil {
		return usage(err)
	}
	// Before all else: that the address is taken is an error of the command line.
	listener, err := listenMetrics(ctx, o.metrics)
	if err != nil {
		return err
	}
	// Read before the parts read it, so that no change is missed in between.
	last, lastErr := readPolicy(a.opts.policy)
	parts, err := a.parts(ctx, o, log)
	if err != nil {
		return err
	}
	if a.opts.policy != "" {
		w := policyWatch{file: a.opts.policy, every: policyPoll, parse: a.opts.parsePolicy, reload: parts.reload, log: log}
		go w.run(ctx, last, lastErr)
	}
	if listener != nil {
		var collectors []prometheus.Collector
		for _, part := range parts {
			collectors = append(collectors, part)
		}
		go serveMetrics(ctx, listener, collectors, log)
	}
	log.WithField("version", versionText()).Info("Started")
	group, ctx := errgroup.WithContext(ctx)
	for _, part := range parts {
		group.Go(func() error { return part.run(ctx) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	log.Info("Stopped; limits stay in force")
	return nil
}

// parts are what is to run.
func (a *app) parts(ctx context.Context, o *runOptions, log *logrus.Logger) (parts, error) {
	if o.only == onlyValidator { // it has no policy, and looks at nothing on the node
		v := plugin.NewValidator(log)
		run := func(ctx context.Context) error { return v.Run(ctx, o.RunConfig) }
		return parts{{v, func(*policy.Policy) {}, a.publishing(log, v.Health, run)}}, nil
	}
	tree, err := a.cgroups()
	if err != nil {
		return nil, err
	}
	n, err := a.opts.openNode()
	if err != nil {
		return nil, err
	}
	var out parts // complete before one of them runs
	if o.only != onlyWriteback {
		p, err := a.newPlugin(ctx, log, tree, n, o.resync)
		if err != nil {
			return nil, err
		}
		cfg := o.RunConfig
		cfg.Distribute = func(p *policy.Policy) { out.reload(p) }
		run := func(ctx context.Context) error { return p.Run(ctx, cfg) }
		out = append(out, part{p, p.Reload, a.publishing(log, p.Health, run)})
	}
	if o.only != onlyLimits {
		p, err := a.newRepairer(log, tree, n)
		switch {
		case err == nil && o.only == onlyWriteback:
			out = append(out, p)
		case err == nil:
			out = append(out, a.apart(log, p))
		case o.only == onlyWriteback:
			out = append(out, a.unavailable(log, err))
		default:
			a.withoutRepair(log, err)
		}
	}
	return out, nil
}

func (a *app) newPlugin(ctx context.Context, log *logrus.Logger, tree *cgroupfs.Hierarchy, n *node, resync time.Duration) (*plugin.Plugin, error) {
	layersWatch := runtimeconfig.Watch{Config: &a.opts.runtime, Storage: n.storage, Log: log}
	if err := a.opts.checkRuntimeFlags(); err != nil {
		return nil, err
	}
	if !path.IsAbs(a.opts.kubeletRoot) {
		return nil, usage(fmt.Errorf("--kubelet-root: %q is not an absolute path", a.opts.kubeletRoot))
	}
	layers, err := layersWatch.First(ctx)
	if err != nil {
		log.WithError(err).Info("Location of writable layers unknown, retrying")
	}
	p, err := plugin.New(plugin.Config{
		Log: log, Policy: n.policy, Storage: n.storage, Cgroups: tree, KubeletRoot: a.opts.kubeletRoot, Resync: resync,
		ProcessMounts: n.storage.ProcessMounts, NodeMemory: n.memory, Kernel: a.kernelVerdict(log),
		Layers: layers, ReadLayers: layersWatch.Layers, Sync: a.opts.sync,
	})
	if err != nil {
		return nil, err
	}
	if err := n.storage.ListMounts(ctx); err != nil {
		log.WithError(err).Info("Reading the mount table as text: creates right after a mount are slower")
	} else {
		log.Info("Reading the mount table with listmount and statmount")
	}
	go watchOn(ctx, log, "Mounts are not watched: creates take longer, and what is mounted into a running container is limited late",
		func() error {
			p.MountsChanged() // there may have been some that nobody saw
			return n.storage.Watch(ctx, p.MountsChanged)
		})
	go watchOn(ctx, log, "Disks are not watched: one that comes back gets its limits with the next resync", func() error {
		return storage.WatchDisks(ctx, func() {
			if err := n.storage.DisksChanged(ctx); err != nil && ctx.Err() == nil {
				log.WithError(err).Warn("Refreshing changed disks failed")
			}
			p.DisksChanged()
		})
	})
	go watchOn(ctx, log, "The kubelet's root directory is not there: volumes are not known by name until it is", func() error {
		if err := a.opts.checkDir("--kubelet-root", a.opts.kubeletRoot); err != nil {
			return err
		}
		<-ctx.Done()
		return nil
	})
	return p, nil
}

// watchPause is between two attempts to watch something.
const watchPause = 30 * time.Second

// watchOn calls fn again after each failure until ctx ends.
func watchOn(ctx context.Context, log logrus.FieldLogger, without string, fn func() error) {
	var problem reminder.Reminder
	for {
		err := fn()
		if ctx.Err() != nil {
			return
		}
		if problem.Due(time.Now(), err) {
			log.WithError(err).Warn(without)
		}
		select {
		case <-time.After(watchPause):
		case <-ctx.Done():
			return
		}
	}
}

// policyPoll is how often the policy file is read. It is small, and polling
// sees what a watch of one inode does not: the symlinks of a ConfigMap.
const policyPoll = 5 * time.Second

// policyWatch looks at the policy file again and again.
type policyWatch struct {
	file   string
	every  time.Duration
	parse  func([]byte) (*policy.Policy, error)
	reload func(*policy.Policy)
	log    logrus.FieldLogger
}

// run calls reload for each new content that is a valid policy, until ctx
// ends. last and lastErr are what was read before. A file that cannot be read or
// is invalid is logged again for as long as it stays so.
func (w *policyWatch) run(ctx context.Context, last []byte, lastErr string) {
	log := w.log.WithField("policy", w.file)
	tick := time.NewTicker(w.every)
	defer tick.Stop()
	var problem error
	var reminded reminder.Reminder
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		data, err := readPolicy(w.file)
		if !bytes.Equal(data, last) || err != lastErr {
			last, lastErr = data, err
			if problem = w.take(data, err); problem == nil {
				log.Info("Reloaded the node policy")
			}
		}
		if reminded.Due(time.Now(), problem) {
			log.WithError(problem).Error("Rejected the new node policy, keeping the old one")
		}
	}
}

// take puts a policy into force.
func (w *policyWatch) take(data []byte, readErr string) error {
	if readErr != "" {
		return errors.New(readErr)
	}
	p, err := w.parse(data)
	if err == nil {
		w.reload(p)
	}
	return err
}

// readPolicy gives the error as text, so that the same one is said once.
func readPolicy(file string) ([]byte, string) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Sprint(err)
	}
	return data, ""
}
