package plugin

import (
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/plugin/health"
	"github.com/nri-blkio/nri-blkio/plugin/nodereport"
	"github.com/nri-blkio/nri-blkio/plugin/podevent"
)

// reportsOf returns reports of a policy file with this rejection, and of a rejected container.
func reportsOf(file, rejection string, refused ...podevent.Document) NodeReports {
	return NodeReports{
		File: file, Program: "v1", Rejection: func() string { return rejection },
		Since: func(t time.Time, reason podevent.Reason) []podevent.Document {
			if time.Since(t) < 5*time.Minute || reason != podevent.Refused {
				return nil
			}
			return refused
		},
	}
}

// TestNodeReport verifies what the report has of the node. A weight without effect is a problem, unless the operator has chosen it.
func TestNodeReport(t *testing.T) {
	refused := podevent.Document{Pod: podevent.Pod{Namespace: "prod", Name: "db-1"}, Events: []podevent.Event{{Note: "n"}}}
	state := &health.Report{State: health.Disconnected, Reason: "r", Pods: 5, Weights: &health.Weights{Shares: []health.Share{
		{Namespace: "prod", Pod: "a", Reason: "no model"}, {Namespace: "prod", Pod: "b", Reason: "off", Chosen: true}, {Namespace: "prod", Pod: "c", Share: .5},
	}}}
	lasts := []nodereport.Problem{{Namespace: "prod", Pod: "db-0", Reason: "BlkioNotInForce", Text: "x"}}
	c := reportsOf("", "line 3", refused)
	want := nodereport.Encode("v1", 5, []nodereport.Problem{
		{Reason: nodereport.Disconnected, Text: "new containers start without limits: r"},
		{Reason: nodereport.PolicyRejected, Text: "line 3"},
		{Namespace: "prod", Pod: "db-0", Reason: "BlkioNotInForce", Text: "x"},
		{Namespace: "prod", Pod: "db-1", Reason: "BlkioRefused", Text: "n"},
		{Namespace: "prod", Pod: "a", Reason: nodereport.NoEffect, Text: "a weight has no effect: no model"},
	})
	if d := cmp.Diff(string(want), string(c.encode(time.Now(), state, lasts))); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	c = reportsOf("", "")
	degraded := nodereport.Encode("v1", 1, []nodereport.Problem{{Reason: nodereport.Degraded, Text: "no io.max"}})
	if got := c.encode(time.Now(), &health.Report{State: health.Connected, Reason: "no io.max", Pods: 1}, nil); string(got) != string(degraded) {
		t.Errorf("%s, want %s", got, degraded)
	}
	if got, want := string(c.encode(time.Now(), &health.Report{State: health.Connected, Pods: 1}, nil)), string(nodereport.Encode("v1", 1, nil)); got != want {
		t.Errorf("without problems: %s, want %s", got, want)
	}
}

// TestWriteReports verifies that the file is written on change and every minute, and after a failure.
func TestWriteReports(t *testing.T) {
	p := newPlugin(t, nil)
	dir := filepath.Join(t.TempDir(), "events")
	c := reportsOf(filepath.Join(dir, nodereport.FileName), "")
	synctest.Test(t, func(t *testing.T) {
		var rejection atomic.Pointer[string]
		rejection.Store(new("a"))
		c.Rejection = func() string { return *rejection.Load() }
		go p.WriteReports(t.Context(), c)
		// take returns the report that was written since the last call, nil for none.
		take := func() *nodereport.Report {
			t.Helper()
			synctest.Wait()
			data, err := os.ReadFile(c.File)
			if errors.Is(err, os.ErrNotExist) {
				return nil
			}
			r, decodeErr := nodereport.Decode(data)
			if err := errors.Join(err, decodeErr, os.Remove(c.File)); err != nil {
				t.Fatal(err)
			}
			return r
		}
		time.Sleep(2 * reportEvery) // the directory does not exist
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		time.Sleep(reportEvery)
		if r := take(); r == nil || r.Problems[1].Text != "a" {
			t.Errorf("the first report: %+v", r)
		}
		time.Sleep(nodereport.Interval / 2)
		if take() != nil {
			t.Error("an unchanged report is written again")
		}
		rejection.Store(new("b"))
		time.Sleep(reportEvery)
		if r := take(); r == nil || r.Problems[1].Text != "b" {
			t.Errorf("a changed report: %+v", r)
		}
		time.Sleep(nodereport.Interval + reportEvery)
		if take() == nil {
			t.Error("after a minute the report is not written again")
		}
		p.connection.change(health.Standby, "", "")
		time.Sleep(2 * nodereport.Interval)
		if take() != nil {
			t.Error("an instance on standby writes a report")
		}
	})
}
