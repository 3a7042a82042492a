package weights

import (
	"cmp"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nri-blkio/nri-blkio/plugin/health"
	"github.com/nri-blkio/nri-blkio/plugin/iocost"
)

// Collector gives the metrics of a report of weights.
type Collector struct {
	Report func() *health.Weights
}

var (
	enabledDesc = desc("iocost_enabled", "1 while io.cost is enabled on the disk, by this program or another one.", "disk")
	bfqDesc     = desc("bfq_enabled", "1 while bfq divides a disk that the node policy gives to it, 0 while it does not.", "disk")
	vrateDesc   = desc("iocost_vrate_ratio", "Rate at which io.cost gives out cost; 1 is the rate of the model.", "disk")
	movedDesc   = desc("iocost_model_moved", "1 while the model of io.cost is moved towards the limits of the disk, 0 while a model that follows the mix is the safe one.", "disk")
	weightDesc  = desc("weight", "Weight of a running container, or of a pod as a whole, on a disk.", shareLabels...)
	budgetDesc  = desc("weight_budget_ratio", "Factor by which the budget of a namespace scales the weights of its pods on a disk; 1 within the budget.", "namespace", "disk")
	keptDesc    = desc("guarantee_kept", "1 while the guarantee of a namespace or class is kept on a disk that its pods use, 0 while it is not.", "namespace", "class", "disk")
	leftOutDesc = desc("weights_left_out", "Weights that the metrics of weights leave out, because there are too many.")
	shareDesc   = desc("weight_share_ratio", "Share of the disk that the weight represents now; 0 if it has no effect.", shareLabels...)
)

// noDisk stands for the disk of a weight that applies to none: an empty label would be the same as a missing
// one.
const noDisk = "none"

var shareLabels = []string{"namespace", "pod", "container", "disk"}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("nri_blkio_"+name, help, labels, nil)
}

// Describe is the half of prometheus.Collector that names the metrics.
func (c Collector) Describe(out chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, out) }

// Collect implements prometheus.Collector. Two metrics with the same labels would make the whole page an error,
// so only the first one is returned. Weights without an effect come first in a report.
func (c Collector) Collect(out chan<- prometheus.Metric) {
	given := map[sample]bool{}
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		s := sample{desc: d}
		for i, l := range labels {
			labels[i] = strings.ToValidUTF8(l, "?") // another label value is an error
			s.labels[i] = labels[i]
		}
		if given[s] {
			return
		}
		given[s] = true
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	r := c.Report()
	for _, d := range r.Disks {
		enabled := 0.0
		if d.Enabled {
			enabled = 1
		}
		if d.By == iocost.BFQ {
			gauge(bfqDesc, enabled, d.Disk)
			continue
		}
		if d.Enabled {
			gauge(vrateDesc, d.Vrate/100, d.Disk)
		}
		gauge(enabledDesc, enabled, d.Disk)
		if f := d.Follow; f != nil && f.State != health.ModelPinned {
			moved := 0.0
			if f.Model != "" {
				moved = 1
			}
			gauge(movedDesc, moved, d.Disk)
		}
	}
	gauge(leftOutDesc, float64(r.SharesLeftOut))
	for i := range min(len(r.Budgets), maxShares) {
		switch b := &r.Budgets[i]; {
		case b.Key != health.KeyGuarantee:
			gauge(budgetDesc, b.Factor, b.Namespace, b.Disk)
		case b.Reason == "":
			gauge(keptDesc, 1, b.Namespace, b.Class, b.Disk)
		default:
			gauge(keptDesc, 0, b.Namespace, b.Class, b.Disk)
		}
	}
	for _, s := range r.Shares {
		disk := cmp.Or(s.Disk, noDisk)
		gauge(weightDesc, float64(s.Weight), s.Namespace, s.Pod, s.Container, disk)
		gauge(shareDesc, s.Share, s.Namespace, s.Pod, s.Container, disk)
	}
}

// sample identifies a metric.
type sample struct {
	desc   *prometheus.Desc
	labels [4]string
}
