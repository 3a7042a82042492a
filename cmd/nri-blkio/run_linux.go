package main

import (
	"context"
	"fmt"
	"net"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/plugin"
	"github.com/nri-blkio/nri-blkio/plugin/health"
	"github.com/nri-blkio/nri-blkio/plugin/metricsserver"
	"github.com/nri-blkio/nri-blkio/plugin/part"
	"github.com/nri-blkio/nri-blkio/plugin/policyfile"
	"github.com/nri-blkio/nri-blkio/plugin/recovery"
	"github.com/nri-blkio/nri-blkio/policy"
)

// A runtime sets these variables for a pre-installed plugin. The name is the name of the program's file,
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
log and in "nri-blkio status", and the old one stays in force.

The limits part and the writeback part run in one process, or with --only in two
processes with fewer privileges each. The writeback part moves files to their
writers where a limit matters. It needs a kernel with BTF, CAP_BPF, CAP_PERFMON and
CAP_DAC_READ_SEARCH; for mapped files also CAP_SYS_PTRACE, CAP_SYS_NICE, CAP_FOWNER
and the node's PID namespace. It does not need the socket. If something is missing,
the log says so, and the limits part works alone.

The cluster part runs only with --only cluster. It watches the pods of this node, their
claims and namespaces at the API server, and writes what the limits part needs to know
into the exchange directory. It needs the token of a service account, and the name of
the node as the API server knows it. It needs nothing of the node, and not uid 0. With
--exchange-dir the limits part reads what it has written: edited annotations and labels
then apply to running pods.

The validator runs only with --only validator. It is a second plugin. It rejects
containers of annotated pods on which the limits part made no decision, because
that does not run, hangs, or failed. It needs only the socket, and containerd 2.2 or
later.

With --metrics-address it serves metrics for Prometheus at /metrics, without TLS and
authentication. Use an address that only the scraper can reach.

The runtime starts a program that is installed as /opt/nri/plugins/90-nri-blkio,
without arguments. The policy then comes from /etc/nri/conf.d/90-nri-blkio.conf,
and there are no metrics. As /opt/nri/plugins/90-nri-blkio-validator it is the validator.`

// runOptions has the flags of run.
type runOptions struct {
	plugin.RunConfig
	resync  time.Duration
	metrics string
	only    string
	clusterOptions
}

func (a *app) runCommand() *cobra.Command {
	o := runOptions{RunConfig: plugin.RunConfig{Dial: new(net.Dialer).DialContext}}
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
  nri-blkio run --only cluster --node-name worker-1
  nri-blkio run --host-root /host --cgroup-root /host-cgroup   # in a container; or set the environment`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Preinstalled = a.opts.preinstalled
			if o.Preinstalled && a.getenv(pluginNameEnv) == plugin.ValidatorName {
				o.only = health.Validator
			}
			return a.runParts(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Socket, "socket", plugin.DefaultSocket, "the runtime's NRI socket")
	f.StringVar(&o.Index, "index", "90", "the order among NRI plugins, 00 to 99; a high index sees the mounts that others add")
	f.DurationVar(&o.resync, "resync", 30*time.Second, "interval at which all limits of the node are compared and corrected")
	f.StringVar(&o.metrics, "metrics-address", "", "serve metrics for Prometheus at this HOST:PORT (default: off)")
	f.StringVar(&o.only, "only", "", "one part: limits, writeback (moves files to their writers),\nvalidator (rejects containers that the limits part did not decide),\nor cluster (reads claims and live changes from the API server)")
	a.addClusterFlags(f, &o.clusterOptions)
	f.StringVar(&a.opts.mode, "mode", "", "enforce or observe; overrides the policy")
	completes(cmd, "only", "limits", "writeback", "validator", "cluster")
	completes(cmd, "mode", "enforce", "observe")
	a.opts.addStateFlag(cmd)
	a.opts.addCalibrationFlag(cmd)
	a.opts.addPolicyFlag(cmd)
	a.opts.addRootfsFlags(cmd)
	a.opts.addKubeletFlag(cmd)
	return cmd
}

// validate checks the flags whose values no library checks.
func (o *runOptions) validate() error {
	if len(o.Index) != 2 || strings.Trim(o.Index, "0123456789") != "" {
		return fmt.Errorf("--index: invalid value %q (write two digits)", o.Index)
	}
	if o.resync < minResync {
		return fmt.Errorf("--resync: %v is too short (minimum %v)", o.resync, minResync)
	}
	if err := checkAddress(o.metrics); err != nil {
		return fmt.Errorf("--metrics-address: %w", err)
	}
	if only := []string{"", health.Limits, health.Writeback, health.Validator, health.Cluster}; !slices.Contains(only, o.only) {
		return fmt.Errorf("--only: unknown part %q (write %s)", o.only, strings.Join(only[1:], ", "))
	}
	return nil
}

// checkAddress checks the form of an address; "" is none.
func checkAddress(address string) error {
	if address == "" {
		return nil
	}
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	return err
}

// minResync is longer than a pass over the pods of a large node.
const minResync = time.Second

func (a *app) runParts(ctx context.Context, o runOptions) error {
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
	panics := recovery.New(log)
	// Before the parts read the policy, so that no change in between is missed.
	var watch *policyfile.Watch
	if a.opts.policy != "" {
		watch = policyfile.NewWatch(policyfile.Config{File: a.opts.policy, Read: readSmall, Parse: a.opts.parsePolicy, Log: log, Recovery: panics})
	}
	r := runner{app: a, runOptions: o, log: log, recovery: panics, watch: watch, awaitRegistration: func(context.Context) {}}
	parts, err := r.parts(ctx)
	if err != nil {
		return err
	}
	if watch != nil {
		reload := func(p *policy.Policy) {
			r.warnOf(p)
			parts.Reload(p)
		}
		go panics.Loop(ctx, "watch the policy", func(ctx context.Context) { watch.Run(ctx, reload) })
	}
	if o.metrics != "" {
		r.beside = append(r.beside, func(ctx context.Context) error { return r.serveMetrics(ctx, parts) })
	}
	r.beside = append(r.beside, func(ctx context.Context) error {
		r.awaitRegistration(ctx)
		a.collectOften()
		return nil
	})
	log.WithField("version", versionText()).Info("Started")
	if err := parts.Run(ctx, r.beside...); err != nil {
		return err
	}
	log.Info("Stopped; limits stay in force")
	return nil
}

// serveMetrics serves the metrics of the parts until ctx ends. It fails if it cannot listen, because the operator has asked
// for metrics.
func (r *runner) serveMetrics(ctx context.Context, parts part.Parts) error {
	r.awaitRegistration(ctx)
	l, err := r.listen(ctx, "tcp", r.metrics)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("--metrics-address: %w", err)
	}
	collectors := parts.Collectors(r.recovery)
	if r.watch != nil {
		collectors = append(collectors, r.watch)
	}
	server := metricsserver.Server{Collectors: collectors, Version: buildVersion(), Log: r.log}
	server.Serve(ctx, l)
	<-ctx.Done()
	return nil
}

func (a *app) logger() (*logrus.Logger, error) {
	log := logrus.New()
	log.SetOutput(a.stderr)
	level, err := logrus.ParseLevel(a.opts.logLevel)
	if err != nil {
		return nil, usage(fmt.Errorf("--log-level: %w", err))
	}
	log.SetLevel(level)
	switch a.opts.logFormat {
	case "text":
		log.SetFormatter(&logrus.TextFormatter{FullTimestamp: true, DisableColors: true})
	case "json":
		log.SetFormatter(&jsonFormatter{logrus.JSONFormatter{DisableHTMLEscape: true}})
	default:
		return nil, usage(fmt.Errorf("--log-format: unknown value %q (write text or json)", a.opts.logFormat))
	}
	return log, nil
}

// jsonFormatter writes durations as text, "500ms". As a JSON number they would be
// nanoseconds without a unit.
type jsonFormatter struct{ logrus.JSONFormatter }

// Format changes the entry, which is logrus's copy for this one line.
func (f *jsonFormatter) Format(e *logrus.Entry) ([]byte, error) {
	for key, value := range e.Data {
		if d, ok := value.(time.Duration); ok {
			e.Data[key] = d.String()
		}
	}
	return f.JSONFormatter.Format(e)
}

// saveMemory reduces the memory of run, for a little more CPU: on a node of 250 pods it uses less
// than 20 MiB. See also collectOften.
func (a *app) saveMemory() error {
	// With "always" in /sys/kernel/mm/transparent_hugepage/enabled, the kernel backs the heap
	// with pages of 2 MiB. It may also fill a page again after the Go runtime has returned a
	// part of it (docs/reference/quirks.md).
	if err := unix.Prctl(unix.PR_SET_THP_DISABLE, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("disable transparent huge pages: %w", err)
	}
	return nil
}

// collectOften has the garbage collected more often, after the registration: each collection before would delay that.
func (a *app) collectOften() {
	if a.getenv("GOGC") == "" {
		// About 9 MB are in use on a node of 250 pods, so the collector runs after 1 MB of garbage. That is two
		// creates after which the mount table was read again, each with half a MB.
		debug.SetGCPercent(10)
	}
}
