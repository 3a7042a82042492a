package inspect

import (
	"context"
	"errors"
	"slices"

	"github.com/nri-blkio/nri-blkio/plugin/repair"
)

// Status is the report about a node's limits.
type Status struct {
	Dead        []DeadRow      `json:"dead"`
	DeadNote    string         `json:"deadNote,omitempty"` // how Dead was found where the kernel does not list it
	Notes       []Note         `json:"notes"`
	Orphans     []Orphan       `json:"orphans"`
	OrphansNote string         `json:"orphansNote,omitempty"` // why there may be more orphans
	Parts       []Part         `json:"parts"`
	SharedDisks []SharedDisk   `json:"sharedDisks"`
	Values      []Value        `json:"values"`
	Files       *repair.Report `json:"writeback"` // nil if the writeback part does not run
}

// Status reads the state of the parts, of all pods or of one. The error is that of records and
// values which could not be read; the report has the others.
func (h *Host) Status(ctx context.Context, filter Filter) (Status, error) {
	records, recordsErr := Records(h.Cgroups, filter)
	values, valuesErr := Values(records, h.Sysfs)
	files, filesErr := readFiles(h.StateDir, filter)
	parts, partsErr := readParts(h.StateDir, files)
	shared, sharedErr := SharedDisksOf(values, h.Sysfs)
	dead := FindDead(h.Cgroups, h.Sysfs, h.Debugfs, records, filter.Name == "")
	s := Status{
		Dead: dead.Rows, DeadNote: dead.Note, Notes: Notes(records), Orphans: []Orphan{},
		Parts: parts, SharedDisks: shared, Values: values, Files: files,
	}
	orphansErr := h.StorageErr
	if h.Storage != nil {
		s.Orphans, orphansErr = h.Orphans(ctx, records, filter)
	}
	if orphansErr != nil {
		s.OrphansNote = orphansErr.Error()
	}
	return s, errors.Join(recordsErr, valuesErr, filesErr, partsErr, sharedErr)
}

// Enforces reports whether the limits that a new container requests are enforced.
func (s *Status) Enforces() bool { return enforces(s.Parts) }

// HasFindings reports whether a requested value is not in force, or the values of new containers
// are not enforced. The choices of an operator are findings only if strict is true: an observed or
// a cleared value, and a node without a connected limits part on which no limit is requested.
func (s *Status) HasFindings(strict bool) bool {
	right := []string{ValueOK, ValueCleared, ValueObserved}
	if strict {
		right = right[:1]
	}
	return !s.Enforces() && (strict || len(s.Values) > 0) ||
		slices.ContainsFunc(s.Values, func(v Value) bool { return !slices.Contains(right, v.State) })
}
