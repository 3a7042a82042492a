package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
	"github.com/nri-blkio/nri-blkio/blkio/wait"
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

// Burst is the burst of a limit.
type Burst struct {
	Burst  string `json:"burst"` // RATE/DURATION
	Raised bool   `json:"raised"`
	// Credits are those of the owner, as a part of a whole burst. They are below zero for a debt.
	Credits float64 `json:"credits"`
}

// addBursts adds the bursts to limits. A limit that is raised to its burst is in force, and so is a backstop that is raised with it.
func (h *Host) addBursts(values []Value) error {
	if h.Bursts == nil {
		return nil
	}
	book, err := h.Bursts.Read()
	type at struct{ cgroup, dev, key string }
	bursts, raised, above := map[at]*Burst{}, map[at]blkio.Amount{}, map[at]blkio.Amount{}
	for _, s := range book.Limits() {
		place := at{s.Cgroup, s.Dev.String(), s.Key.String()}
		bursts[place] = &Burst{annotation.FormatBurst(s.Key, s.Burst), s.Raised, s.Credits / s.Whole()}
		if s.Raised {
			raised[place] = s.Burst.Rate
			place.cgroup = path.Dir(s.Cgroup)
			above[place] += s.Burst.Rate - s.Limit
		}
	}
	for i := range values {
		v := &values[i]
		place := at{v.Cgroup, v.Dev, v.Key}
		v.Burst = bursts[place]
		key, isLimit := blkio.ParseKey(blkio.IOMax, v.Key)
		if !isLimit || v.State != ValueDrift {
			continue
		}
		inForce := raised[place]
		if asked, p := annotation.ParseAmount(key, v.Asked); p == nil && inForce == 0 && v.Source.Kind == policy.FromBackstop {
			inForce = asked + above[place]
		}
		if v.InForce == annotation.FormatAmount(key, inForce) {
			v.State = ValueOK
		}
	}
	return err
}

// MeasureUse sets Used of the limits in force. It compares two readings of their cgroups.
func (h *Host) MeasureUse(ctx context.Context, values []Value, duration time.Duration) {
	before := h.readUse(values)
	if len(before) == 0 {
		return
	}
	select {
	case <-time.After(duration):
	case <-ctx.Done():
	}
	activities := map[string]wait.Activity{}
	for cgroup, after := range h.readUse(values) {
		if first, ok := before[cgroup]; ok {
			activities[cgroup] = wait.UseBetween(first, after)
		}
	}
	for i := range values {
		v := &values[i]
		key, isLimit := blkio.ParseKey(blkio.IOMax, v.Key)
		for _, d := range activities[v.Cgroup].Disks {
			if part, inForce := d.OfLimit(key); isLimit && inForce && d.Dev.String() == v.Dev {
				v.Used = &part
			}
		}
	}
}

// readUse reads the cgroups with limits. One that cannot be read, as it was removed, is left out.
func (h *Host) readUse(values []Value) map[string]wait.Use {
	out := map[string]wait.Use{}
	for i := range values {
		v := &values[i]
		if _, isRead := out[v.Cgroup]; isRead || v.Dev == "" {
			continue
		}
		if use, err := wait.ReadUse(h.Cgroups.Cgroup(v.Cgroup)); err == nil {
			out[v.Cgroup] = use
		}
	}
	return out
}

// Recorded is a cgroup with its record.
type Recorded struct {
	Cgroup cgroupfs.Cgroup
	Record *record.Record
}

// Filter selects pods by namespace and name. "" selects any.
type Filter struct {
	Namespace, Name string
	among           *map[string]bool // "NAMESPACE/NAME" of the pods to select among; nil: all
}

// Among returns a filter that selects among these pods only, "NAMESPACE/NAME".
func (f Filter) Among(pods map[string]bool) Filter {
	f.among = &pods
	return f
}

// ParseFilter parses "NAMESPACE/NAME".
func ParseFilter(s string) (Filter, error) {
	ns, name, ok := strings.Cut(s, "/")
	if !ok || ns == "" || name == "" || strings.Contains(name, "/") {
		return Filter{}, fmt.Errorf("invalid pod %q (write NAMESPACE/NAME)", s)
	}
	return Filter{Namespace: ns, Name: name}, nil
}

// String is the inverse of ParseFilter. It returns "" for a filter without a name.
func (f Filter) String() string {
	if f.Name == "" {
		return ""
	}
	return f.Namespace + "/" + f.Name
}

// Matches reports whether the filter selects a pod.
func (f Filter) Matches(namespace, pod string) bool {
	return (f.Namespace == "" || f.Namespace == namespace) && (f.Name == "" || f.Name == pod) && (f.among == nil || (*f.among)[namespace+"/"+pod])
}

// Records returns the records of the selected pods, sorted by pod, that of the pod itself
// first. A record that cannot be parsed is left out, and is in the error.
func Records(tree *cgroupfs.Hierarchy, filter Filter) ([]Recorded, error) {
	var (
		out []Recorded
		bad []error
	)
	err := tree.Walk(record.Xattr, func(c cgroupfs.Cgroup, a cgroupfs.Attribute) error {
		r, err := record.ParseAttribute(a)
		switch {
		case err != nil:
			bad = append(bad, fmt.Errorf("cgroup %s: %w", c.Path(), err))
		case r != nil && filter.Matches(r.Namespace, r.Pod):
			out = append(out, Recorded{c, r})
		}
		return nil
	})
	slices.SortStableFunc(out, func(a, b Recorded) int {
		return cmp.Or(
			cmp.Compare(a.Record.Namespace, b.Record.Namespace), cmp.Compare(a.Record.Pod, b.Record.Pod),
			cmp.Compare(a.Record.UID, b.Record.UID), cmp.Compare(a.Record.Container, b.Record.Container),
		)
	})
	return out, errors.Join(append(bad, err)...)
}

// PodsWithoutRecord returns the pods of recorded containers whose own cgroup has no record, with an empty one.
// No limit has to be removed there yet, but a running plugin may add the backstop when the last unlimited
// container ends. A record that cannot be parsed counts as one: an empty record in its place would hide limits
// that are in force.
func PodsWithoutRecord(tree *cgroupfs.Hierarchy, records []Recorded) []Recorded {
	seen := map[string]bool{}
	for _, r := range records {
		seen[r.Cgroup.Path()] = true
	}
	var out []Recorded
	for _, r := range records {
		pod := path.Dir(r.Cgroup.Path())
		if r.Record.Kind != record.KindContainer || seen[pod] {
			continue
		}
		seen[pod] = true
		if _, err := record.Read(tree.Cgroup(pod), record.KindPod); err != nil {
			continue // Records returns this error
		}
		out = append(out, Recorded{tree.Cgroup(pod), &record.Record{
			Kind: record.KindPod, Namespace: r.Record.Namespace, Pod: r.Record.Pod, UID: r.Record.UID,
		}})
	}
	return out
}
