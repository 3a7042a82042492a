package repair

import (
	"fmt"

	"github.com/nri-blkio/nri-blkio/policy"
)

// gate returns the reason why the policy "auto" moves no files on this kernel, or nil.
func (r *Repairer) gate() error {
	w := r.policy.Load().Writeback
	if w.Repair != policy.RepairAuto || w.Repair.Moves(r.kernel.Corrected()) {
		return nil
	}
	return fmt.Errorf("%s; writeback.repair: true in the policy overrides this", r.kernel)
}

// lateReason is what holds where a program in the kernel must not use a ring buffer.
const lateReason = "Files of containers that write little and sync often are moved late: " +
	"this kernel has PREEMPT_RT, and its BPF ring buffers can sleep (CVE-2024-50138)"

// mode returns the mode of a report, and the reason if files are not moved, or late.
func (r *Repairer) mode() (mode, reason string) {
	p := r.policy.Load()
	if p.Mode == policy.ModeObserve || p.Writeback.Repair == policy.RepairOff {
		return ModeObserve, ""
	}
	if err := r.gate(); err != nil {
		return ModeGated, err.Error()
	}
	return ModeRepair, r.late
}
