package plugin

import (
	"bytes"
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
	File, Program string        // the path of the report, and the version
	Rejection     func() string // why the policy file was rejected, "" if it was not
	// Since returns the events of a reason since some time, one in each document.
	Since func(t time.Time, reason podevent.Reason) []podevent.Document
}

// WriteReports writes the report about the node for the cluster part, on change and every [nodereport.Interval], until ctx ends.
// An instance on standby writes none.
func (p *Plugin) WriteReports(ctx context.Context, c NodeReports) {
	var written []byte
	var at time.Time
	var problem reminder.Reminder
	reminder.Every(ctx, reportEvery, func(now time.Time) {
		state := p.Health()
		data := c.encode(now, &state, p.node.Problems())
		if state.State == health.Standby || bytes.Equal(data, written) && now.Sub(at).Abs() < nodereport.Interval {
			return
		}
		err := hostfs.ReplaceOffered(c.File, data)
		if err == nil {
			written, at = data, now
		}
		if problem.Due(now, err) {
			p.log.WithError(err).Warn("Writing the report about the node failed, retrying")
		}
	})
}

// encode returns the report about the node in a state, with the problems of its running pods.
func (c *NodeReports) encode(now time.Time, state *health.Report, problems []nodereport.Problem) []byte {
	add := func(namespace, pod, reason, text string) {
		problems = append(problems, nodereport.Problem{Namespace: namespace, Pod: pod, Reason: reason, Text: text})
	}
	if state.State != health.Connected {
		add("", "", nodereport.Disconnected, "new containers start without limits: "+state.Reason)
	} else if state.Reason != "" {
		add("", "", nodereport.Degraded, state.Reason)
	}
	if rejection := c.Rejection(); rejection != "" {
		add("", "", nodereport.PolicyRejected, rejection)
	}
	for _, d := range c.Since(now.Add(-refusedFor), podevent.Refused) {
		add(d.Namespace, d.Name, string(podevent.Refused), d.Events[0].Note)
	}
	if state.Weights != nil {
		for _, s := range state.Weights.Shares {
			if s.Reason != "" && !s.Chosen {
				add(s.Namespace, s.Pod, nodereport.NoEffect, "a weight has no effect: "+s.Reason)
			}
		}
	}
	return nodereport.Encode(c.Program, state.Pods, problems)
}
