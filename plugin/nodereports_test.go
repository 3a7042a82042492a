package plugin

import (
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

// TestNodeReport verifies what the report has of the node, and that an instance on standby makes none.
func TestNodeReport(t *testing.T) {
	p := newPlugin(t, nil)
	s := &session{p: p, log: p.log, deadline: time.Minute}
	if _, _, err := s.CreateContainer(t.Context(), sandbox(map[string]string{limitsKey + "containers": "* wbps=60Mi"}), ctr("a")); err != nil {
		t.Fatal(err)
	}
	refused := podevent.Document{Pod: podevent.Pod{Namespace: "prod", Name: "db-1"}, Events: []podevent.Event{{Note: "n"}}}
	now := time.Date(2026, 11, 28, 1, 2, 3, 0, time.UTC)
	got := p.nodeReport(now, reportsOf("", "line 3", refused))
	want := nodereport.New("v1", now, 1, []nodereport.Problem{
		{Reason: nodereport.Disconnected, Text: "new containers start without limits: it has not connected yet"},
		{Reason: nodereport.PolicyRejected, Text: "line 3"},
		{Namespace: "prod", Pod: "db-1", Reason: "BlkioRefused", Text: "n"},
	})
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	p.connection.connected("containerd 2")
	if got := p.nodeReport(now, reportsOf("", "")); len(got.Problems) > 0 || got.InForce != 1 {
		t.Errorf("without problems: %+v", got)
	}
	p.connection.change(health.Standby, "", "")
	if got := p.nodeReport(now, reportsOf("", "")); got != nil {
		t.Errorf("on standby: %+v", got)
	}
}

// TestIdleWeight verifies that a weight without effect is a problem, unless the operator has chosen it.
func TestIdleWeight(t *testing.T) {
	got := idleWeights(&health.Weights{Shares: []health.Share{
		{Namespace: "prod", Pod: "a", Reason: "no model"}, {Namespace: "prod", Pod: "b", Reason: "off", Chosen: true}, {Namespace: "prod", Pod: "c", Share: .5},
	}})
	want := []nodereport.Problem{{Namespace: "prod", Pod: "a", Reason: nodereport.NoEffect, Text: "a weight has no effect: no model"}}
	if d := cmp.Diff(want, got); d != "" || idleWeights(nil) != nil {
		t.Errorf("-want +got:\n%s", d)
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
		read := func() *nodereport.Report {
			t.Helper()
			synctest.Wait()
			data, err := os.ReadFile(c.File)
			if err != nil {
				t.Fatal(err)
			}
			r, err := nodereport.Decode(data)
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		time.Sleep(2 * reportEvery) // the directory does not exist
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		time.Sleep(reportEvery)
		first := read()
		time.Sleep(nodereport.Interval / 2)
		if got := read(); !got.At.Equal(first.At) {
			t.Error("an unchanged report is written again")
		}
		rejection.Store(new("b"))
		time.Sleep(reportEvery)
		second := read()
		if got := second.Problems[1]; got.Text != "b" {
			t.Errorf("a changed report: %+v", got)
		}
		time.Sleep(nodereport.Interval + reportEvery)
		if got := read(); !got.Equal(second) || got.At.Equal(second.At) {
			t.Errorf("after a minute: %+v", got)
		}
	})
}
