package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
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
	err := run(t.Context(), args, nil, &out, &errs)
	return out.String(), errs.String(), statusOf(err)
}

// small is a cluster with a node of each kind.
func small(t *testing.T) {
	t.Helper()
	report := func(pods int, problems ...nodereport.Problem) string {
		return string(nodereport.New("v1", time.Now(), pods, problems).Encode())
	}
	bad := nodereport.Report{Version: nodereport.Version, Program: "v1\x1b[2J", Pods: 1, Problems: []nodereport.Problem{{Namespace: "batch", Pod: "a", Reason: "\u202e", Text: "b\tc"}}, LeftOut: 4}
	cluster(t,
		leaseOf("worker-3", report(2, nodereport.Problem{Namespace: "prod", Pod: "db-0", Reason: "BlkioRefused", Text: "container db is rejected"}), 0),
		leaseOf("worker-1", report(4), 5*time.Second),
		leaseOf("worker-2", report(9, nodereport.Problem{Namespace: "prod", Pod: "db-1", Reason: "BlkioRefused", Text: "before"}), 7*time.Minute),
		leaseOf("worker-4", `{"version":9}`, 0), leaseOf("worker-5", report(0, nodereport.Problem{Reason: nodereport.NotRunning, Text: "n"}), 0),
		leaseOf("worker-6", string(bad.Encode()), 0), leaseOf("worker-7", report(1), -time.Hour))
}

// TestOverview verifies the tables: problems of nodes first, then those of pods. Texts of nodes do not act on the terminal.
func TestOverview(t *testing.T) {
	small(t)
	out, errs, status := blkio(t, "status", "-A")
	want := `NODE      POD        REASON        TEXT
worker-2  -          Silent        no report for 7m0s
worker-4  -          Silent        a report of version 9 (known is 1)
worker-5  -          NotRunning    n
worker-7  -          Silent        no report for -1h0m0s
worker-6  batch/a    "\u202e"      "b\tc"
worker-3  prod/db-0  BlkioRefused  container db is rejected

7 nodes, 3 of them silent; 7 pods on the others, 5 without a problem
4 more problems, for which the reports have no room: kubectl blkio status --node NODE
`
	if d := cmp.Diff(want, out); d != "" || errs != "" || status != exitFindings {
		t.Errorf("status %d, %s, -want +got:\n%s", status, errs, d)
	}
	out, _, _ = blkio(t, "status", "-A", "-n", "prod")
	if strings.Contains(out, "batch") || !strings.Contains(out, "db-0") || !strings.Contains(out, "worker-2") {
		t.Errorf("of one namespace:\n%s", out)
	}
	out, _, _ = blkio(t, "status", "-A", "-o", "wide")
	var rows []string
	for _, line := range strings.Split(out, "\n")[8:16] {
		fields := strings.Fields(line)
		rows = append(rows, strings.Join(append(fields[:1:1], fields[2:]...), " ")) // without the time
	}
	wantRows := []string{
		"NODE VERSION PODS IN FORCE PROBLEMS", "worker-1 v1 4 4 0", "worker-2 v1 9 8 1", "worker-3 v1 2 1 1", "worker-4 - 0 0 0",
		"worker-5 v1 0 0 1", `worker-6 "v1\x1b[2J" 1 0 5`, "worker-7 v1 1 1 0",
	}
	if d := cmp.Diff(wantRows, rows); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// TestOverviewJSON verifies the form of the document, which programs read.
func TestOverviewJSON(t *testing.T) {
	at := time.Date(2026, 11, 28, 1, 2, 3, 0, time.UTC)
	lease := leaseOf("worker-3", string(nodereport.New("v1", at, 2, []nodereport.Problem{{Namespace: "prod", Pod: "db-0", Reason: "BlkioRefused", Text: "t"}}).Encode()), 0)
	lease["spec"] = map[string]any{"renewTime": "2026-11-28T01:02:03.000004Z"}
	cluster(t, lease)
	out, _, status := blkio(t, "status", "-Ao=json")
	var got overview
	if err := json.Unmarshal([]byte(out), &got); err != nil || !got.Nodes[0].Silent {
		t.Fatalf("%v: %s", err, out)
	}
	got.Nodes[0].Silent, got.Problems[0].Text = false, "no report for some time" // they depend on the time of the test
	data, err := json.Marshal(got)
	want := `{"nodes":[{"node":"worker-3","silent":false,"reported":"2026-11-28T01:02:03.000004Z","program":"v1","pods":2,"inForce":1,"problems":1}],` +
		`"problems":[{"node":"worker-3","reason":"Silent","text":"no report for some time"}],"leftOut":0}`
	if d := cmp.Diff(want, string(data)); err != nil || d != "" || status != exitFindings {
		t.Errorf("status %d, %v, -want +got:\n%s", status, err, d)
	}
}

// TestOverviewWithout verifies that a cluster without problems is a success, and one without reports an error.
func TestOverviewWithout(t *testing.T) {
	cluster(t, leaseOf("worker-1", string(nodereport.New("v1", time.Now(), 2, nil).Encode()), 0))
	if out, _, status := blkio(t, "status", "-A"); status != 0 || out != "1 nodes, 0 of them silent; 2 pods on the others, 2 without a problem\n" {
		t.Errorf("status %d, %s", status, out)
	}
	cluster(t)
	if out, errs, status := blkio(t, "status", "-A"); status != exitUndetermined || out != "" || !strings.Contains(errs, "no reports of nodes in namespace nri-blkio: the cluster part") {
		t.Errorf("status %d, %s, %s", status, out, errs)
	}
}
