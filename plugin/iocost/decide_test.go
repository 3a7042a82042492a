package iocost

import (
	"cmp"
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/diskmodel"
	"github.com/nri-blkio/nri-blkio/policy"
)

var (
	modelA = &blkio.CostModel{Rbps: 1 << 30, RSeqIOPS: 1, RRandIOPS: 2, Wbps: 1 << 29, WSeqIOPS: 3, WRandIOPS: 4}
	modelB = &blkio.CostModel{Rbps: 2 << 30, RSeqIOPS: 1, RRandIOPS: 2, Wbps: 1 << 29, WSeqIOPS: 3, WRandIOPS: 4}
	qosA   = &blkio.CostQOS{RPct: 9500, RLat: 5e6, WPct: 9500, WLat: 10e6, Min: 5000, Max: 15000}
)

// decideCase has the inputs of Decide, and what it returns.
type decideCase struct {
	name   string
	policy *policy.Policy
	disk   Disk
	model  Origin
	qos    Origin
	reason string // "" if io.cost is wanted
}

// rule returns a policy with one rule for all disks.
func rule(weights policy.WeightMode, model *blkio.CostModel, qos *blkio.CostQOS) *policy.Policy {
	p := policy.Default()
	p.Disks = []policy.DiskRule{{Weights: weights, Model: model, QOS: qos}}
	return p
}

func checkDecide(t *testing.T, cases []decideCase) {
	t.Helper()
	for _, tt := range cases {
		t.Run(tt.name, func(t *testing.T) {
			got := Decide(tt.policy, &tt.disk)
			if got.Enabled != (tt.reason == "") || !strings.Contains(got.Reason, tt.reason) || (got.Reason == "") != got.Enabled {
				t.Errorf("enabled %t with the reason %q, want the reason %q", got.Enabled, got.Reason, tt.reason)
			}
			tt.model, tt.qos = cmp.Or(tt.model, FromKernel), cmp.Or(tt.qos, FromKernel)
			if got.ModelOrigin != tt.model || got.QOSOrigin != tt.qos || (got.Model == nil) != (tt.model == FromKernel) || (got.QOS == nil) != (tt.qos == FromKernel) {
				t.Errorf("model from %v and QOS from %v, want from %v and %v: %+v", got.ModelOrigin, got.QOSOrigin, tt.model, tt.qos, got)
			}
			want := *modelA
			if tt.qos == Fixed && tt.model != FromCalibration {
				want = diskmodel.WithHeadroom(want)
			}
			if got.Model != nil && *got.Model != want || got.QOS != nil && tt.qos != Fixed && *got.QOS != *qosA || tt.qos == Fixed && *got.QOS != *fixed(got.Model) {
				t.Errorf("the model or the QOS is not that of its origin: %+v", got)
			}
		})
	}
}

// TestDecide verifies whether io.cost is enabled, and the reason if it is not.
func TestDecide(t *testing.T) {
	observe := policy.Default()
	observe.Mode = policy.ModeObserve
	byRule := func(mode policy.Mode, p policy.Policy) *policy.Policy {
		p.Rules = []policy.Rule{{Mode: mode}}
		return &p
	}
	observedReserve := *observe
	observedReserve.Reserve = 3000
	reserve := policy.Default()
	reserve.Reserve = 3000
	budgets := policy.Default()
	budgets.Budgets = []policy.NamespaceBudget{{Namespaces: []string{"a"}, Weight: 100}}
	observedBudgets := *observe
	observedBudgets.Budgets = budgets.Budgets
	checkDecide(t, []decideCase{
		{name: "a budget of weights", policy: budgets},
		{name: "an observed budget of weights", policy: &observedBudgets, reason: "mode: observe"},
		{name: "no weight", policy: policy.Default(), reason: "no container with a weight"},
		{name: "a weight", policy: policy.Default(), disk: Disk{HasWeights: true}},
		{name: "a reserve", policy: reserve},
		{name: "always", policy: rule(policy.WeightsOn, modelA, nil), model: FromPolicy, qos: Fixed},
		{name: "never", policy: rule(policy.WeightsOff, modelA, nil), disk: Disk{HasWeights: true}, model: FromPolicy, qos: Fixed, reason: "weights: off"},
		{name: "impossible", policy: rule(policy.WeightsOn, nil, nil), disk: Disk{Unsupported: "it is a dm device"}, reason: "it is a dm device"},
		{name: "observed", policy: observe, disk: Disk{HasWeights: true}, reason: "mode: observe"},
		{name: "observed, and a rule enforces", policy: byRule(policy.ModeEnforce, *observe), disk: Disk{HasWeights: true}},
		{name: "observed, and a rule enforces no weight", policy: byRule(policy.ModeEnforce, observedReserve), reason: "mode: observe"},
		{name: "observed, also by rules", policy: byRule(policy.ModeObserve, *observe), disk: Disk{HasWeights: true}, reason: "mode: observe"},
		{name: "a rule observes", policy: byRule(policy.ModeObserve, *policy.Default()), reason: "no container with a weight"},
	})
}

// TestDecideOrigin verifies which origin of a model and of a QOS takes precedence.
func TestDecideOrigin(t *testing.T) {
	checkDecide(t, []decideCase{
		{
			name: "policy before calibration", policy: rule(policy.WeightsOn, modelA, qosA), disk: Disk{Calibration: Known{Model: modelB, QOS: qosA}, Udev: Known{Model: modelB, QOS: qosA}},
			model: FromPolicy, qos: FromPolicy,
		},
		{
			name: "calibration before udev", policy: rule(policy.WeightsOn, nil, nil), disk: Disk{Calibration: Known{Model: modelA}, Udev: Known{Model: modelB, QOS: qosA}},
			model: FromCalibration, qos: Fixed,
		},
		{
			name: "a model of the policy, with the QOS of no other", policy: rule(policy.WeightsOn, modelA, nil), disk: Disk{Calibration: Known{Model: modelB, QOS: qosA}},
			model: FromPolicy, qos: Fixed,
		},
		{
			name: "a QOS of the policy, for any model", policy: rule(policy.WeightsOn, nil, qosA), disk: Disk{Calibration: Known{Model: modelA}},
			model: FromCalibration, qos: FromPolicy,
		},
		{name: "a QOS of the policy, for the kernel's model", policy: rule(policy.WeightsOn, nil, qosA), qos: FromPolicy},
		{name: "udev", policy: rule(policy.WeightsOn, nil, nil), disk: Disk{Udev: Known{Model: modelA}}, model: FromUdev, qos: Fixed},
	})
}

// TestHeadroom verifies that a model with a disk's true figures is not the one in force, unless latency targets lower the rate.
func TestHeadroom(t *testing.T) {
	disk := &blkio.CostModel{Rbps: 60 << 20, RSeqIOPS: 2000, RRandIOPS: 1500, Wbps: 4096, WSeqIOPS: 100, WRandIOPS: 1}
	less := blkio.CostModel{Rbps: 61027123, RSeqIOPS: 1940, RRandIOPS: 1455, Wbps: 4096, WSeqIOPS: 97, WRandIOPS: 1}
	period := &blkio.CostQOS{RLat: 5e6, WLat: 5e6, Min: 10000, Max: 10000}
	for _, tt := range []struct {
		name string
		rule *policy.Policy
		disk Disk
		want blkio.CostModel
	}{
		{"policy", rule(policy.WeightsOn, disk, nil), Disk{}, less},
		{"policy, with a period", rule(policy.WeightsOn, disk, period), Disk{}, less},
		{"policy, with latency targets", rule(policy.WeightsOn, disk, qosA), Disk{}, *disk},
		{"udev", policy.Default(), Disk{Udev: Known{Model: disk}}, less},
		{"udev, with latency targets", policy.Default(), Disk{Udev: Known{Model: disk, QOS: qosA}}, *disk},
		{"calibration", policy.Default(), Disk{Calibration: Known{Model: disk}}, *disk},
	} {
		got := Decide(tt.rule, &tt.disk)
		if err := got.Model.Check(); *got.Model != tt.want || err != nil {
			t.Errorf("%s: the model is %v (%v), want %v", tt.name, got.Model, err, tt.want)
		}
	}
}

// TestPeriod verifies that a slow disk does many operations in one period. This holds for each QOS that this
// program chooses, and for one of the policy without latency targets.
func TestPeriod(t *testing.T) {
	model := func(iops uint64) *blkio.CostModel {
		return &blkio.CostModel{Rbps: 1 << 30, RSeqIOPS: iops, RRandIOPS: iops, Wbps: 1 << 30, WSeqIOPS: iops, WRandIOPS: 2 * iops}
	}
	noTargets := blkio.CostQOS{Min: 5000, Max: 10000}
	for _, tt := range []struct {
		model *blkio.CostModel
		qos   *blkio.CostQOS
		want  string
	}{
		{model(1500), nil, "rpct=0.00 rlat=21993 wpct=0.00 wlat=21993 min=100.00 max=100.00"},
		{model(1500), &noTargets, "rpct=0.00 rlat=21993 wpct=0.00 wlat=21993 min=50.00 max=100.00"},
		{model(100), nil, "rpct=0.00 rlat=250000 wpct=0.00 wlat=250000 min=100.00 max=100.00"},
		{model(150_000), nil, "rpct=0.00 rlat=5000 wpct=0.00 wlat=5000 min=100.00 max=100.00"},
		{nil, &noTargets, "rpct=0.00 rlat=25000 wpct=0.00 wlat=25000 min=50.00 max=100.00"},
		{model(1500), qosA, qosA.String()},
	} {
		p := policy.Default()
		p.Disks = []policy.DiskRule{{Weights: policy.WeightsOn, Model: tt.model, QOS: tt.qos}}
		if got := Decide(p, &Disk{}).QOS.String(); got != tt.want {
			t.Errorf("got  %s\nwant %s", got, tt.want)
		}
	}
	if noTargets.RLat != 0 {
		t.Error("the QOS of the policy was changed")
	}
}

// TestLimits verifies when the model follows the mix.
func TestLimits(t *testing.T) {
	limits := &diskmodel.Limits{Ops: 1500, Bytes: 60 << 20}
	calibrated := Known{Model: modelA, Limits: limits}
	off, fast, model := policy.Default(), policy.Default(), rule(policy.WeightsAuto, modelA, nil)
	off.Disks = []policy.DiskRule{{Follow: policy.FollowOff}}
	fast.Disks = []policy.DiskRule{{QOS: qosA}}
	for _, tt := range []struct {
		policy      *policy.Policy
		calibration Known
		pinned      string // "" if it follows
	}{
		{policy.Default(), calibrated, ""},
		{off, calibrated, "follow: off"},
		{model, calibrated, "only the model of a calibration"},
		{policy.Default(), Known{}, "only the model of a calibration"},
		{policy.Default(), Known{Model: modelA}, "does not show"},
		{fast, calibrated, "qos.max is above 100"},
	} {
		got := Decide(tt.policy, &Disk{HasWeights: true, Calibration: tt.calibration})
		if (got.Limits != nil) != (tt.pinned == "") || !strings.Contains(got.Pinned, tt.pinned) || (got.Pinned == "") != (tt.pinned == "") {
			t.Errorf("limits %+v, pinned: %q, want %q", got.Limits, got.Pinned, tt.pinned)
		}
	}
}
