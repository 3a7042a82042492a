package enforce

import (
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/plugin/enforce/plan"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/policy"
)

// change is what one cgroup needs. Raising comes first and lowering last, so
// that nothing is ever held below what was granted at that moment.
type change struct {
	Result
	last         *seen
	found        found
	record       record.Record       // the target's, and what else stays
	spec         []blkio.Replacement // the target's, and those of unwanted that are ours
	raise, lower []blkio.Line
	// gone reports whether the node has no such disk. hasGone is true if a limit was for
	// one: it is not written, and it is tried again with the next pass.
	gone    func(blkio.Dev) bool
	hasGone bool
}

// found is what was read of a cgroup.
type found struct {
	texts     []fileText     // of the control files that were read
	record    *record.Record // may be the target's own, which is never changed
	raw       []byte         // record, as it is on the cgroup
	unread    error          // of reading the record; what is not known is not replaced, either
	isCurrent bool           // record is the one that should be there
}

// inspect reads what is on a cgroup and says what it needs.
func (e *Enforcer) inspect(t *plan.Target, last *seen) change {
	c := change{Result: Result{Target: t, Want: t.Want}, last: last, record: t.Record, spec: t.Spec.Stale, gone: e.Gone}
	if t.Cgroup == "" {
		return c // nothing for us to write to
	}
	c.Cgroup = e.Cgroups.Cgroup(t.Cgroup)
	old, raw, err := readRecord(t, c.Cgroup)
	switch {
	case errors.Is(err, blkio.ErrGone):
		if t.Container != "" { // else the pod was removed, and its containers with it
			c.Err = err
		}
		return c
	case errors.Is(err, record.ErrParse):
		c.Unreadable = err
	default:
		c.found.unread = err
	}
	if old != nil && old.Cleared {
		return c
	}
	c.Looked, c.found.record, c.found.raw = true, old, raw
	c.found.isCurrent = old == &t.Record // unless keep or drop changes it
	if old == nil {
		old = &record.Record{}
	}
	if t.Partial || t.Ended {
		c.keep(old)
	} else {
		c.drop(old)
	}
	c.compare(old)
	return c
}

// compare reads the control files that have settings, and notes what is to be written. A
// file that cannot be read keeps none from being written to another one.
func (c *change) compare(old *record.Record) {
	actual := blkio.Values{}
	var errs []error
	var read []string
	for _, file := range []string{blkio.IOMax, blkio.IOWeight} {
		if !c.concerns(file, old) {
			continue
		}
		switch values, err := c.read(file); {
		case err == nil:
			maps.Copy(actual, values)
			read = append(read, file)
		case c.Target.Container == "" && errors.Is(err, blkio.ErrNotSupported) && c.isEmpty():
			// systemd takes the io controller from a slice when its last
			// scope has ended. It comes back with the next one.
			c.Looked = false
			return
		default:
			errs = append(errs, err)
		}
	}
	known := func(s policy.Setting) bool { return slices.Contains(read, s.File()) }
	raise, lower := policy.Diff(c.Want.Where(known), c.lifted(old, actual).Where(known), actual)
	c.raise, c.lower = raise.Lines(), lower.Lines()
	c.Err = errors.Join(errs...)
}

// concerns reports whether a file has a setting that is wanted, recorded or in the OCI spec.
func (c *change) concerns(file string, old *record.Record) bool {
	in := func(s policy.Setting) bool { return s.File() == file }
	return slices.ContainsFunc(c.Want, in) || slices.ContainsFunc(old.Settings, in) ||
		slices.ContainsFunc(c.spec, func(r blkio.Replacement) bool { return r.File() == file })
}

func (c *change) read(file string) (blkio.Values, error) {
	text, err := c.Cgroup.ReadText(file, make([]byte, 0, 512))
	if err != nil {
		return nil, err
	}
	c.found.texts = append(c.found.texts, fileText{file, text})
	return blkio.ParseValues(file, string(text))
}

// isEmpty reports whether the cgroup is known to have no process.
func (c *change) isEmpty() bool {
	populated, err := c.Cgroup.Populated()
	return err == nil && !populated
}

// keep adds what a record has beyond what is known to be wanted: not to know it
// is no reason to lift it. A backstop goes, since a container of which nothing is
// known counts as unlimited; not if none runs.
func (c *change) keep(old *record.Record) {
	if old.Observed || c.record.Observed {
		return
	}
	c.found.isCurrent = false
	c.record.Add(old, old.Settings.Where(func(s policy.Setting) bool { return s.Source.Kind != policy.FromBackstop || c.Target.Ended }))
	c.Want = c.record.Settings
}

// drop has values of the OCI spec go that are ours and that nothing is wanted for, and
// records them, since the runtime may write them back when no other record of them is left.
func (c *change) drop(old *record.Record) {
	for _, r := range c.Target.Spec.Unwanted {
		if value := (blkio.Value{Address: r.Address, Amount: r.From}); c.Target.Spec.Ours || old.Put(value) {
			c.spec = append(slices.Clip(c.spec), r)
			c.record.Drop(value)
			c.found.isCurrent = false
		}
	}
}

// settle notes that a cgroup has all that it should have.
func (c *change) settle() {
	*c.last = seen{}
	switch {
	case c.hasGone, len(c.raise)+len(c.lower)+len(c.spec) > 0, !c.found.isCurrent, c.Target.Partial:
	case len(c.Want) == 0:
		c.last.idle = true
	default:
		for _, t := range c.found.texts {
			c.last.quiet = append(c.last.quiet, fileText{t.file, bytes.Clone(t.text)}) // not the buffer that it was read into
		}
	}
}

func (c *change) doRaise() {
	if !c.Looked {
		return
	}
	var err error
	c.raise, err = c.write(c.raise)
	c.Err = errors.Join(c.Err, err, c.Cgroup.ReplaceIOMaxBelow(c.spec))
}

// doLower writes the record, then the lower values and the weight: a crash in
// between leaves a record without its limit, which the next pass sets, and
// never a limit without a record. What went wrong before goes into the record too. A
// record that cannot be written keeps no limit from being.
func (c *change) doLower() {
	if !c.Looked || errors.Is(c.Err, blkio.ErrGone) {
		return
	}
	if c.Err != nil {
		c.carry()
	}
	var recordErr error
	if !c.found.record.HasSettings(&c.record) {
		recordErr = c.writeRecord(c.record)
	}
	var err error
	c.lower, err = c.write(c.lower)
	c.Err = errors.Join(c.Err, err)
	if errors.Is(err, blkio.ErrGone) {
		return
	}
	final := c.record
	if c.Err != nil {
		c.carry()
		final = c.record
		final.Error = strings.ReplaceAll(c.Err.Error(), "\n", "; ")
	} else {
		c.Written = slices.Concat(c.raise, c.lower)
	}
	if recordErr == nil && (!c.found.isCurrent || c.Err != nil) {
		recordErr = c.writeRecord(final)
	}
	c.found.isCurrent = c.found.isCurrent && c.Err == nil
	c.settle()
	c.Err = errors.Join(c.Err, recordErr)
}

// carry keeps in the record what could not be lifted, so that the next pass
// knows it for ours.
func (c *change) carry() {
	switch {
	case c.found.record == nil || c.found.record.Observed:
	case c.record.Observed:
		c.record = *c.found.record
	default:
		c.record.Add(c.found.record, c.found.record.Settings)
	}
}

// writeRecord writes a record that differs from the one that is there.
func (c *change) writeRecord(r record.Record) error {
	switch {
	case c.found.unread != nil:
		return c.found.unread
	case r.Empty() && c.found.raw == nil:
		c.found.isCurrent = true
		return nil
	case r.Empty():
		c.found.record, c.found.raw, c.found.isCurrent = nil, nil, true
		return record.Remove(c.Cgroup, c.record.Kind)
	}
	data, err := r.Marshal(c.Target.Room)
	if err != nil {
		return err
	}
	if bytes.Equal(data, c.found.raw) {
		c.found.isCurrent = true
		return nil
	}
	err = record.WriteRaw(c.Cgroup, r.Kind, data)
	if errors.Is(err, fs.ErrPermission) && c.isForeign() {
		return nil // it would not be trusted either, see trusted
	}
	if err == nil {
		c.found.record, c.found.raw, c.found.isCurrent = &r, data, true
	}
	return err
}

// readRecord reads what was recorded on a target's cgroup, as a record and as it is
// there. Mostly it is what should be there, which takes no decoding to see.
func readRecord(t *plan.Target, cg cgroupfs.Cgroup) (*record.Record, []byte, error) {
	raw, err := record.ReadRaw(cg, t.Record.Kind)
	if err != nil || raw == nil {
		return nil, nil, err
	}
	// Made anew, not kept: a close look is rare, and 750 texts are 400 KB.
	if !t.Record.Empty() {
		if wanted, err := t.Record.Marshal(t.Room); err == nil && bytes.Equal(raw, wanted) {
			return &t.Record, raw, nil
		}
	}
	old, err := record.Trusted(cg, t.Record.Kind, raw)
	if old == nil {
		raw = nil
	}
	return old, raw, err
}

// lifted returns the settings that are to go where they are not wanted: those of a record,
// which we wrote, and what the runtime has written back from the spec.
func (c *change) lifted(old *record.Record, actual blkio.Values) policy.Settings {
	var out policy.Settings
	if !old.Observed { // those were decided once, and never written
		out = old.Settings
	}
	for _, s := range c.spec {
		if value := actual.At(s.Address); value.Amount == s.From {
			out = out.Join(policy.Settings{{Value: value}})
		}
	}
	return out
}
