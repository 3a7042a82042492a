package node

import (
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// BenchmarkScrape measures a scrape of a node of 250 pods with two containers each, and counts its series. The cgroups are
// plain files, or real ones as for BenchmarkReconcile.
func BenchmarkScrape(b *testing.B) {
	n := newReconciledNode(b)
	for i := range benchPods {
		if cg := podSlice(i); !n.isKernel {
			write(b, filepath.Join(n.dir, cg, "io.pressure"), "some avg10=0.00 avg60=0.00 avg300=0.00 total=5\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=4\n")
		}
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(n.p)
	handler := promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	body := ""
	b.ReportAllocs()
	for b.Loop() {
		r := httptest.NewRecorder()
		handler.ServeHTTP(r, httptest.NewRequest("GET", "/metrics", nil))
		body = r.Body.String()
	}
	pods := strings.Count(body, "\nnri_blkio_pod_operations_total{")
	series := 0
	for line := range strings.Lines(body) {
		if !strings.HasPrefix(line, "#") {
			series++
		}
	}
	b.ReportMetric(float64(series), "series")
	b.ReportMetric(float64(pods), "pods")
	if pods != benchPods || series > 2000 {
		b.Errorf("%d pods, %d series", pods, series)
	}
}
