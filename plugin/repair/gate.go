package repair

import (
	"fmt"
	"sync/atomic"

	"github.com/nri-blkio/nri-blkio/blkio/kernel"
	"github.com/nri-blkio/nri-blkio/policy"
)

// gate decides whether files are moved, by the policy and the kernel.
type gate struct {
	policy atomic.Pointer[policy.Policy]
	kernel kernel.Verdict
	// rejected returns the reason why the policy file was rejected, or "". It may be nil.
	rejected func() string
}

// rejection returns the reason why a newer policy than that of the gate was rejected, or "".
func (g *gate) rejection() string {
	if g.rejected == nil {
		return ""
	}
	return g.rejected()
}

// opens reports whether files may be moved.
func (g *gate) opens() bool {
	p := g.policy.Load()
	return p.Enforces() && p.Writeback.Repair.Moves(g.kernel.Corrected())
}

// reason returns the reason why the policy "auto" moves no files on this kernel, or nil.
func (g *gate) reason() error {
	p := g.policy.Load()
	if p.Writeback.Repair != policy.RepairAuto || p.Writeback.Repair.Moves(g.kernel.Corrected()) {
		return nil
	}
	return fmt.Errorf("%s; writeback.repair: true in the policy overrides this", g.kernel)
}

// mode returns the mode of a report, and the reason if the kernel keeps files from being moved.
func (g *gate) mode() (mode, reason string) {
	p := g.policy.Load()
	if !p.Enforces() || p.Writeback.Repair == policy.RepairOff {
		return ModeObserve, ""
	}
	if err := g.reason(); err != nil {
		return ModeGated, err.Error()
	}
	return ModeRepair, ""
}
