package weights

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/nri-blkio/nri-blkio/plugin/health"
)

// gather returns the values of the metrics of a report, by name and labels. A metric that the
// registry refuses fails the test, as it would fail a scrape.
func gather(t *testing.T, report *health.Weights) map[string]float64 {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	if err := r.Register(Collector{Report: func() *health.Weights { return report }}); err != nil {
		t.Fatal(err)
	}
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetName() + "=" + l.GetValue()
			}
			got[name] = m.GetGauge().GetValue()
		}
	}
	return got
}

// TestCollectorUnique verifies that rows with the same names are one metric. They are in the report if a pod is
// created again under its name while the former one ends. A name that is no text is no error.
func TestCollectorUnique(t *testing.T) {
	got := gather(t, &health.Weights{
		Disks: []health.CostDisk{{Disk: "vda"}, {Disk: "vda", Enabled: true}},
		Shares: []health.Share{
			{Namespace: "prod", Pod: "db-0", Container: "db", Disk: "vda", Weight: 50, Reason: notEnabled},
			{Namespace: "prod", Pod: "db-0", Container: "db", Disk: "vda", Weight: 300, Share: 0.25},
			{Namespace: "prod", Pod: "db-\xff", Disk: "vda", Weight: 70},
			{Namespace: "prod", Pod: "db-?", Disk: "vda", Weight: 80},
			{Namespace: "prod", Pod: "mem", Container: "c", Weight: 90, Reason: "it uses no local disk"},
		},
	})
	want := map[string]float64{
		"nri_blkio_iocost_enabled disk=vda":                                          0,
		"nri_blkio_iocost_vrate_ratio disk=vda":                                      0,
		"nri_blkio_weights_left_out":                                                 0,
		"nri_blkio_weight container=db disk=vda namespace=prod pod=db-0":             50,
		"nri_blkio_weight_share_ratio container=db disk=vda namespace=prod pod=db-0": 0,
		"nri_blkio_weight container=c disk=none namespace=prod pod=mem":              90,
		"nri_blkio_weight_share_ratio container=c disk=none namespace=prod pod=mem":  0,
		"nri_blkio_weight container= disk=vda namespace=prod pod=db-?":               70,
		"nri_blkio_weight_share_ratio container= disk=vda namespace=prod pod=db-?":   0,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestCollector(t *testing.T) {
	got := gather(t, &health.Weights{
		Disks: []health.CostDisk{
			{Disk: "vda"},
			{Disk: "vdb", Enabled: true, Vrate: 87.5, Follow: &health.Follow{State: "moved", Model: "m"}},
			{Disk: "vdc", Enabled: true, Follow: &health.Follow{State: health.ModelPinned}},
			{Disk: "vde", By: "bfq", Enabled: true},
			{Disk: "vdf", By: "bfq"},
			{Disk: "vdd", Enabled: true, Follow: &health.Follow{State: "safe"}},
		},
		Shares: []health.Share{
			{Namespace: "prod", Pod: "db-0", Container: "db", Disk: "vda", Weight: 300, Reason: notEnabled},
			{Namespace: "prod", Pod: "db-0", Disk: "vdb", Weight: 50, Share: 0.25},
		},
		SharesLeftOut: 7,
		Budgets: []health.BudgetSum{
			{Namespace: "prod", Disk: "vda", Key: health.KeyGuarantee, Reason: notEnabled},
			{Namespace: "prod", Disk: "vdb", Key: "weight", Factor: 0.5},
			{Namespace: "prod", Disk: "vdb", Key: health.KeyGuarantee, Factor: 0.5},
			{Class: "prod", Disk: "vdb", Key: health.KeyGuarantee, Factor: 0.5, Reason: notEnabled},
		},
	})
	want := map[string]float64{
		"nri_blkio_iocost_enabled disk=vda":                                          0,
		"nri_blkio_iocost_enabled disk=vdb":                                          1,
		"nri_blkio_iocost_enabled disk=vdc":                                          1,
		"nri_blkio_iocost_enabled disk=vdd":                                          1,
		"nri_blkio_bfq_enabled disk=vde":                                             1,
		"nri_blkio_bfq_enabled disk=vdf":                                             0,
		"nri_blkio_iocost_model_moved disk=vdb":                                      1,
		"nri_blkio_iocost_model_moved disk=vdd":                                      0,
		"nri_blkio_iocost_vrate_ratio disk=vdc":                                      0,
		"nri_blkio_iocost_vrate_ratio disk=vdd":                                      0,
		"nri_blkio_iocost_vrate_ratio disk=vdb":                                      0.875,
		"nri_blkio_weights_left_out":                                                 7,
		"nri_blkio_weight_budget_ratio disk=vdb namespace=prod":                      0.5,
		"nri_blkio_guarantee_kept class= disk=vda namespace=prod":                    0,
		"nri_blkio_guarantee_kept class= disk=vdb namespace=prod":                    1,
		"nri_blkio_guarantee_kept class=prod disk=vdb namespace=":                    0,
		"nri_blkio_weight container=db disk=vda namespace=prod pod=db-0":             300,
		"nri_blkio_weight container= disk=vdb namespace=prod pod=db-0":               50,
		"nri_blkio_weight_share_ratio container=db disk=vda namespace=prod pod=db-0": 0,
		"nri_blkio_weight_share_ratio container= disk=vdb namespace=prod pod=db-0":   0.25,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
