package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/plugin/nodereport"
)

// leaseOf returns the object of a node that has reported some time ago.
func leaseOf(node, annotation string, age time.Duration) map[string]any {
	return map[string]any{
		"metadata": map[string]any{"name": nodereport.NamePrefix + node, "annotations": map[string]string{nodereport.Annotation: annotation}},
		"spec":     map[string]any{"holderIdentity": node, "renewTime": time.Now().Add(-age).UTC().Format("2006-01-02T15:04:05.000000Z")},
	}
}

// cluster makes a cluster with these objects, and returns its directory.
func cluster(t *testing.T, items ...map[string]any) string {
	t.Helper()
	dir := t.TempDir()
	data, err := json.Marshal(map[string]any{"kind": "LeaseList", "items": items})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "leases"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("CLUSTER", dir)
	return dir
}

// blkio runs the plugin.
func blkio(t *testing.T, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	var out, errs bytes.Buffer
	status = run(t.Context(), args, nil, &out, &errs)
	return out.String(), errs.String(), status
}

// small is a cluster with a node of each kind.
func small(t *testing.T) {
	t.Helper()
	report := func(pods int, problems ...nodereport.Problem) string {
		return string(nodereport.Encode("v1", pods, problems))
	}
	const bad = `{"version": 1, "program": "v1\u001b[2J", "pods": 1, "problems": [{"namespace": "batch", "pod": "a", "reason": "\u202e", "text": "b\tc"}], "leftOut": 4}`
	cluster(t,
		leaseOf("worker-3", report(2, nodereport.Problem{Namespace: "prod", Pod: "db-0", Reason: "BlkioRefused", Text: "container db is rejected"}), 0),
		leaseOf("worker-1", report(4), 5*time.Second),
		leaseOf("worker-2", report(9, nodereport.Problem{Namespace: "prod", Pod: "db-1", Reason: "BlkioRefused", Text: "before"}), 7*time.Minute),
		leaseOf("worker-4", `{"version":9}`, 0), leaseOf("worker-5", report(0, nodereport.Problem{Reason: nodereport.NotRunning, Text: "n"}), 0),
		leaseOf("worker-6", bad, 0), leaseOf("worker-7", report(1), -time.Hour))
}

// TestOverview verifies the tables: problems of nodes first, then those of pods. Texts of nodes do not act on the terminal.
func TestOverview(t *testing.T) {
	small(t)
	out, errs, status := blkio(t, "status", "-A")
	want := `NODE      POD        REASON        TEXT
worker-5  -          NotRunning    n
worker-7  -          Silent        the last report is AGE old
worker-2  -          Silent        the last report is AGE old
worker-4  -          Silent        the report is of version 9 (known is 1)
worker-6  batch/a    "\u202e"      "b\tc"
worker-3  prod/db-0  BlkioRefused  container db is rejected

nodes: 7, silent: 3; pods on the others: 7, without a problem: 5
further problems, for which the reports have no room: 4 (kubectl blkio status --node NODE)
`
	// The ages depend on how fast the test runs.
	out = regexp.MustCompile(`is (7m[0-9]+s|-59m[0-9]+s|-1h0m0s) old`).ReplaceAllString(out, "is AGE old")
	if d := cmp.Diff(want, out); d != "" || errs != "" || status != exitFindings {
		t.Errorf("status %d, %s, -want +got:\n%s", status, errs, d)
	}
	out, _, _ = blkio(t, "status", "-A", "-n", "prod")
	if strings.Contains(out, "batch") || !strings.Contains(out, "db-0") || !strings.Contains(out, "worker-2") {
		t.Errorf("of one namespace:\n%s", out)
	}
	out, _, _ = blkio(t, "status", "-A", "-o", "json")
	if strings.Contains(out, "\x1b") || !strings.Contains(out, `"program": "v1\u001b[2J"`) {
		t.Errorf("as JSON:\n%s", out)
	}
}

// TestOverviewHostile verifies that what one node writes into its object hides nothing of the others.
func TestOverviewHostile(t *testing.T) {
	strange := leaseOf("worker-2", string(nodereport.Encode("v1", 1, nil)), 0)
	strange["spec"] = map[string]any{"renewTime": "10000-01-01T23:58:59.000000Z"}
	cluster(t, leaseOf("worker-1", string(nodereport.Encode("v1", 2, nil)), 0), strange,
		leaseOf("worker-3", `{"version": 1, "pods": 1, "problems": [{"pod": "`+strings.Repeat("x", 30000)+`"}]}`, 0),
		leaseOf("worker-4", `{"version": 1, "leftOut": -1000000}`, 0))
	out, errs, status := blkio(t, "status", "-A")
	want := "nodes: 4, silent: 3; pods on the others: 2, without a problem: 2\n"
	if !strings.HasSuffix(out, want) || len(out) > 1000 || strings.Count(out, "exceeds its bounds") != 2 || errs != "" || status != exitFindings {
		t.Errorf("status %d, %s, %s, want %s", status, errs, out, want)
	}
}

// TestOverviewJSON verifies the form of the document, which programs read.
func TestOverviewJSON(t *testing.T) {
	lease := leaseOf("worker-3", string(nodereport.Encode("v1", 2, nil)), 0)
	lease["spec"] = map[string]any{"renewTime": "2026-11-28T01:02:03.000004Z"}
	cluster(t, lease)
	out, _, status := blkio(t, "status", "-A", "-o=json")
	var got overview
	if err := json.Unmarshal([]byte(out), &got); err != nil || !got.Nodes[0].Silent {
		t.Fatalf("%v: %s", err, out)
	}
	got.Nodes[0].Silent, got.Problems[0].Text = false, "no report for some time" // they depend on the time of the test
	data, err := json.Marshal(got)
	want := `{"nodes":[{"node":"worker-3","silent":false,"reported":"2026-11-28T01:02:03.000004Z","program":"v1","pods":2,"inForce":2,"leftOut":0}],` +
		`"problems":[{"node":"worker-3","reason":"Silent","text":"no report for some time"}]}`
	if d := cmp.Diff(want, string(data)); err != nil || d != "" || status != exitFindings {
		t.Errorf("status %d, %v, -want +got:\n%s", status, err, d)
	}
}

// TestOverviewWithout verifies that a cluster without problems is a success, and one without reports an error.
func TestOverviewWithout(t *testing.T) {
	cluster(t, leaseOf("worker-1", string(nodereport.Encode("v1", 2, nil)), 0))
	if out, _, status := blkio(t, "status", "-A"); status != 0 || out != "nodes: 1, silent: 0; pods on the others: 2, without a problem: 2\n" {
		t.Errorf("status %d, %s", status, out)
	}
	cluster(t)
	if out, errs, status := blkio(t, "status", "-A"); status != exitUndetermined || out != "" || !strings.Contains(errs, "no reports of nodes in namespace nri-blkio: the cluster part") {
		t.Errorf("status %d, %s, %s", status, out, errs)
	}
}
