package cluster

import (
	"bytes"
	"context"
	"math/rand/v2"
	"path/filepath"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio/hostfs"
	"github.com/nri-blkio/nri-blkio/plugin/nodereport"
	"github.com/nri-blkio/nri-blkio/plugin/reminder"
)

const (
	// reportPace is the shortest time between two requests with the report, and between two looks at it. Failed requests, and the
	// first ones of all nodes, are spread over as much time.
	reportPace = 10 * time.Second
	// reportPatience is the age from which on the limits part is taken for one that does not run.
	reportPatience = 2 * nodereport.Interval
)

// sendReports sends the report that the limits part has written, on change and about every minute, until the context ends.
func (p *Part) sendReports(ctx context.Context) {
	var (
		sent    []byte
		next    time.Time // when an unchanged report is sent again
		problem reminder.Reminder
	)
	reminder.Sleep(ctx, rand.N(reportPace))
	reminder.Every(ctx, reportPace, func(now time.Time) {
		report := p.readReport(now)
		if answers, _, _ := p.contact.state(); !answers || bytes.Equal(report, sent) && now.Before(next) {
			return
		}
		err := p.ReportAPI.ApplyReport(ctx, now, report)
		if ctx.Err() != nil {
			return
		}
		p.status.count(err)
		if problem.Due(now, err) {
			p.Log.WithError(err).Warn("Sending the report about the node failed, retrying")
		}
		if err == nil {
			sent, next = report, now.Add(nodereport.Interval-reportPace)
		} else {
			reminder.Sleep(ctx, rand.N(reportPace))
		}
	})
}

// readReport returns the report that the limits part has written, or why there is none.
func (p *Part) readReport(now time.Time) []byte {
	version, err := hostfs.VersionOf(filepath.Join(p.EventsDir, nodereport.FileName))
	var data []byte
	if err == nil {
		data, err = hostfs.ReadSharedBelow(p.EventsDir, nodereport.FileName, nodereport.MaxSize)
	}
	text := "the limits part does not run, or without --events-dir: its report is old"
	if err != nil {
		text = "the limits part does not run, or without --events-dir: " + err.Error()
	} else if now.Sub(version.Changed).Abs() < reportPatience {
		return data
	}
	return nodereport.Encode("", 0, []nodereport.Problem{{Reason: nodereport.NotRunning, Text: text}})
}
