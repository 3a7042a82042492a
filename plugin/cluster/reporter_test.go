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

	"github.com/nri-blkio/nri-blkio/blkio/hostfs"
	"github.com/nri-blkio/nri-blkio/plugin/nodereport"
)

// fakeReportAPI keeps the reports that were applied.
type fakeReportAPI struct {
	mu    sync.Mutex // guards the fields below
	texts []string   // of the problem of each request
	times []time.Time
	err   error
}

func (a *fakeReportAPI) ApplyReport(_ context.Context, now time.Time, report []byte) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.texts, a.times = append(a.texts, textOf(report)), append(a.times, now)
	return a.err
}

// textOf returns the text of the first problem of a report, "" without one.
func textOf(report []byte) string {
	r, err := nodereport.Decode(report)
	if err != nil {
		return err.Error()
	}
	for _, p := range r.Problems {
		return p.Text
	}
	return ""
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

// TestReadReport verifies that a report of the limits part is passed on as it is, and that a node without one that is new has a
// report that says so.
func TestReadReport(t *testing.T) {
	p := New(Config{EventsDir: t.TempDir()})
	file, want := filepath.Join(p.EventsDir, nodereport.FileName), nodereport.Encode("v1", 1, nil)
	has := func(when, text string, now time.Time) {
		t.Helper()
		if got := textOf(p.readReport(now)); !strings.HasPrefix(got, text) || (got == "") != (text == "") {
			t.Errorf("%s: %q, want %q", when, got, text)
		}
	}
	const absent = "the limits part does not run, or without --events-dir: "
	has("without a file", absent+"lstat", time.Now())
	if err := hostfs.ReplaceOffered(file, want); err != nil {
		t.Fatal(err)
	}
	has("with a file", "", time.Now())
	if got := p.readReport(time.Now()); string(got) != string(want) {
		t.Errorf("%s, want %s", got, want)
	}
	has("later", "", time.Now().Add(nodereport.Interval))
	has("with an old file", absent+"its report is old", time.Now().Add(2*reportPatience))
	has("after the clock was set back", absent+"its report is old", time.Now().Add(-time.Hour))
	if err := hostfs.ReplaceOffered(file, make([]byte, nodereport.MaxSize+1)); err != nil {
		t.Fatal(err)
	}
	has("with a large file", absent+"read "+file+": larger than", time.Now())
}

// TestReporter verifies that the report is sent on change, but not more often than the pace allows, and otherwise about every
// minute. A request that fails is sent again, and none is sent while the API server does not answer.
func TestReporter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, api := t.TempDir(), newFakeAPI()
		reports := api.fakeReportAPI
		p := startWith(t, Config{Dir: t.TempDir(), API: api, EventsDir: dir})
		defer func() { p.stop() }()
		sends := func(what string, d time.Duration, least, most int, suffix string) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			texts, times := reports.take()
			if len(texts) < least || len(texts) > most {
				t.Errorf("%s: %d requests, want %d to %d", what, len(texts), least, most)
			}
			for i, text := range texts {
				if !strings.HasSuffix(text, suffix) || i > 0 && times[i].Sub(times[i-1]) < reportPace {
					t.Errorf("%s: %q at %v, want %q", what, text, times[i], suffix)
				}
			}
		}
		const absent, old = "no such file or directory", "its report is old" // for the clock of the bubble each file is old
		sends("first", 2*reportPace, 1, 1, absent)
		if err := os.WriteFile(filepath.Join(dir, nodereport.FileName), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		sends("changed", reportPace, 1, 1, old)
		sends("unchanged", 10*nodereport.Interval, 10, 12, old)
		reports.fail(errors.New("refused"))
		sends("failing", 2*nodereport.Interval, 4, 8, old)
		if lines := p.log.AllEntries(); len(lines) != 1 || !strings.HasPrefix(lines[0].Message, "Sending the report") {
			t.Errorf("%d lines", len(lines))
		}
		reports.fail(nil)
		sends("accepted", 2*reportPace, 1, 1, old)
		api.fail(errors.New("unreachable"), Pods)
		time.Sleep(lookEvery)
		reports.take()
		sends("no answer", 2*nodereport.Interval, 0, 0, "")
		api.fail(nil, Pods)
		sends("an answer", 2*nodereport.Interval, 1, 3, old)
	})
}

// tokenOf returns a token with these claims.
func tokenOf(claims string) string {
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2ln\n"
}

// TestHolderOf verifies that the node is read from a token. A token that names no node is an error, and so is any other text.
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
	now, report := time.Now(), nodereport.Encode("v1", 3, []nodereport.Problem{{Reason: nodereport.Disconnected, Text: `"<`}})
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
	if got := lease.Annotations[nodereport.Annotation]; got != string(report) || lease.Labels["app.kubernetes.io/name"] != "nri-blkio-report" {
		t.Errorf("report %s, labels %v", got, lease.Labels)
	}
	if of := lease.OwnerReferences; len(of) != 1 || of[0].Kind != "Node" || of[0].Name != "worker-1" || of[0].UID != "u" {
		t.Errorf("owners %v", of)
	}
	if s := lease.Spec; *s.HolderIdentity != "worker-1" || s.RenewTime.Sub(now).Abs() > time.Microsecond || *s.LeaseDurationSeconds != 180 {
		t.Errorf("spec %v", s)
	}
}
