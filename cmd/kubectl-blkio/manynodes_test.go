package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/plugin/nodereport"
)

// TestManyNodes verifies that 500 nodes with the largest reports, of which 25 are silent, need one request. It logs the time that
// the documentation has.
func TestManyNodes(t *testing.T) {
	var problems []nodereport.Problem
	for i := range nodereport.MaxProblems {
		problems = append(problems, nodereport.Problem{Namespace: "prod", Pod: fmt.Sprint("db-", i), Reason: "BlkioNotInForce", Text: strings.Repeat("x", 250)})
	}
	var items []map[string]any
	for i := range 500 {
		age := time.Duration(i%60) * time.Second
		if i%20 == 7 {
			age = time.Hour
		}
		items = append(items, leaseOf(fmt.Sprintf("worker-%d", i), string(nodereport.Encode("v1", 200, problems)), age))
	}
	dir := cluster(t, items...)
	start := time.Now()
	out, errs, status := blkio(t, "status", "-A")
	t.Logf("it took %v, and printed %d KiB", time.Since(start), len(out)>>10)
	lines := strings.Split(out, "\n")
	for _, line := range lines[1:26] {
		if !strings.Contains(line, nodereport.Silent) || !strings.Contains(line, "the last report is 1h0m") {
			t.Errorf("%s: silent nodes are not first", line)
		}
	}
	if strings.Count(out, nodereport.Silent) != 25 || strings.Count(out, "BlkioNotInForce") < 475*80 || status != exitFindings || errs != "" {
		t.Errorf("status %d, %s, %d lines", status, errs, len(lines))
	}
	if want := "nodes: 500, silent: 25; pods on the others: 95000, without a problem: 47500"; !strings.Contains(out, want) {
		t.Errorf("%s, want %s", lines[len(lines)-3:], want)
	}
	requests, err := os.ReadFile(filepath.Join(dir, "requests"))
	want := "get --request-timeout=30s --raw=/apis/coordination.k8s.io/v1/namespaces/nri-blkio/leases?labelSelector=app.kubernetes.io%2Fname%3Dnri-blkio-report\n"
	if d := cmp.Diff(want, string(requests)); err != nil || d != "" {
		t.Errorf("%v, requests -want +got:\n%s", err, d)
	}
}
