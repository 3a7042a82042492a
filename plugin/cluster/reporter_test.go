package cluster

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/nri-blkio/nri-blkio/blkio/hostfs"
	"github.com/nri-blkio/nri-blkio/plugin/nodereport"
)

// fakeReportAPI keeps the reports that were applied.
type fakeReportAPI struct {
	mu    sync.Mutex // guards the fields below
	texts []string   // of the first problem of each request, "" for none
	times []time.Time
	err   error
}

func (a *fakeReportAPI) ApplyReport(_ context.Context, now time.Time, r *nodereport.Report) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	text := ""
	if len(r.Problems) > 0 {
		text = r.Problems[0].Reason
	}
	a.texts, a.times = append(a.texts, text), append(a.times, now)
	return a.err
}

func (a *fakeReportAPI) fail(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.err = err
}

// take returns the requests since the last call.
func (a *fakeReportAPI) take() (texts []string, times []time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	texts, times, a.texts, a.times = a.texts, a.times, nil, nil
	return texts, times
}

// reporterTest runs a part with a report.
type reporterTest struct {
	*partTest
	reports *fakeReportAPI
	dir     string
}

func startReporter(t *testing.T) *reporterTest {
	t.Helper()
	r := &reporterTest{reports: &fakeReportAPI{}, dir: t.TempDir()}
	r.partTest = startWith(t, Config{Dir: t.TempDir(), API: newFakeAPI(), EventsDir: r.dir, ReportAPI: r.reports})
	return r
}

// write writes a report with a problem, "" for none.
func (r *reporterTest) write(reason string) {
	r.Helper()
	var problems []nodereport.Problem
	if reason != "" {
		problems = append(problems, nodereport.Problem{Reason: reason, Text: "x"})
	}
	r.replace(nodereport.New("v1", time.Now(), 1, problems).Encode())
}

func (r *reporterTest) replace(data []byte) {
	r.Helper()
	if err := hostfs.ReplaceOffered(filepath.Join(r.dir, nodereport.FileName), data); err != nil {
		r.Fatal(err)
	}
}

// sends compares the requests in a time.
func (r *reporterTest) sends(what string, d time.Duration, want ...string) []time.Time {
	r.Helper()
	time.Sleep(d)
	synctest.Wait()
	texts, times := r.reports.take()
	equal(r.T, what, want, texts)
	return times
}

// accepts verifies that the report is sent within two minutes, and again not before it is due.
func (r *reporterTest) accepts(what, want string) {
	r.Helper()
	time.Sleep(2 * nodereport.Interval)
	synctest.Wait()
	if texts, _ := r.reports.take(); len(texts) < 1 || len(texts) > 3 || texts[0] != want {
		r.Errorf("%s: %q, want %s", what, texts, want)
	}
}

// TestReporter verifies that the report is sent on change, but not more often than the pace allows, and otherwise about every
// minute.
func TestReporter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startReporter(t)
		defer func() { r.stop() }()
		r.write("a")
		r.sends("first", reportPace+lookEvery, "a")
		r.write("b")
		r.write("c")
		r.sends("changed", reportPace+lookEvery, "c")
		r.write("")
		r.write("c") // as it was sent
		r.sends("changed back", reportPace+lookEvery)
		for range 5 { // the limits part writes it every minute
			r.write("c")
			time.Sleep(nodereport.Interval)
		}
		synctest.Wait()
		texts, times := r.reports.take()
		if len(texts) < 5 || len(texts) > 6 {
			t.Errorf("%d requests in five minutes", len(texts))
		}
		for i := range times[1:] {
			if d := times[i+1].Sub(times[i]); d < nodereport.Interval-reportPace || d > nodereport.Interval+lookEvery {
				t.Errorf("%v between two reports", d)
			}
		}
	})
}

// TestReporterSilent verifies that a node without a limits part has a report that says so: without a file, with an old one,
// and with one that cannot be read.
func TestReporterSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startReporter(t)
		defer func() { r.stop() }()
		r.sends("no file", reportPace+lookEvery, nodereport.NotRunning)
		r.write("a")
		r.sends("a file", reportPace+lookEvery, "a")
		time.Sleep(reportPatience + reportPace)
		synctest.Wait()
		if texts, _ := r.reports.take(); len(texts) < 2 || texts[0] != "a" || texts[len(texts)-1] != nodereport.NotRunning {
			t.Errorf("an old file: %q", texts)
		}
		r.write("b")
		r.sends("a new file", reportPace+lookEvery, "b")
		if len(r.log.AllEntries()) > 0 {
			t.Errorf("logged %q", r.log.LastEntry().Message)
		}
		r.replace([]byte("{"))
		r.sends("a broken file", reportPace+lookEvery, nodereport.NotRunning)
		if last := r.log.LastEntry(); last == nil || !strings.Contains(last.Message, "cannot be read") || len(r.log.AllEntries()) != 1 {
			t.Errorf("logged %v", last)
		}
		r.write("b")
		r.sends("a file again", reportPace+lookEvery, "b")
	})
}

// TestReporterFailures verifies that a request that fails is sent again after a growing pause, one that the API server refuses
// after a minute, and none while the API server does not answer.
func TestReporterFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startReporter(t)
		defer func() { r.stop() }()
		r.reports.fail(errors.New("unreachable"))
		r.write("a")
		time.Sleep(nodereport.Interval + reportPace)
		texts, _ := r.reports.take()
		if len(texts) < 4 || len(texts) > 8 {
			t.Errorf("%d requests in a minute", len(texts))
		}
		if n := len(r.log.AllEntries()); n != 1 {
			t.Errorf("%d lines", n)
		}
		r.reports.fail(apierrors.NewForbidden(schema.GroupResource{}, "x", errors.New("no")))
		time.Sleep(2 * maxPause)
		r.reports.take()
		for range 3 {
			r.write("a")
			r.sends("refused", nodereport.Interval, "a")
		}
		r.reports.fail(nil)
		r.write("a")
		r.accepts("accepted", "a")
		r.API.(*fakeAPI).fail(errors.New("unreachable"), Pods)
		time.Sleep(lookEvery)
		r.reports.take()
		r.write("b")
		r.sends("no answer", nodereport.Interval)
		r.write("b")
		r.API.(*fakeAPI).fail(nil, Pods)
		r.accepts("an answer", "b")
	})
}

// tokenOf returns a token with these claims.
func tokenOf(claims string) string {
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2ln\n"
}

// TestHolderOf verifies that a token without a node is an error, and so is a text that is no token.
func TestHolderOf(t *testing.T) {
	of, err := holderOf(tokenOf(`{"iss":"x","kubernetes.io":{"namespace":"nri-blkio","node":{"name":"worker-1","uid":"u"},"pod":{"name":"p","uid":"q"}}}`))
	if err != nil || of.Namespace != "nri-blkio" || of.Node.Name != "worker-1" || of.Node.UID != "u" {
		t.Errorf("%+v, %v", of, err)
	}
	for token, want := range map[string]string{
		"t": "no JSON Web Token", "a.%.c": "read the claims", tokenOf("["): "read the claims", tokenOf("{}"): "names no node",
		tokenOf(`{"kubernetes.io":{"namespace":"nri-blkio","pod":{"name":"p"}}}`): "names no node",
	} {
		if _, err := holderOf(token); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", token, err, want)
		}
	}
}

// TestApplyReport verifies the request: one that creates the Lease of the token's node or replaces it.
func TestApplyReport(t *testing.T) {
	now, report := time.Now(), nodereport.New("v1", time.Now(), 3, nil)
	var lease coordinationv1.Lease
	c := newTestClient(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = json.Unmarshal(body, &lease)
		}
		if err != nil {
			t.Error(err)
		}
		want := "PATCH /apis/coordination.k8s.io/v1/namespaces/nri-blkio/leases/nri-blkio-worker-1?fieldManager=nri-blkio&force=true application/apply-patch+yaml"
		if got := r.Method + " " + r.URL.String() + " " + r.Header.Get("Content-Type"); got != want {
			t.Errorf("request %s, want %s", got, want)
		}
	})
	if err := c.ApplyReport(t.Context(), now, report); err == nil || !strings.Contains(err.Error(), "no JSON Web Token") {
		t.Errorf("another token: %v", err)
	}
	token := tokenOf(`{"kubernetes.io":{"namespace":"nri-blkio","node":{"name":"worker-1","uid":"u"}}}`)
	if err := os.WriteFile(filepath.Join(c.tokenDir, "token"), []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.ApplyReport(t.Context(), now, report); err != nil {
		t.Fatal(err)
	}
	got, err := nodereport.Decode([]byte(lease.Annotations[nodereport.Annotation]))
	if err != nil || !got.Equal(report) || lease.Labels["app.kubernetes.io/name"] != "nri-blkio-report" {
		t.Errorf("%v, %v", got, err)
	}
	if of := lease.OwnerReferences; len(of) != 1 || of[0].Kind != "Node" || of[0].Name != "worker-1" || of[0].UID != "u" {
		t.Errorf("owners %v", of)
	}
	if s := lease.Spec; *s.HolderIdentity != "worker-1" || s.RenewTime.Sub(now).Abs() > time.Microsecond || *s.LeaseDurationSeconds != 180 {
		t.Errorf("spec %v", s)
	}
}
