// Package iocost enables io.cost on disks, so that weights have an effect there, and disables it again. It
// never changes settings of another program. On disks that the operator names, it sets the scheduler bfq instead.
package iocost

import (
	"cmp"
	"slices"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/blkio/diskmodel"
	"github.com/nri-blkio/nri-blkio/policy"
)

// Origin is where a model or a QOS comes from.
type Origin string

// The origins. The first one that has a model counts.
const (
	FromPolicy      Origin = "policy"
	FromCalibration Origin = "calibration"
	FromUdev        Origin = "udev"
	FromKernel      Origin = "kernel" // a guess by the kind of the disk
	// Fixed is the origin of the QOS for a model without a QOS of its own.
	Fixed Origin = "fixed"
	// Foreign is the origin of settings of another program.
	Foreign Origin = "foreign"
)

// fixed returns a QOS with which io.cost gives out exactly the rates of a model. The kernel's own QOS lowers
// the rate only when requests wait for a place in the disk's queue. It raises the rate while a container waits
// and a quarter of the requests take less than 25 ms. A throttled volume of a cloud can meet that at its limit,
// and weights have no effect then.
//
// The latency targets are compared with nothing, as their percentiles are 0. They give io.cost its period:
// without any it is 1 ms.
//
// Source: autop, ioc_timer_fn and ioc_refresh_period_us in block/blk-iocost.c.
func fixed(m *blkio.CostModel) *blkio.CostQOS {
	target := 25 * time.Millisecond // the kernel's own for SSDs, where the model is the kernel's as well
	if m != nil {
		target = diskmodel.Period(*m) / 2
	}
	return &blkio.CostQOS{RLat: target, WLat: target, Min: 10000, Max: 10000}
}

// withPeriod returns a QOS with the period of a fixed one, if it has no latency target.
func withPeriod(q, fixed *blkio.CostQOS) *blkio.CostQOS {
	if q == nil || q.RLat != 0 || q.WLat != 0 {
		return q
	}
	out := *q
	out.RLat, out.WLat = fixed.RLat, fixed.WLat
	return &out
}

// Known has the values of a disk from one origin; nil if it has none.
type Known struct {
	Model *blkio.CostModel
	QOS   *blkio.CostQOS
	// Limits are the limits that a calibration has shown, nil if it has shown none.
	Limits *diskmodel.Limits
}

// Disk has the facts about a disk that decide on io.cost.
type Disk struct {
	blkio.Disk
	Facts policy.Disk
	// Identity differs between disks that have the same device number one after the other; "" if
	// it is unknown.
	Identity string
	// Unsupported is why the disk cannot have io.cost, "" if it can.
	Unsupported string
	Scheduler   string // in force
	LowLatency  string // of bfq, "1" for a new one
	// HasWeights is true while a container with a weight uses the disk.
	HasWeights  bool
	Calibration Known
	Udev        Known
}

// Setup is the wanted setup of io.cost on a disk, or of bfq.
type Setup struct {
	Disk blkio.Disk
	// Identity, Scheduler and LowLatency are as in Disk.
	Identity, Scheduler, LowLatency string
	// By is BFQ where the operator has chosen bfq in place of io.cost, otherwise "". With bfq, Enabled is about bfq, and Model is nil.
	By string
	// Below are the disks that the disk is made of. io.cost works on these. The caller of Decide sets it.
	Below   []blkio.Disk
	Enabled bool
	// Model and QOS are nil for those of the kernel.
	Model       *blkio.CostModel
	QOS         *blkio.CostQOS
	ModelOrigin Origin
	QOSOrigin   Origin
	// Limits are those towards which the model follows the mix. They are nil if it stays, and Pinned is why.
	Limits *diskmodel.Limits
	Pinned string
	// Reason is why io.cost is not enabled, "" if it is. Chosen is true if the operator has
	// decided so.
	Reason string
	Chosen bool
}

// Decide returns the wanted setup for a disk. It is pure.
func Decide(p *policy.Policy, d *Disk) Setup {
	rule := p.DiskRule(d.Facts)
	s := Setup{Disk: d.Disk, Identity: d.Identity, Scheduler: d.Scheduler, LowLatency: d.LowLatency}
	if rule.Weights == policy.WeightsBFQ && d.Unsupported == "" {
		s.By = BFQ
	}
	switch {
	case d.Unsupported != "":
		s.Reason = d.Unsupported
	case rule.Weights == policy.WeightsOff:
		s.Reason, s.Chosen = "the node policy has weights: off for this disk", true
	case rule.Weights == policy.WeightsAuto && !d.HasWeights && p.Reserve == 0 && !p.BoundsWeights():
		s.Reason = "no container with a weight uses the disk"
	case p.Mode == policy.ModeObserve && !d.HasWeights, !p.Enforces(): // a rule can enforce weights
		s.Reason, s.Chosen = "the node policy has mode: observe", !p.Enforces()
	default:
		s.Enabled = true
	}
	if s.By == BFQ {
		return s
	}
	s.chooseCosts(&rule, d)
	s.Limits, s.Pinned = limits(&rule, &s, d.Calibration.Limits)
	return s
}

// limits returns the limits towards which the model of a disk follows the mix, or why it does not.
func limits(rule *policy.DiskRule, s *Setup, calibrated *diskmodel.Limits) (_ *diskmodel.Limits, pinned string) {
	switch {
	case rule.Follow == policy.FollowOff:
		return nil, "the node policy has follow: off for this disk"
	case s.ModelOrigin != FromCalibration:
		return nil, "only the model of a calibration follows the mix"
	case calibrated == nil:
		return nil, "the calibration does not show a limit of operations and one of bytes"
	case s.QOS.Max > 10000:
		return nil, "qos.max is above 100"
	}
	return calibrated, ""
}

// chooseCosts sets the model and the QOS, and their origins.
func (s *Setup) chooseCosts(rule *policy.DiskRule, d *Disk) {
	s.ModelOrigin, s.QOSOrigin = FromKernel, FromKernel
	for _, known := range []struct {
		Known
		origin Origin
	}{{Known{Model: rule.Model, QOS: rule.QOS}, FromPolicy}, {d.Calibration, FromCalibration}, {d.Udev, FromUdev}} {
		if known.Model == nil {
			continue
		}
		s.Model, s.ModelOrigin = known.Model, known.origin
		s.QOS, s.QOSOrigin = known.QOS, known.origin
		break
	}
	if rule.QOS != nil { // another one belongs to its own model
		s.QOS, s.QOSOrigin = rule.QOS, FromPolicy
	}
	s.addHeadroom()
	if s.Model != nil && s.QOS == nil {
		s.QOS, s.QOSOrigin = fixed(s.Model), Fixed
	}
	s.QOS = withPeriod(s.QOS, fixed(s.Model))
}

// addHeadroom leaves the disk's own queue room to empty itself, if nothing but the model holds io.cost's rate below that of the
// disk. The model of a calibration has the headroom already, and one that a policy has from calibrate has a QOS with percentiles.
func (s *Setup) addHeadroom() {
	if s.Model == nil || s.ModelOrigin == FromCalibration || s.QOS != nil && (s.QOS.RPct > 0 || s.QOS.WPct > 0) {
		return
	}
	m := diskmodel.WithHeadroom(*s.Model)
	s.Model = &m
}

// State is the result of a Setup.
type State struct {
	Setup
	// Works is true if io.cost is enabled on the disk, by this program or another one. By BFQ it is true if that divides the disk.
	Works bool
	// Foreign names the control files that another program has set, which stay as they are.
	Foreign []string
	Err     error
	// KernelModel and KernelQOS are those that stay because this program sets no other ones:
	// another program's, or the kernel's own. They are nil if io.cost was never set up on the
	// disk, or if the kernel's are unknown until this program's are removed.
	KernelModel *blkio.CostModel
	KernelQOS   *blkio.CostQOS
}

// IsForeign reports whether another program has set a control file for the disk.
func (s *State) IsForeign(file string) bool { return slices.Contains(s.Foreign, file) }

// CostModel returns the model that io.cost works with, or would work with if it was enabled, and
// its origin. It is nil if only the kernel has one, and io.cost was never set up on the disk.
func (s *State) CostModel() (*blkio.CostModel, Origin) {
	return inForce(s.IsForeign(blkio.IOCostModel), s.Model, s.KernelModel, s.ModelOrigin)
}

// CostQOS is CostModel for the QOS.
func (s *State) CostQOS() (*blkio.CostQOS, Origin) {
	return inForce(s.IsForeign(blkio.IOCostQOS), s.QOS, s.KernelQOS, s.QOSOrigin)
}

func inForce[T any](isForeign bool, wanted, kernels *T, from Origin) (*T, Origin) {
	if isForeign {
		return kernels, Foreign
	}
	return cmp.Or(wanted, kernels), from
}

// HasShortPeriod reports whether the disk does too few operations in a period of io.cost for weights
// to have an effect: less than a quarter of [diskmodel.Period]. With 15 operations weights still
// had their effect.
func (s *State) HasShortPeriod() bool {
	model, _ := s.CostModel()
	qos, _ := s.CostQOS()
	return model != nil && qos != nil && qos.Period() < diskmodel.Period(*model)/4
}

// Inspect returns the result of Apply if it removed nothing. It changes nothing. Works is true for the disks
// with io.cost enabled now.
func Inspect(cgroups *cgroupfs.Hierarchy, wants []Setup) ([]State, error) {
	a, err := read(cgroups, nil, nil)
	if err != nil {
		return nil, err
	}
	a.dryRun = true
	states := make([]State, len(wants))
	for i, want := range wants {
		if err := a.identify(&want); err != nil {
			return nil, err
		}
		states[i] = a.decide(want)
	}
	return states, a.unsupported
}

// decide returns the wanted state of a disk, with the settings of other programs.
func (a *actual) decide(want Setup) State {
	dev := want.Disk.Dev
	own, model, qos := a.owned[dev], a.models[dev], a.qos[dev]
	if want.By == BFQ {
		return State{Setup: want, Works: want.Enabled && want.Scheduler == BFQ}
	}
	s := State{Setup: want, Works: qos.Enabled}
	if own.Model == "" && model.IsUser {
		s.Foreign = append(s.Foreign, blkio.IOCostModel)
	}
	if own.QOS == "" && (qos.IsUser || qos.Enabled) {
		s.Foreign = append(s.Foreign, blkio.IOCostQOS)
	}
	if own.Model == "" && model.Model != (blkio.CostModel{}) {
		s.KernelModel = &model.Model
	}
	if (own.QOS == "" || !qos.IsUser) && qos.QOS != (blkio.CostQOS{}) {
		s.KernelQOS = &qos.QOS
	}
	if s.Enabled && s.IsForeign(blkio.IOCostQOS) && !s.Works {
		s.Enabled, s.Reason = false, "another program has set io.cost.qos with enable=0"
	}
	return s
}

// lines returns the lines for a disk, without the device. Without a model the kernel's own stays, and the
// settings of another program stay as well.
func (s *State) lines() (out owned) {
	out.Disk = s.Identity
	if s.Model != nil && !s.IsForeign(blkio.IOCostModel) {
		out.Model = "ctrl=user model=linear " + s.Model.String()
	}
	switch {
	case s.IsForeign(blkio.IOCostQOS):
	case s.QOS != nil:
		out.QOS = "enable=1 ctrl=user " + s.QOS.String()
	default:
		out.QOS = "enable=1 ctrl=auto"
	}
	return out
}
