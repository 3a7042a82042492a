package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"github.com/nri-blkio/nri-blkio/blkio/hostfs"
	"github.com/nri-blkio/nri-blkio/plugin"
	"github.com/nri-blkio/nri-blkio/plugin/cluster"
	"github.com/nri-blkio/nri-blkio/plugin/exchange"
	"github.com/nri-blkio/nri-blkio/plugin/health"
	"github.com/nri-blkio/nri-blkio/plugin/part"
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

// clusterOptions are the flags of run for the cluster part, and for the directory in which it writes.
type clusterOptions struct {
	nodeName      string
	tokenDir      string
	exchange      string // the directory; "" for the default of the cluster part, and none for the limits part
	exchangeGroup int
}

func (a *app) addClusterFlags(f *pflag.FlagSet, o *clusterOptions) {
	f.StringVar(&o.nodeName, "node-name", a.getenv(nodeNameEnv), "this node's name at the API server, for the cluster part\n(environment: "+nodeNameEnv+")")
	f.StringVar(&o.tokenDir, "token-dir", "/var/run/secrets/kubernetes.io/serviceaccount", "directory with token and ca.crt, for the cluster part")
	f.StringVar(&o.exchange, "exchange-dir", "", "directory in which the cluster part writes for the limits part\n(default of the cluster part: STATE-DIR/"+health.Cluster+"; the limits part\nreads it only with this flag)")
	f.IntVar(&o.exchangeGroup, "exchange-group", defaultExchangeGroup, "group that may write the exchange directory")
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

// readDocuments has the plugin follow the documents of the cluster part until ctx ends, if there is an exchange directory.
// It returns once the plugin knows those that are there: the runtime is about to list pods that they are about.
func (r *runner) readDocuments(ctx context.Context, p *plugin.Plugin) collectors {
	if r.exchange == "" {
		return nil
	}
	r.shareExchangeDir()
	reader := exchange.New(exchange.Config{Dir: r.exchangeDir(), Changed: p.SetDocument, Log: r.log, Recovery: r.recovery})
	r.recovery.Step("read documents", reader.Read)
	go r.recovery.Loop(ctx, "read documents", reader.Run)
	return collectors{reader}
}

// collectors are the metrics of several values, as those of one.
type collectors []prometheus.Collector

// Describe implements prometheus.Collector.
func (cs collectors) Describe(out chan<- *prometheus.Desc) {
	for _, c := range cs {
		c.Describe(out)
	}
}

// Collect implements prometheus.Collector.
func (cs collectors) Collect(out chan<- prometheus.Metric) {
	for _, c := range cs {
		c.Collect(out)
	}
}

// clusterPart returns the part that speaks with the API server.
func (r *runner) clusterPart() (part.Part, error) {
	if r.nodeName == "" {
		return part.Part{}, usage(fmt.Errorf("--node-name: required with --only %s (or set %s)", onlyCluster, nodeNameEnv))
	}
	host, port := r.getenv(apiHostEnv), r.getenv(apiPortEnv)
	if host == "" || port == "" {
		return part.Part{}, usage(errors.New("no address of the API server: " + apiHostEnv + " and " + apiPortEnv + " are not set"))
	}
	api, err := cluster.NewAPI(cluster.Server{Host: host, Port: port, Dir: r.tokenDir, Node: r.nodeName, Agent: "nri-blkio/" + buildVersion()})
	if err != nil {
		return part.Part{}, named(err)
	}
	p := cluster.New(cluster.Config{Dir: r.exchangeDir(), API: api, Resync: r.resync, Log: r.log})
	run := func(ctx context.Context) error { return p.Run(ctx) }
	return part.Part{Collector: p, Reload: func(*policy.Policy) {}, Run: r.publishing(r.exchangeDir(), p.Health, run)}, nil
}
