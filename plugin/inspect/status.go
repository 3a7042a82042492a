package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/health"
	"github.com/nri-blkio/nri-blkio/plugin/repair"
	"github.com/nri-blkio/nri-blkio/plugin/weights"
	"github.com/nri-blkio/nri-blkio/policy"
)

// Status is the report about a node's limits.
type Status struct {
	Dead        []DeadRow `json:"dead"`
	Notes       []Note    `json:"notes"`
	Orphans     []Orphan  `json:"orphans"`
	OrphansNote string    `json:"orphansNote,omitempty"` // why there may be more orphans
	Parts       []Part    `json:"parts"`
	Values      []Value   `json:"values"`
	Reported
}

// Reported has the reports that only a running part of the plugin has.
type Reported struct {
	Weights *health.Weights `json:"weights"`           // nil if the limits part does not run
	Budgets *health.Budgets `json:"budgets,omitempty"` // nil if the limits part does not run, and without budgets
	Files   *repair.Report  `json:"writeback"`         // nil if the writeback part does not run
}

// Status reads the state of the parts, and of the selected pods. Values that are not in force come first. The error has those of unreadable records and
// values; the report has the others.
func (h *Host) Status(ctx context.Context, filter Filter) (Status, error) {
	records, recordsErr := Records(h.Cgroups, filter)
	values, valuesErr := Values(records, h.Sysfs)
	burstsErr := h.addBursts(values)
	slices.SortStableFunc(values, func(a, b Value) int { return cmp.Compare(a.rank(), b.rank()) })
	files, filesErr := readFiles(h.StateDir, filter)
	parts, partsErr := readParts(h.StateDir, files)
	limits := limitsReport(parts)
	s := Status{
		Dead: FindDead(records, h.DiskName), Notes: Notes(records), Orphans: []Orphan{},
		Parts: parts, Values: values,
		Reported: Reported{Weights: weightsOf(limits, filter), Budgets: budgetsOf(limits, filter), Files: files},
	}
	orphansErr := h.StorageErr
	if h.Storage != nil {
		s.Orphans, orphansErr = h.Orphans(ctx, records, filter)
	}
	if orphansErr != nil {
		s.OrphansNote = orphansErr.Error()
	}
	return s, errors.Join(recordsErr, valuesErr, burstsErr, filesErr, partsErr)
}

// limitsReport returns what the limits part reports, an empty report if it does not run.
func limitsReport(parts []Part) *health.Report {
	for _, p := range parts {
		if p.Part == health.Limits && p.Report != nil {
			return p.Report
		}
	}
	return &health.Report{}
}

// weightsOf returns the report on weights, with the shares of the selected pods.
func weightsOf(r *health.Report, filter Filter) *health.Weights {
	if r.Weights == nil {
		return r.Weights
	}
	out := *r.Weights
	out.Shares = slices.DeleteFunc(slices.Clone(out.Shares), func(s health.Share) bool { return !filter.Matches(s.Namespace, s.Pod) })
	return &out
}

// budgetsOf returns the report on budgets. With a filter, it has the sums of its namespace.
func budgetsOf(r *health.Report, filter Filter) *health.Budgets {
	if r.Budgets == nil || filter.Namespace == "" {
		return r.Budgets
	}
	out := *r.Budgets
	out.Sums = slices.DeleteFunc(slices.Clone(out.Sums), func(s health.BudgetSum) bool { return s.Class == "" && s.Namespace != filter.Namespace })
	return &out
}

// Enforces reports whether the limits that a new container requests are enforced.
func (s *Status) Enforces() bool {
	return slices.ContainsFunc(s.Parts, func(p Part) bool { return p.Part == health.Limits && p.State == health.Connected })
}

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
