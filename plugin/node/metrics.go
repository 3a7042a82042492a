package node

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/node/lifecycle"
	"github.com/nri-blkio/nri-blkio/plugin/podmetrics"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// This file counts what the metrics show.

// metrics counts events. Collect counts the state of the node at each scrape. Except in the metrics of pods, the values of labels are
// fixed sets: they include no names of pods, and no text of a tenant.
type metrics struct {
	refused    [annotation.Internal + 1]atomic.Int64
	overBudget atomic.Int64 // of refused
	written    atomic.Int64 // lines of io.max
	edits      struct{ applied, rejected atomic.Int64 }
	passes     prometheus.Histogram
	pods       *podmetrics.Collector
}

func newMetrics() *metrics {
	return &metrics{
		passes: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "nri_blkio_reconcile_seconds",
			Help:    "Duration of a pass over all pods.",
			Buckets: []float64{.001, .01, .1, 1, 10},
		}),
	}
}

// The descriptions of the metrics that Collect returns.
var (
	podsDesc          = desc("pods", "Pods with annotations, with a class by a rule of the policy, or with a budget for their namespace.")
	containersDesc    = desc("containers", "Running containers of these pods, by the decision on their limits; observed: decided and not written; failed: a request is not granted.", "state")
	notInForceDesc    = desc("pods_not_in_force", "Pods with a limit that could not be decided or written; the reconciler retries.")
	warningsDesc      = desc("warnings", "Running containers whose limits come with a warning.", "kind")
	refusedDesc       = desc("refused_containers_total", "Rejected creations of containers, each attempt of the kubelet counted.", "kind")
	budgetRefusedDesc = desc("budget_refused_containers_total", "Rejected creations and starts of containers for which a budget had no room, each attempt of the kubelet counted.")
	overBudgetDesc    = desc("namespaces_over_budget", "Namespaces whose pods are granted more than their budget together on some physical disk, or use one without a limit.")
	foreignDesc       = desc("pods_with_foreign_limits", "Pods whose cgroup has limits in io.max that another program has set, and that stay.")
	unlabelledDesc    = desc("pods_without_namespace_labels", "Pods that a rule with namespaceSelector could concern, and whose namespace has unknown labels, so that it does not match.")
	writtenDesc       = desc("limits_written_total", "Lines written to io.max. The runtime writes the limits of the OCI spec, which are not counted.")
	editsDesc         = desc("live_changes_total", "Edits of the annotations and labels of running pods, by whether they count.", "result")
	exitWatchDesc     = desc("exit_watch", "1 while the exits of containers are watched; 0: limits of containers that end are not lifted.")
	exitsDesc         = desc("exits_total", "Exits of limited containers, by whether their limits were lifted before the cgroup was removed.", "result")
	unexpectedDesc    = desc("unexpected_events_total", "Events of a container that its phase does not allow for. Each is a bug of the plugin.")
	syncsDesc         = desc("syncs_total", "Syncs of filesystems after the exit of a container.", "result")
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("nri_blkio_"+name, help, labels, nil)
}

var _ prometheus.Collector = (*Node)(nil)

// Describe implements prometheus.Collector.
func (n *Node) Describe(out chan<- *prometheus.Desc) { prometheus.DescribeByCollect(n, out) }

// Collect returns the metrics of the node's state. It reads files of cgroups within a deadline, and nothing else of the node, so a
// disk that hangs blocks no scrape. A scrape holds the lock of the state only while it counts.
func (n *Node) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, count int, label ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(count), label...)
	}
	counter := func(d *prometheus.Desc, count *atomic.Int64, label ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(count.Load()), label...)
	}
	c := n.census()
	gauge(exitWatchDesc, c.watches)
	gauge(podsDesc, c.pods)
	gauge(notInForceDesc, c.notInForce)
	gauge(foreignDesc, c.foreign)
	gauge(unlabelledDesc, len(n.unlabelled(time.Now())))
	for i, count := range c.states {
		gauge(containersDesc, count, states[i])
	}
	for i, count := range c.warnings {
		gauge(warningsDesc, count, string(warningKinds[i]))
	}
	for kind := range n.metrics.refused {
		counter(refusedDesc, &n.metrics.refused[kind], annotation.Kind(kind).String())
	}
	counter(budgetRefusedDesc, &n.metrics.overBudget)
	gauge(overBudgetDesc, n.overBudget())
	counter(writtenDesc, &n.metrics.written)
	counter(editsDesc, &n.metrics.edits.applied, "applied")
	counter(editsDesc, &n.metrics.edits.rejected, "rejected")
	out <- prometheus.MustNewConstMetric(unexpectedDesc, prometheus.CounterValue, float64(c.unexpected))
	counter(exitsDesc, &n.exits.ends.Won, "lifted")
	counter(exitsDesc, &n.exits.ends.Lost, "lost")
	counter(exitsDesc, &n.exits.ends.Failed, "failed")
	counter(syncsDesc, &n.exits.writeout.Syncs.OK, "ok")
	counter(syncsDesc, &n.exits.writeout.Syncs.Failed, "failed")
	n.metrics.passes.Collect(out)
	n.metrics.pods.Collect(out)
}

// The states of a running container, and the kinds of warnings that have a series.
var (
	states       = [...]string{"limited", "unlimited", "failed", "observed"}
	warningKinds = [...]blkio.WarningKind{policy.NoMemoryLimit, policy.Guarded, policy.NotEnforced, policy.ClaimNotEnforced, policy.IgnoredAnnotations, blkio.NoCgroupWriteback, blkio.StallsFsync, "other"}
)

const (
	stateLimited = iota // an index of states
	stateUnlimited
	stateFailed
	stateObserved
)

const otherWarning = len(warningKinds) - 1

// census counts the pods and containers at one moment.
type census struct {
	pods, notInForce int
	foreign          int // pods with limits of other programs
	unexpected       int // events so far
	watches          int // 1 while the ends of containers are watched
	states           [len(states)]int
	warnings         [len(warningKinds)]int
}

func (n *Node) census() census {
	weightsWork := n.controls.Work()
	s := n.state.Lock()
	defer n.state.Unlock()
	out := census{pods: len(s.groups) - len(s.bystanders), unexpected: s.unexpected}
	if s.watch != nil {
		out.watches = 1
	}
	for _, g := range s.groups {
		if !s.concerns(g) {
			continue
		}
		if g.foreign != "" {
			out.foreign++
		}
		isPending := g.retry.err != nil
		for _, pod := range g.pods {
			for _, c := range pod.containers {
				if c.mayRun() {
					isPending = isPending || c.hasPendingLimits()
					out.add(&c.snapshot, weightsWork)
				}
			}
		}
		if isPending {
			out.notInForce++
		}
	}
	return out
}

// add counts a container, and each kind of its warnings once.
func (s *census) add(c *snapshot, weightsWork bool) {
	s.states[c.state()]++
	other := !weightsWork && slices.ContainsFunc(c.decision.desired.Settings, func(s policy.Setting) bool { return s.File() == blkio.IOWeight })
	for _, kind := range c.decision.desired.WarningKinds {
		if i := slices.Index(warningKinds[:otherWarning], kind); i >= 0 {
			s.warnings[i]++
		} else {
			other = true
		}
	}
	if other {
		s.warnings[otherWarning]++
	}
}

// isKeptLimit reports whether a setting is a limit that the plugin keeps in force.
func isKeptLimit(s policy.Setting) bool { return s.IsLimit() && s.Key != blkio.MemoryHigh }

// state returns the index in states of the decision on a container.
func (c *snapshot) state() int {
	switch {
	case c.decision.err != nil:
		return stateFailed
	case c.decision.policy == nil || !slices.ContainsFunc(c.inForce().Settings, isKeptLimit):
		return stateUnlimited
	case c.decision.policy.Mode() == policy.ModeObserve:
		return stateObserved
	}
	return stateLimited
}

// hasPendingLimits reports whether a running container has limits that are not decided yet, or not written because its
// cgroup was not seen yet.
func (c *snapshot) hasPendingLimits() bool {
	phase := c.life.Phase()
	switch {
	case !phase.MayRun(), phase == lifecycle.Refused:
		return false
	case c.decision.policy == nil:
		return c.decision.err != nil
	}
	return phase == lifecycle.Starting && c.cgroup != "" && c.state() != stateUnlimited
}
