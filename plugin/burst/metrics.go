package burst

import "github.com/prometheus/client_golang/prometheus"

var limitsDesc = prometheus.NewDesc("nri_blkio_burst_limits", "Limits of running containers and pods that have a burst, by whether it is in force.", []string{"state"}, nil)

// Describe is the half of prometheus.Collector that names the metrics.
func (k *Keeper) Describe(out chan<- *prometheus.Desc) { prometheus.DescribeByCollect(k, out) }

// Collect implements prometheus.Collector.
func (k *Keeper) Collect(out chan<- prometheus.Metric) {
	states := map[string]float64{"raised": 0, "lowered": 0, "no_credits": 0}
	for _, s := range k.Report() {
		switch {
		case s.Raised:
			states["raised"]++
		case s.Credits < s.above():
			states["no_credits"]++
		default:
			states["lowered"]++
		}
	}
	for state, count := range states {
		out <- prometheus.MustNewConstMetric(limitsDesc, prometheus.GaugeValue, count, state)
	}
}
