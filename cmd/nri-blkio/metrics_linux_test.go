package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus/hooks/test"

	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
	"github.com/nri-blkio/nri-blkio/plugin"
	"github.com/nri-blkio/nri-blkio/plugin/cluster"
	"github.com/nri-blkio/nri-blkio/plugin/health"
	"github.com/nri-blkio/nri-blkio/plugin/metricsserver"
	"github.com/nri-blkio/nri-blkio/plugin/policyfile"
	"github.com/nri-blkio/nri-blkio/plugin/recorder"
	"github.com/nri-blkio/nri-blkio/plugin/recovery"
	"github.com/nri-blkio/nri-blkio/plugin/repair"
	"github.com/nri-blkio/nri-blkio/plugin/weights"
	"github.com/nri-blkio/nri-blkio/policy"
)

// testPlugin returns a plugin of a node without pods.
func testPlugin(t *testing.T) *plugin.Plugin {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/cgroup.controllers", []byte("io\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	tree, err := cgroupfs.OpenTree(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tree.Close() })
	log, _ := test.NewNullLogger()
	p, err := plugin.New(plugin.Config{Log: log, Policy: policy.Default(), Storage: &storage.Storage{}, Cgroups: tree}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// weightsCollector has a disk and a pod.
func weightsCollector() prometheus.Collector {
	return weights.Collector{Report: func() *health.Weights {
		return &health.Weights{Disks: []health.CostDisk{{Disk: "vda", Enabled: true}}, Shares: []health.Share{{Pod: "db-0", Disk: "vda"}}}
	}}
}

// TestMetricsPage verifies that docs/reference/metrics.md lists exactly the metrics that are served.
func TestMetricsPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	log, _ := test.NewNullLogger()
	p := testPlugin(t)
	server := metricsserver.Server{Collectors: []prometheus.Collector{p, weightsCollector(), &repair.Repairer{}, plugin.NewValidator(log, nil), recovery.New(log), cluster.New(cluster.Config{Log: log}), p.NewDocuments("", nil), recorder.New(recorder.Config{Log: log}), &policyfile.Watch{}}, Log: log}
	recorder := httptest.NewRecorder()
	server.Handler().ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	var served, listed []string
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (\S+)`).FindAllStringSubmatch(recorder.Body.String(), -1) {
		served = append(served, m[1])
	}
	for _, row := range regexp.MustCompile("(?m)^\\| (`.*?) \\|").FindAllStringSubmatch(string(page), -1) {
		for _, m := range regexp.MustCompile("`((?:nri_blkio|process)_[a-z_]+)").FindAllStringSubmatch(row[1], -1) {
			listed = append(listed, m[1])
		}
	}
	slices.Sort(listed)
	if !slices.Equal(served, listed) {
		t.Errorf("served:\n%q\non the page:\n%q", served, listed)
	}
}
