// Package metrics has what a node counts, in the form of Prometheus. The values of labels are fixed sets: they include no names of pods,
// and no text of a tenant.
package metrics

import (
	"slices"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/podmetrics"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// Counters count events.
type Counters struct {
	Refused    [annotation.Internal + 1]atomic.Int64
	OverBudget atomic.Int64 // of Refused
	Written    atomic.Int64 // lines of io.max
	Applied    atomic.Int64 // edits
	Rejected   atomic.Int64 // edits
	Passes     prometheus.Histogram
	Pods       *podmetrics.Collector // nil for none
}

// New returns counters of nothing.
func New() *Counters {
	return &Counters{Passes: prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "nri_blkio_reconcile_seconds",
		Help:    "Duration of a pass over all pods.",
		Buckets: []float64{.001, .01, .1, 1, 10},
	})}
}

// Census has the counts of the state of a node at one moment.
type Census struct {
	Pods, NotInForce int
	Foreign          int // pods with limits of other programs
	Unlabelled       int // pods without labels of their namespace
	OverBudget       int // namespaces
	Unexpected       int // events so far
	Watches          int // 1 while the ends of containers are watched
	States           [len(states)]int
	warnings         [len(warningKinds)]int
}

// State is the state of a running container, by the decision on it.
type State int

// The states.
const (
	Limited State = iota
	Unlimited
	Failed
	Observed
)

// The names of the states, and the kinds of warnings that have a series.
var (
	states       = [...]string{"limited", "unlimited", "failed", "observed"}
	warningKinds = [...]blkio.WarningKind{policy.NoMemoryLimit, policy.Guarded, policy.NotEnforced, policy.ClaimNotEnforced, policy.IgnoredAnnotations, blkio.NoCgroupWriteback, blkio.StallsFsync, "other"}
)

const otherWarning = len(warningKinds) - 1

// Add counts a container, and each kind of its warnings once. isWarned is true if it has a warning of another kind.
func (c *Census) Add(s State, warnings []blkio.WarningKind, isWarned bool) {
	c.States[s]++
	for _, kind := range warnings {
		if i := slices.Index(warningKinds[:otherWarning], kind); i >= 0 {
			c.warnings[i]++
		} else {
			isWarned = true
		}
	}
	if isWarned {
		c.warnings[otherWarning]++
	}
}

// The descriptions of the metrics.
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

// Totals are the counters that other packages have, by their results.
type Totals struct{ Lifted, Lost, FailedExits, Synced, FailedSyncs *atomic.Int64 }

// Collect sends the metrics.
func (m *Counters) Collect(out chan<- prometheus.Metric, c *Census, t *Totals) {
	gauge := func(d *prometheus.Desc, count int, label ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(count), label...)
	}
	counter := func(d *prometheus.Desc, count *atomic.Int64, label ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(count.Load()), label...)
	}
	gauge(exitWatchDesc, c.Watches)
	gauge(podsDesc, c.Pods)
	gauge(notInForceDesc, c.NotInForce)
	gauge(foreignDesc, c.Foreign)
	gauge(unlabelledDesc, c.Unlabelled)
	for i, count := range c.States {
		gauge(containersDesc, count, states[i])
	}
	for i, count := range c.warnings {
		gauge(warningsDesc, count, string(warningKinds[i]))
	}
	for kind := range m.Refused {
		counter(refusedDesc, &m.Refused[kind], annotation.Kind(kind).String())
	}
	counter(budgetRefusedDesc, &m.OverBudget)
	gauge(overBudgetDesc, c.OverBudget)
	counter(writtenDesc, &m.Written)
	counter(editsDesc, &m.Applied, "applied")
	counter(editsDesc, &m.Rejected, "rejected")
	out <- prometheus.MustNewConstMetric(unexpectedDesc, prometheus.CounterValue, float64(c.Unexpected))
	counter(exitsDesc, t.Lifted, "lifted")
	counter(exitsDesc, t.Lost, "lost")
	counter(exitsDesc, t.FailedExits, "failed")
	counter(syncsDesc, t.Synced, "ok")
	counter(syncsDesc, t.FailedSyncs, "failed")
	m.Passes.Collect(out)
	if m.Pods != nil {
		m.Pods.Collect(out)
	}
}
