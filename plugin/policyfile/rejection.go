package policyfile

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nri-blkio/nri-blkio/internal/terminal"
	"github.com/nri-blkio/nri-blkio/policy/quote"
)

// maxRejection bounds the bytes of a rejection, which has text of the file. It is part of reports that are
// written every few seconds.
const maxRejection = 1024

// Rejection returns the reason why the content of the file was rejected, in one line of printable text, or "" if
// that content is in force. A nil Watch, which watches no file, has none. Rejection may be called at any time.
func (w *Watch) Rejection() string {
	if w == nil {
		return ""
	}
	if text := w.rejection.Load(); text != nil {
		return *text
	}
	return ""
}

func (w *Watch) setRejection(err error) {
	if err == nil {
		w.rejection.Store(nil)
		return
	}
	text := quote.Clip(strings.Join(terminal.ErrorLines(err), "; "), maxRejection)
	w.rejection.Store(&text)
}

var rejectedDesc = prometheus.NewDesc("nri_blkio_policy_rejected",
	"1 while the policy file is invalid or cannot be read, and the former policy stays in force.", nil, nil)

var _ prometheus.Collector = (*Watch)(nil)

// Describe is the half of prometheus.Collector that names the metric.
func (w *Watch) Describe(out chan<- *prometheus.Desc) { out <- rejectedDesc }

// Collect is the half of prometheus.Collector that gives its value.
func (w *Watch) Collect(out chan<- prometheus.Metric) {
	value := 0.0
	if w.Rejection() != "" {
		value = 1
	}
	out <- prometheus.MustNewConstMetric(rejectedDesc, prometheus.GaugeValue, value)
}
