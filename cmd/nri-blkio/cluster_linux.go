package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/nri-blkio/nri-blkio/blkio/hostfs"
	"github.com/nri-blkio/nri-blkio/internal/terminal"
	"github.com/nri-blkio/nri-blkio/plugin"
	"github.com/nri-blkio/nri-blkio/plugin/cluster"
	"github.com/nri-blkio/nri-blkio/plugin/contested"
	"github.com/nri-blkio/nri-blkio/plugin/health"
	"github.com/nri-blkio/nri-blkio/plugin/nodereport"
	"github.com/nri-blkio/nri-blkio/plugin/part"
	"github.com/nri-blkio/nri-blkio/plugin/recorder"
	"github.com/nri-blkio/nri-blkio/plugin/repair"
	"github.com/nri-blkio/nri-blkio/policy"
)

// What a pod's environment says of the cluster. The kubelet sets the last two.
const (
	nodeNameEnv = "NODE_NAME"
	apiHostEnv  = "KUBERNETES_SERVICE_HOST"
	apiPortEnv  = "KUBERNETES_SERVICE_PORT"
)

// The user and group of the cluster part. The range from 65520 to 65533 is free on systemd's nodes
// (UIDs and GIDs on systemd systems, systemd.io/UIDS-GIDS).
const defaultExchangeGroup = 65530

// defaultTokenDir is where the kubelet mounts the token of a pod's service account.
const defaultTokenDir = "/var/run/secrets/kubernetes.io/serviceaccount"

// clusterOptions are the flags of run for the cluster part, and for the directory in which it writes.
type clusterOptions struct {
	nodeName      string
	tokenDir      string
	exchange      string // the directory; "" for the default of the cluster part, and none for the limits part
	exchangeGroup int
	events        string // the directory of events; as exchange
	attachments   bool
}

func (a *app) addClusterFlags(f *pflag.FlagSet, o *clusterOptions) {
	f.StringVar(&o.nodeName, "node-name", a.getenv(nodeNameEnv), "this node's name at the API server, for the cluster part\n(environment: "+nodeNameEnv+")")
	f.StringVar(&o.tokenDir, "token-dir", defaultTokenDir, "directory with token and ca.crt, for the cluster part")
	f.BoolVar(&o.attachments, "driver-limits", false, "the cluster part also reads the limits that storage drivers write into\nVolumeAttachments (two more watches for each claim)")
	f.StringVar(&o.exchange, "exchange-dir", "", "directory in which the cluster part writes for the limits part\n(default of the cluster part: STATE-DIR/"+health.Cluster+"; the limits part\nreads it only with this flag)")
	f.IntVar(&o.exchangeGroup, "exchange-group", defaultExchangeGroup, "group that may write the exchange directory, and read the events directory")
	f.StringVar(&o.events, "events-dir", "", "directory in which the limits part writes what happens to pods, for the\ncluster part, which sends it as Events (default of the cluster part:\nSTATE-DIR/events; the limits part writes it only with this flag)")
}

// exchangeDir returns the directory in which the cluster part writes for the limits part.
func (r *runner) exchangeDir() string {
	return cmp.Or(r.exchange, health.ExchangeDir(r.opts.stateDir))
}

// shareExchangeDir makes the exchange directory for the cluster part, which may not make it itself.
func (r *runner) shareExchangeDir() {
	if err := hostfs.ShareDir(r.exchangeDir(), r.exchangeGroup); err != nil {
		// A node may have no cluster part. If it has one, its state shows that it cannot write.
		r.log.WithError(err).Debug("The exchange directory cannot be shared: a cluster part with another user cannot write it")
	}
}

// eventsDir returns the directory in which the limits part writes for the cluster part.
func (r *runner) eventsDir() string {
	return cmp.Or(r.events, filepath.Join(r.opts.stateDir, "events"))
}

// newRecorder returns the recorder of what happens to pods, and nil without an events directory.
func (r *runner) newRecorder() *recorder.Recorder {
	if r.events == "" {
		return nil
	}
	if err := hostfs.OfferDir(r.eventsDir(), r.exchangeGroup); err != nil {
		// A node may have no cluster part.
		r.log.WithError(err).Debug("The events directory cannot be offered: a cluster part with another user cannot read it")
	}
	return recorder.New(recorder.Config{Dir: r.eventsDir(), Log: r.log})
}

// watchContested has the recorder note the files that pods contend for, until ctx ends.
func (r *runner) watchContested(ctx context.Context, rec *recorder.Recorder, p *plugin.Plugin) {
	w := contested.New(contested.Config{
		Report: func() (*repair.Report, error) { return repair.ReadReport(r.opts.reportFile()) },
		Pods:   p.PodsByCgroup, Note: rec.Note,
	})
	go r.recovery.Loop(ctx, "find contested files", w.Run)
}

// reportNode writes the report about the node for the cluster part, until ctx ends.
func (r *runner) reportNode(ctx context.Context, rec *recorder.Recorder, p *plugin.Plugin) {
	reports := plugin.NodeReports{File: filepath.Join(r.eventsDir(), nodereport.FileName), Program: buildVersion(), Rejection: r.watch.Rejection, Since: rec.Since}
	go r.recovery.Loop(ctx, "report the node", func(ctx context.Context) { p.WriteReports(ctx, reports) })
}

// readDocuments has the plugin follow the documents of the cluster part until ctx ends, if there is an exchange directory.
// It returns once the plugin knows those that are there: the runtime is about to list pods that they are about.
func (r *runner) readDocuments(ctx context.Context, p *plugin.Plugin) []prometheus.Collector {
	if r.exchange == "" {
		return nil
	}
	documents := p.NewDocuments(r.exchangeDir(), r.shareExchangeDir)
	documents.Read()
	go r.recovery.Loop(ctx, "read documents", documents.Run)
	return []prometheus.Collector{documents}
}

func (r *runner) clusterPart() (part.Part, error) {
	if r.nodeName == "" {
		return part.Part{}, usage(fmt.Errorf("--node-name: required with --only %s (or set %s)", health.Cluster, nodeNameEnv))
	}
	server, err := r.apiServer(r.tokenDir)
	if err != nil {
		return part.Part{}, err
	}
	server.Node = r.nodeName
	api, err := cluster.NewAPI(server)
	if err != nil {
		return part.Part{}, named(err)
	}
	c := cluster.Config{Dir: r.exchangeDir(), API: api, EventsDir: r.eventsDir(), Resync: r.resync, Log: r.log}
	if r.attachments {
		c.Node = r.nodeName
	}
	p := cluster.New(c)
	run := func(ctx context.Context) error { return p.Run(ctx) }
	return part.Part{Metrics: []prometheus.Collector{p}, Reload: func(*policy.Policy) {}, Run: r.publishing(health.ClusterDir(r.exchangeDir()), p.Health, run)}, nil
}

// apiServer returns how a pod reaches the API server, without a node.
func (a *app) apiServer(tokenDir string) (cluster.Server, error) {
	host, port := a.getenv(apiHostEnv), a.getenv(apiPortEnv)
	if host == "" || port == "" {
		return cluster.Server{}, usage(errors.New("no address of the API server: " + apiHostEnv + " and " + apiPortEnv + " are not set"))
	}
	return cluster.Server{Host: host, Port: port, Dir: tokenDir, Agent: "nri-blkio/" + buildVersion()}, nil
}

// awaitCommand returns the command with which the Helm chart waits until each node has removed its limits.
func (a *app) awaitCommand() *cobra.Command {
	tokenDir, deletes := defaultTokenDir, false
	cmd := &cobra.Command{
		Use:    "await-daemonset NAMESPACE/NAME",
		Short:  "Wait until each pod of a DaemonSet is ready (used by the Helm chart)",
		Args:   cobra.ExactArgs(1),
		Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			namespace, name, ok := strings.Cut(args[0], "/")
			if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
				return usage(fmt.Errorf("invalid DaemonSet %q (write NAMESPACE/NAME)", args[0]))
			}
			server, err := a.apiServer(tokenDir)
			if err != nil {
				return err
			}
			set, err := cluster.NewDaemonSet(server, namespace, name)
			if err != nil {
				return named(err)
			}
			err = set.Await(cmd.Context(), func(state string) { fmt.Fprintln(a.stdout, terminal.EscapeLine(state)) })
			if err != nil || !deletes {
				return err
			}
			return set.Delete(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&tokenDir, "token-dir", tokenDir, "directory with token and ca.crt")
	cmd.Flags().BoolVar(&deletes, "delete", false, "delete the DaemonSet then")
	return cmd
}
