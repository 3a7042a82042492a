package node

import (
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// BenchmarkScrape measures a scrape of a node of 250 pods with two containers each, of which all or a half have limits, and counts its
// series. The cgroups are plain files, or real ones as for BenchmarkReconcile.
func BenchmarkScrape(b *testing.B) {
	n := newReconciledNode(b)
	for i := range benchPods {
		if cg := podSlice(i); !n.isKernel {
			write(b, filepath.Join(n.dir, cg, "io.pressure"), "some avg10=0.00 avg60=0.00 avg300=0.00 total=5\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=4\n")
		}
	}
	b.Run("limited=250", func(b *testing.B) { scrape(b, n.p) })
	for i := range benchPods / 2 {
		sb, db, sidecar := plainPod(i, "dev")
		n.p.RemovedPod(sb.ID)
		for _, c := range []*Container{db, sidecar} {
			if n.p.Enter(sb, c, Running) {
				b.Fatal("a limit concerns the pod")
			}
		}
	}
	b.Run("limited=125", func(b *testing.B) { scrape(b, n.p) })
}

// scrape fails the benchmark unless each pod has the time that it waited, and its use of disks.
func scrape(b *testing.B, n *Node) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(n)
	handler := promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	body := ""
	b.ReportAllocs()
	for b.Loop() {
		r := httptest.NewRecorder()
		handler.ServeHTTP(r, httptest.NewRequest("GET", "/metrics", nil))
		body = r.Body.String()
	}
	waiting, using := strings.Count(body, "\nnri_blkio_pod_io_waiting_seconds_total{"), strings.Count(body, "\nnri_blkio_pod_operations_total{")
	series := 0
	for line := range strings.Lines(body) {
		if !strings.HasPrefix(line, "#") {
			series++
		}
	}
	b.ReportMetric(float64(series), "series")
	b.ReportMetric(float64(waiting), "pods")
	if waiting != benchPods || using != benchPods || series > 2000 {
		b.Errorf("%d pods, %d with use, %d series", waiting, using, series)
	}
}
