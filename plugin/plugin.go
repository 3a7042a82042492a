// Package plugin connects nri-blkio to a runtime by NRI. It hands each event, within a
// deadline, to the state of the node (package node), and turns the answer into a message of
// NRI. It also has the validator, which is a plugin by itself.
package plugin

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/burst"
	"github.com/nri-blkio/nri-blkio/plugin/health"
	"github.com/nri-blkio/nri-blkio/plugin/node"
	"github.com/nri-blkio/nri-blkio/plugin/podevent"
	"github.com/nri-blkio/nri-blkio/plugin/recovery"
	"github.com/nri-blkio/nri-blkio/plugin/reminder"
	"github.com/nri-blkio/nri-blkio/plugin/weights"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// Config is the configuration of a Plugin. Log, Policy, Storage and Cgroups are required.
type Config = node.Config

// DefaultKubeletRoot is the kubelet's own default.
const DefaultKubeletRoot = node.DefaultKubeletRoot

// Plugin serves one node: it hands the runtime's events to the state of the node. Its
// methods are safe for concurrent use.
type Plugin struct {
	log        logrus.FieldLogger
	node       *node.Node
	weights    *weights.Keeper          // nil if the plugin does not change io.cost
	bursts     *burst.Keeper            // nil if no limit is raised
	events     events                   // those of node
	reloaded   chan struct{}            // holds at most one token: the policy changed
	handlers   *prometheus.HistogramVec // how long the runtime waits for answers
	connection connection
	recovery   *recovery.Recovery // nil: see recovery.Recovery
	// settled is closed, by settle, once the first registration is complete or has failed.
	settled <-chan struct{}
	settle  func()
}

// events is the state of a node, as the handlers of events use it; a *node.Node, which documents the methods.
type events interface {
	Registered(ctx context.Context, runtime, version string, patience time.Duration)
	Synchronize(sandboxes []*node.Sandbox, ctrs []*node.Container)
	Enter(sb *node.Sandbox, ctr *node.Container, now node.State) (isConcerned bool)
	Create(ctx context.Context, sb *node.Sandbox, ctr *node.Container, splitsLines bool) (spec policy.Settings, decided bool, err error)
	Start(ctx context.Context, sb *node.Sandbox, ctr *node.Container, canRefuse bool) error
	Updated(sandbox string)
	Stopped(sandbox, id string)
	Removed(sandbox, id string)
	RemovedPod(sandbox string)
	Refusal(sb *node.Sandbox) error
	Policy() *policy.Policy
}

// New returns a plugin for this node. It fails where the kernel or the configuration cannot enforce anything.
// disks has the facts by which io.cost is set up. If it is nil, io.cost stays as it is, and weights have an
// effect where another program has enabled it.
func New(cfg Config, disks weights.Disks) (*Plugin, error) {
	n, err := node.New(cfg)
	if err != nil {
		return nil, err
	}
	settled := make(chan struct{})
	p := &Plugin{
		log: cfg.Log, node: n, events: n, reloaded: make(chan struct{}, 1), handlers: newHandlers(), recovery: cfg.Recovery,
		settled: settled, settle: sync.OnceFunc(func() { close(settled) }),
	}
	if disks != nil {
		p.weights = weights.New(weights.Config{
			Log: cfg.Log, Cgroups: cfg.Cgroups, Policy: n.Policy, Demand: n.Weighted, Disks: disks, Changed: n.WeightsChanged,
			Recovery: cfg.Recovery,
		})
	}
	if cfg.Bursts != nil {
		p.bursts = burst.New(burst.Config{
			Log: cfg.Log, File: cfg.Bursts, Cgroups: cfg.Cgroups, Room: func() blkio.Limits { return n.Policy().Bursts },
			Demand: n.Bursting, Raise: n.Raise, Recovery: cfg.Recovery,
		})
	}
	return p, nil
}

// Reload puts a new node policy into force, for running containers too.
func (p *Plugin) Reload(pol *policy.Policy) {
	p.node.Reload(pol)
	reminder.Wake(p.reloaded)
}

// MountsChanged is node.Node.MountsChanged.
func (p *Plugin) MountsChanged() { p.node.MountsChanged() }

// PodsByCgroup is node.Node.PodsByCgroup.
func (p *Plugin) PodsByCgroup() map[string]podevent.Pod { return p.node.PodsByCgroup() }

// DisksChanged is node.Node.DisksChanged.
func (p *Plugin) DisksChanged() { p.node.DisksChanged() }

// Health returns the state of the plugin, without the fields of the process. It reads
// nothing of the node.
func (p *Plugin) Health() health.Report {
	pol := p.events.Policy()
	r := health.Report{Part: health.Limits, Mode: string(pol.Mode), RuleModes: pol.HasModes()}
	p.connection.fill(&r)
	r.Pods, r.NotInForce, r.Failed = p.node.Counts()
	if problem := p.node.Problem(); problem != "" {
		r.Reason = strings.TrimPrefix(r.Reason+"; "+problem, "; ")
	}
	var weights []health.BudgetSum
	if p.weights != nil {
		r.Weights = p.weights.Report()
		weights = r.Weights.Budgets
	}
	r.Budgets = budgetsOf(p.node.Budgets(), weights)
	return r
}

func newHandlers() *prometheus.HistogramVec {
	all := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "nri_blkio_handler_seconds",
		Help:    "Time that the runtime waits for an answer for pods with annotations or a class.",
		Buckets: []float64{10e-6, 100e-6, .001, .01, .1, .5, 2},
	}, []string{"handler"})
	all.WithLabelValues("create")
	all.WithLabelValues("start")
	return all
}

var (
	connectedDesc = desc("connected", "1 while registered with the kubelet's runtime, otherwise 0.")
	standbyDesc   = desc("standby", "1 while another instance serves this node, otherwise 0.")
)

func desc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("nri_blkio_"+name, help, nil, nil)
}

var _ prometheus.Collector = (*Plugin)(nil)

// Describe is the half of prometheus.Collector that names the metrics.
func (p *Plugin) Describe(out chan<- *prometheus.Desc) { prometheus.DescribeByCollect(p, out) }

// Collect implements prometheus.Collector. It is node.Node.Collect, with the metrics of the connection and of weights.
func (p *Plugin) Collect(out chan<- prometheus.Metric) {
	out <- prometheus.MustNewConstMetric(connectedDesc, prometheus.GaugeValue, oneIf(p.connection.is(health.Connected)))
	out <- prometheus.MustNewConstMetric(standbyDesc, prometheus.GaugeValue, oneIf(p.connection.is(health.Standby)))
	p.handlers.Collect(out)
	p.node.Collect(out)
	if p.weights != nil {
		weights.Collector{Report: p.weights.Report}.Collect(out)
	}
	if p.bursts != nil {
		p.bursts.Collect(out)
	}
}

func oneIf(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

// maxBudgetSums bounds the rows of a report. A tenant decides on how many disks it has volumes.
const maxBudgetSums = 500

// budgetsOf returns the report about budgets, those of weights last, nil without any.
func budgetsOf(uses []node.BudgetUse, weights []health.BudgetSum) *health.Budgets {
	if len(uses)+len(weights) == 0 {
		return nil
	}
	out := &health.Budgets{}
	for i := range uses {
		u := &uses[i]
		if len(out.Sums) == maxBudgetSums {
			break
		}
		out.Sums = append(out.Sums, health.BudgetSum{
			Namespace: u.Namespace, Disk: u.Disk.Name, Dev: u.Disk.Dev.String(), Key: u.Key.String(),
			Granted: annotation.FormatAmount(u.Key, u.Granted), Budget: annotation.FormatAmount(u.Key, u.Budget),
			Pods: u.Pods, Over: u.IsOver(), Undecided: u.Undecided,
		})
	}
	out.Sums = append(out.Sums, weights[:min(len(weights), maxBudgetSums-len(out.Sums))]...)
	out.LeftOut = len(uses) + len(weights) - len(out.Sums)
	return out
}
