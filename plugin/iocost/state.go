package iocost

import (
	"cmp"
	"slices"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/blkio/diskmodel"
)

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
