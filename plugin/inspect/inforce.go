package inspect

import (
	"errors"
	"fmt"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/health"
	"github.com/nri-blkio/nri-blkio/plugin/weights"
	"github.com/nri-blkio/nri-blkio/policy"
)

// Removal is how far a node is with the removal of all that the plugin has written there. An instance in mode observe
// does that.
type Removal struct {
	Limits Part // the limits part
	// InForce has a line for each value of the plugin that the kernel still has: a limit or a weight of a record, a
	// weight above containers, or io.cost.
	InForce []string
}

// IsDone reports whether nothing is in force, and an instance in mode observe keeps it so.
func (r *Removal) IsDone() bool {
	return r.Limits.State == health.Connected && r.Limits.Report.Mode == string(policy.ModeObserve) && len(r.InForce) == 0
}

// Removal reads what is in force on the node. The error is about what could not be read.
func (h *Host) Removal(disks weights.Disks) (Removal, error) {
	limits, partErr := ReadPart(h.StateDir, health.Limits)
	out := Removal{Limits: limits}
	records, recordsErr := Records(h.Cgroups, Filter{})
	errs := []error{partErr, recordsErr}
	exists := diskProbe(h.Sysfs)
	for _, r := range records {
		got := readActual(r, exists)
		if got.err != nil && !errors.Is(got.err, blkio.ErrGone) {
			errs = append(errs, got.err)
		}
		for _, s := range r.Record.Settings {
			if got.values.At(s.Address) == s.Value && s.Value != s.Removal() {
				out.InForce = append(out.InForce, fmt.Sprintf("%s: %s", r.Cgroup.Path(), policy.NewSettings(s).Lines()[0].Text))
			}
		}
	}
	above, err := weights.Clear(h.Cgroups, disks, true)
	for _, step := range above {
		out.InForce = append(out.InForce, "not done: "+step)
	}
	return out, errors.Join(append(errs, err)...)
}
