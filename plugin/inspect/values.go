package inspect

import (
	"errors"
	"maps"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// Values compares the records with the kernel. Values that cannot be read are in the error,
// and their rows have it as well.
func Values(records []Recorded, sys storage.Sysfs) ([]Value, error) {
	exists := diskProbe(sys)
	values := []Value{}
	var errs []error
	for _, r := range records {
		got := readActual(r, exists)
		values = append(values, valuesOf(r, got)...)
		if got.err != nil && !errors.Is(got.err, blkio.ErrGone) {
			errs = append(errs, got.err)
		}
	}
	return values, errors.Join(errs...)
}

// Value is one requested value of one cgroup.
type Value struct {
	Subject
	Disk    string        `json:"disk,omitempty"`
	Dev     string        `json:"dev,omitempty"`
	Key     string        `json:"key,omitempty"` // of io.max, or "weight"
	Asked   string        `json:"asked,omitempty"`
	InForce string        `json:"inForce,omitempty"`
	Used    *float64      `json:"used,omitempty"` // part of the limit in force; nil without one, and if it was not measured
	Source  policy.Source `json:"source"`
	State   string        `json:"state"`
	Burst   *Burst        `json:"burst,omitempty"` // nil without one
	Error   string        `json:"error,omitempty"`
}

// Subject is the container or pod that a cgroup belongs to.
type Subject struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	UID       string `json:"uid"`
	Container string `json:"container,omitempty"` // "": the pod's own cgroup
	Cgroup    string `json:"cgroup"`
}

// The states of a value.
const (
	ValueOK       = "ok"
	ValueDrift    = "drift"
	ValueMissing  = "missing"
	ValueCleared  = "cleared"
	ValueObserved = "observed"
	ValueError    = "error"
)

// actual has the kernel's values for one cgroup.
type actual struct {
	values blkio.Values
	gone   map[blkio.Dev]bool // disks that do not exist (any more)
	err    error              // of reading the above
}

func readActual(r Recorded, exists func(blkio.Dev) bool) actual {
	got := actual{values: blkio.Values{}, gone: map[blkio.Dev]bool{}}
	for _, file := range []string{blkio.IOMax, blkio.IOWeight} {
		settings := r.Record.Settings.In(file)
		if len(settings) == 0 || got.err != nil {
			continue
		}
		var values blkio.Values
		values, got.err = r.Cgroup.ReadValues(file)
		maps.Copy(got.values, values)
		for _, s := range settings {
			got.gone[s.Dev] = s.Key.HasDev() && !exists(s.Dev)
		}
	}
	return got
}

// diskProbe reports whether a disk exists. When that cannot be read it does: the
// kernel's io.max has the last word.
func diskProbe(sys storage.Sysfs) func(blkio.Dev) bool {
	return func(dev blkio.Dev) bool {
		_, err := sys.WholeDisk(dev)
		return !errors.Is(err, blkio.ErrNoDevice)
	}
}

// valuesOf compares a record with the kernel's values.
func valuesOf(r Recorded, got actual) []Value {
	rec := r.Record
	base := Value{Subject: Subject{
		Namespace: rec.Namespace, Pod: rec.Pod, UID: rec.UID, Container: rec.Container, Cgroup: r.Cgroup.Path(),
	}}
	var rows []Value
	for _, s := range rec.Settings {
		rows = append(rows, settingValue(base, rec, s, got))
	}
	if rec.Error != "" {
		row := base
		row.State, row.Error = ValueError, rec.Error
		rows = append(rows, row)
	}
	return rows
}

func settingValue(row Value, rec *record.Record, s policy.Setting, got actual) Value {
	row.Key, row.Source, row.Asked = s.Key.String(), s.Source, annotation.FormatAmount(s.Key, s.Amount)
	if s.Key.HasDev() {
		row.Disk, row.Dev = rec.Disks[s.Dev], s.Dev.String()
	}
	if s.Key == blkio.Weight {
		row.Key = "weight"
	}
	if got.err != nil {
		row.State, row.Error = ValueError, "the kernel's value cannot be read"
		return row
	}
	now := got.values.At(s.Address)
	row.InForce = annotation.FormatAmount(s.Key, now.Amount)
	row.State = state(rec, now == s.Value, s.Key.IsRate() && !now.IsLimit())
	if row.State == ValueMissing && got.gone[s.Dev] {
		row.Error = "the disk was removed"
	}
	return row
}

func state(rec *record.Record, equal, unlimited bool) string {
	switch {
	case rec.Observed:
		return ValueObserved
	case rec.Cleared:
		return ValueCleared
	case equal:
		return ValueOK
	case unlimited:
		return ValueMissing
	}
	return ValueDrift
}

// Note is a warning or a skipped target, which belongs to no single value.
type Note struct {
	Kind      string `json:"kind"` // "warning" or "skipped"
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	Container string `json:"container,omitempty"`
	Text      string `json:"text"`
}

// Notes returns the warnings and the skipped targets of the records.
func Notes(records []Recorded) []Note {
	out := []Note{}
	for _, r := range records {
		add := func(kind string, lines []string) {
			for _, l := range lines {
				out = append(out, Note{kind, r.Record.Namespace, r.Record.Pod, r.Record.Container, l})
			}
		}
		add("warning", r.Record.Warnings)
		add("skipped", r.Record.Skipped)
	}
	return out
}

// SharedDisksOf returns the disks with a limit in force on which other devices are stored.
func SharedDisksOf(values []Value, sys storage.Sysfs) ([]SharedDisk, error) {
	limited := map[string]bool{}
	for _, v := range values {
		if v.Disk != "" && v.State != ValueObserved && v.State != ValueCleared {
			limited[v.Disk] = true
		}
	}
	if len(limited) == 0 {
		return []SharedDisk{}, nil
	}
	stack, err := sys.Stack()
	return SharedDisks(limited, stack), err
}
