package cluster

import (
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio/hostfs"
	"github.com/nri-blkio/nri-blkio/plugin/nodereport"
	"github.com/nri-blkio/nri-blkio/plugin/reminder"
)

const (
	// reportPace is the shortest time between two requests with the report. Each node's first one is sent at some time within it.
	reportPace = 10 * time.Second
	// reportPatience is the age from which on the limits part is taken for one that does not run.
	reportPatience = 2 * nodereport.Interval
)

// reporter sends the report that the limits part has written, on change and every minute.
type reporter struct {
	part    *Part
	version hostfs.Version     // of the file
	file    *nodereport.Report // what it has; nil for none that can be read
	sent    *nodereport.Report
	next    time.Time     // when an unchanged report is sent again
	resume  time.Time     // the earliest time of the next request
	pause   time.Duration // after the last failed request; 0 after a success
	log     struct{ file, api reminder.Reminder }
}

// sendReports sends the report of the node until the context ends.
func (p *Part) sendReports(ctx context.Context) {
	r := reporter{part: p, resume: time.Now().Add(rand.N(reportPace))}
	reminder.Every(ctx, lookEvery, func(now time.Time) { r.step(ctx, now) })
}

// step reads what has changed, and sends the report if it is due.
func (r *reporter) step(ctx context.Context, now time.Time) {
	if err := r.read(); r.log.file.Due(now, err) {
		r.part.Log.WithError(err).WithField("dir", r.part.EventsDir).Warn("The report about the node cannot be read")
	}
	report := r.file
	if report == nil || now.Sub(report.At).Abs() > reportPatience {
		report = nodereport.New("", now, 0, []nodereport.Problem{{Reason: nodereport.NotRunning, Text: "the limits part writes no report: it does not run, or is of another version"}})
	}
	isDue := r.sent == nil || !now.Before(r.next) || !report.Equal(r.sent)
	if answers, _, _ := r.part.contact.state(); !answers || !isDue || now.Before(r.resume) {
		return
	}
	err := r.part.ReportAPI.ApplyReport(ctx, now, report)
	if ctx.Err() != nil {
		return
	}
	r.part.status.count(err)
	if r.log.api.Due(now, err) {
		r.part.Log.WithError(err).Warn("Sending the report about the node failed, retrying")
	}
	switch {
	case err == nil:
		r.sent, r.pause, r.resume, r.next = report, 0, now.Add(reportPace), now.Add(nodereport.Interval-rand.N(reportPace))
	case isRefusal(err): // a right is missing, or the policy of admission has not taken effect
		r.resume = now.Add(nodereport.Interval)
	default:
		r.pause = min(max(2*r.pause, minPause), maxPause)
		r.resume = now.Add(r.pause + rand.N(r.pause))
	}
}

// read reads the file if it has changed.
func (r *reporter) read() error {
	version, err := hostfs.VersionOf(filepath.Join(r.part.EventsDir, nodereport.FileName))
	if err == nil && version == r.version {
		return nil
	}
	r.version, r.file = hostfs.Version{}, nil
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var data []byte
	if err == nil {
		data, err = hostfs.ReadSharedBelow(r.part.EventsDir, nodereport.FileName, nodereport.MaxSize)
	}
	if err != nil {
		return err
	}
	if r.file, err = nodereport.Decode(data); err == nil {
		r.version = version
	}
	return err
}
