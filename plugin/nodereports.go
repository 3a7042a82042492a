package plugin

import (
	"context"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio/hostfs"
	"github.com/nri-blkio/nri-blkio/plugin/health"
	"github.com/nri-blkio/nri-blkio/plugin/nodereport"
	"github.com/nri-blkio/nri-blkio/plugin/podevent"
	"github.com/nri-blkio/nri-blkio/plugin/reminder"
)

const (
	// reportEvery is the time between two looks at what a report would say.
	reportEvery = 5 * time.Second
	// refusedFor is the time for which a rejected container counts: the kubelet tries again every five minutes at least.
	refusedFor = 6 * time.Minute
)

// NodeReports is what the reports about the node need beside the plugin.
type NodeReports struct {
	File    string // in the events directory
	Program string // the version
	// Rejection returns why the policy file was rejected, "" if it was not.
	Rejection func() string
	// Since returns the events of a reason since some time, one in each document.
	Since func(t time.Time, reason podevent.Reason) []podevent.Document
}

// WriteReports writes the report about the node for the cluster part, on change and every [nodereport.Interval], until ctx ends.
// An instance on standby writes none.
func (p *Plugin) WriteReports(ctx context.Context, c NodeReports) {
	var (
		written *nodereport.Report
		problem reminder.Reminder
	)
	reminder.Every(ctx, reportEvery, func(now time.Time) {
		r := p.nodeReport(now, c)
		if r == nil || written != nil && now.Sub(written.At).Abs() < nodereport.Interval && r.Equal(written) {
			return
		}
		err := hostfs.ReplaceOffered(c.File, r.Encode())
		if err == nil {
			written = r
		}
		if problem.Due(now, err) {
			p.log.WithError(err).Warn("Writing the report about the node failed, retrying")
		}
	})
}

// nodeReport returns the report about the node, nil on standby.
func (p *Plugin) nodeReport(now time.Time, c NodeReports) *nodereport.Report {
	state := p.Health()
	if state.State == health.Standby {
		return nil
	}
	problems := p.node.Problems()
	if state.State != health.Connected {
		problems = append(problems, nodereport.Problem{Reason: nodereport.Disconnected, Text: "new containers start without limits: " + state.Reason})
	}
	if rejection := c.Rejection(); rejection != "" {
		problems = append(problems, nodereport.Problem{Reason: nodereport.PolicyRejected, Text: rejection})
	}
	for _, d := range c.Since(now.Add(-refusedFor), podevent.Refused) {
		problems = append(problems, nodereport.Problem{Namespace: d.Namespace, Pod: d.Name, Reason: string(podevent.Refused), Text: d.Events[0].Note})
	}
	problems = append(problems, idleWeights(state.Weights)...)
	return nodereport.New(c.Program, now, state.Pods, problems)
}

// idleWeights returns the weights without effect that the operator has not chosen.
func idleWeights(w *health.Weights) (out []nodereport.Problem) {
	if w == nil {
		return nil
	}
	for _, s := range w.Shares {
		if s.Reason != "" && !s.Chosen {
			out = append(out, nodereport.Problem{Namespace: s.Namespace, Pod: s.Pod, Reason: nodereport.NoEffect, Text: "a weight has no effect: " + s.Reason})
		}
	}
	return out
}
