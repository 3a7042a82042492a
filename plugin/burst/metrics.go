package burst

import "github.com/prometheus/client_golang/prometheus"

var (
	limitsDesc = prometheus.NewDesc("nri_blkio_burst_limits", "Limits of running containers and pods that have a burst, by whether it is in force.", []string{"state"}, nil)
	emptyDesc  = prometheus.NewDesc("nri_blkio_burst_limits_without_credits", "Limits with a burst whose owners have no credits for a second of it.", nil, nil)
)

// Describe is the half of prometheus.Collector that names the metrics.
func (k *Keeper) Describe(out chan<- *prometheus.Desc) { prometheus.DescribeByCollect(k, out) }

// Collect implements prometheus.Collector.
func (k *Keeper) Collect(out chan<- prometheus.Metric) {
	var states [2]float64
	empty := 0.0
	for _, s := range k.Report() {
		if s.Raised {
			states[1]++
		} else {
			states[0]++
		}
		if s.Credits < s.above() {
			empty++
		}
	}
	for i, state := range []string{"lowered", "raised"} {
		out <- prometheus.MustNewConstMetric(limitsDesc, prometheus.GaugeValue, states[i], state)
	}
	out <- prometheus.MustNewConstMetric(emptyDesc, prometheus.GaugeValue, empty)
}
