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

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
	"github.com/nri-blkio/nri-blkio/internal/fakenode"
	"github.com/nri-blkio/nri-blkio/plugin"
	"github.com/nri-blkio/nri-blkio/plugin/burst"
	"github.com/nri-blkio/nri-blkio/plugin/cluster"
	"github.com/nri-blkio/nri-blkio/plugin/health"
	"github.com/nri-blkio/nri-blkio/plugin/metricsserver"
	"github.com/nri-blkio/nri-blkio/plugin/podmetrics"
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
	p, err := plugin.New(plugin.Config{Log: log, Policy: policy.Default(), Storage: &storage.Storage{}, Cgroups: tree, Bursts: &burst.File{}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// weightsCollector has a disk and a pod.
func weightsCollector() prometheus.Collector {
	return weights.Collector{Report: func() *health.Weights {
		return &health.Weights{
			Disks: []health.CostDisk{{Disk: "vda", Enabled: true, Follow: &health.Follow{}}, {Disk: "vdb", By: "bfq"}}, Shares: []health.Share{{Pod: "db-0", Disk: "vda"}},
			Budgets: []health.BudgetSum{{Disk: "vda"}, {Disk: "vda", Key: health.KeyGuarantee}},
		}
	}}
}

// podsCollector has a pod with a limit in bytes and one in operations.
func podsCollector(t *testing.T) prometheus.Collector {
	t.Helper()
	k := fakenode.NewKernel(t)
	k.Make("pod", true)
	k.Replace("pod", "io.stat", "8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=0 dios=0\n")
	k.Replace("pod", "io.pressure", "some total=1\nfull total=1\n")
	k.Replace(".", "io.stat", "8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=0 dios=0\n")
	vda := blkio.Disk{Dev: blkio.Dev{Major: 8}, Name: "vda"}
	pod := podmetrics.Pod{Cgroup: "pod"}
	for _, key := range []blkio.Key{blkio.Rbps, blkio.Riops} {
		pod.Limits = append(pod.Limits, blkio.Value{Address: blkio.Address{Key: key, Dev: vda.Dev}, Amount: 1})
	}
	pod.Parts = []podmetrics.Part{{Cgroup: "pod", Limits: pod.Limits}}
	return podmetrics.New(func() []podmetrics.Pod { return []podmetrics.Pod{pod} }, func(blkio.Dev) string { return vda.Name }, k.Open(t, t.Context().Done()), nil)
}

// serve returns a page of metrics.
func serve(collectors ...prometheus.Collector) string {
	log, _ := test.NewNullLogger()
	server, recorder := metricsserver.Server{Collectors: collectors, Log: log}, httptest.NewRecorder()
	server.Handler().ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	return recorder.Body.String()
}

// TestMetricsPage verifies that docs/reference/metrics.md lists exactly the metrics that are served, and that the limits part has no more
// series without pods than the maximum of podmetrics leaves of 2,000.
func TestMetricsPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	log, _ := test.NewNullLogger()
	p := testPlugin(t)
	all := serve(p, weightsCollector(), &repair.Repairer{}, plugin.NewValidator(log, nil), recovery.New(log), cluster.New(cluster.Config{Log: log}),
		p.NewDocuments("", nil), recorder.New(recorder.Config{Log: log}), &policyfile.Watch{}) + serve(podsCollector(t)) // which both have pods_left_out
	var served, listed []string
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (\S+)`).FindAllStringSubmatch(all, -1) {
		served = append(served, m[1])
	}
	for _, row := range regexp.MustCompile("(?m)^\\| (`.*?) \\|").FindAllStringSubmatch(string(page), -1) {
		for _, m := range regexp.MustCompile("`((?:nri_blkio|process)_[a-z_]+)").FindAllStringSubmatch(row[1], -1) {
			listed = append(listed, m[1])
		}
	}
	slices.Sort(listed)
	slices.Sort(served)
	served = slices.Compact(served)
	if n := len(regexp.MustCompile(`(?m)^[^#]`).FindAllString(serve(p, recovery.New(log), &policyfile.Watch{}), -1)); n < 50 || n > 150 {
		t.Errorf("%d series without pods", n)
	}
	if !slices.Equal(served, listed) {
		t.Errorf("served:\n%q\non the page:\n%q", served, listed)
	}
}
