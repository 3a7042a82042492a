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

// change has the writes that one cgroup needs. Values are raised first and lowered last, so
// that the cgroup is never limited to less than it was granted.
type change struct {
	Result
	last         *seen
	written      *Written
	found        found
	record       record.Record // the target's, with recorded settings that stay
	raise, lower []blkio.Line
	isRemoved    func(blkio.Dev) bool // Enforcer.IsRemoved
	// hasRemoved is true if a limit was not written because its disk has been removed from the node. The next
	// pass tries again.
	hasRemoved bool
}

// found has the results of reads of a cgroup.
type found struct {
	texts     []fileText     // of the control files that were read
	record    *record.Record // may be the target's own, so it must not be changed
	known     *record.Record // the record, with what this process wrote as well
	raw       []byte         // the record's bytes
	unread    error          // why the record could not be read; then it is not replaced
	isCurrent bool           // the record is the desired one
}

func (e *Enforcer) inspect(t *plan.Target, last *seen, w *Written) change {
	c := change{Result: Result{Target: t, Want: t.Want}, last: last, written: w, record: t.Record, isRemoved: e.IsRemoved}
	if t.Cgroup == "" {
		return c // nothing for us to write to
	}
	c.Cgroup = e.Cgroups.Cgroup(t.Cgroup)
	old, raw, err := readRecord(t, c.Cgroup)
	switch {
	case errors.Is(err, blkio.ErrGone):
		if t.Container != "" { // the pod's own cgroup is missing if the pod was removed, with its containers
			c.Err = err
		}
		return c
	case errors.Is(err, record.ErrParse):
		c.Unreadable = err
	default:
		c.found.unread = err
	}
	if c.Cleared = old != nil && old.Cleared; c.Cleared {
		return c
	}
	c.Compared, c.found.record, c.found.raw = true, old, raw
	c.found.isCurrent = old == &t.Record // unless keep changes it
	old = w.recall(t, old)
	c.found.known = old
	if t.Partial || t.Ended {
		c.keep(old)
	}
	c.compare(old)
	return c
}

// compare reads the control files with settings, and adds the writes that they need. An
// error of one file does not prevent writes to the others.
func (c *change) compare(old *record.Record) {
	var actual blkio.Values
	var errs []error
	var read []string
	for _, file := range []string{blkio.IOMax, blkio.IOWeight} {
		if !c.concerns(file, old) {
			continue
		}
		switch values, err := c.read(file); {
		case err == nil:
			if actual == nil {
				actual = values
			} else {
				maps.Copy(actual, values)
			}
			read = append(read, file)
		case c.Target.Container == "" && errors.Is(err, blkio.ErrNotSupported) && c.isEmpty():
			// systemd takes the io controller from a slice when its last
			// scope has ended. It comes back with the next one.
			c.Compared = false
			return
		case errors.Is(err, blkio.ErrNotSupported) && !slices.ContainsFunc(c.Want, func(s policy.Setting) bool { return s.File() == file }):
			// A kernel without io.weight, where bfq has the recorded weights: there is nothing to lift.
		default:
			errs = append(errs, err)
		}
	}
	c.foreign(old, actual)
	want, lifted := c.written.raise(c.Target.Cgroup, c.Want), c.lifted(old, actual)
	if len(errs) > 0 {
		known := func(s policy.Setting) bool { return slices.Contains(read, s.File()) }
		want, lifted = want.Where(known), lifted.Where(known)
	}
	raise, lower := policy.Diff(want, lifted, actual)
	c.raise, c.lower = raise.Lines(), lower.Lines()
	c.Err = errors.Join(errs...)
}

// concerns reports whether a control file has a desired or recorded setting, or a value in
// the OCI spec.
func (c *change) concerns(file string, old *record.Record) bool {
	in := func(s policy.Setting) bool { return s.File() == file }
	return slices.ContainsFunc(c.Want, in) || slices.ContainsFunc(old.Settings, in) ||
		slices.ContainsFunc(c.Target.Stale, func(r blkio.Replacement) bool { return r.File() == file })
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

// keep adds the recorded settings to the desired ones: those that are not known to be
// desired are not lifted for that reason. It leaves out a backstop unless all containers
// have ended, because an unknown container counts as one without limits. A container that
// the budget was not asked about stays one: a restarted process may not have read that yet.
func (c *change) keep(old *record.Record) {
	if old.Observed || c.record.Observed {
		return
	}
	c.found.isCurrent = false
	c.record.Lowered, c.record.Unvetted = c.record.Lowered.Join(old.Lowered), c.record.Unvetted || old.Unvetted
	c.record.Lent = c.record.Lent.Join(old.Lent)
	c.record.Add(old, old.Settings.Where(func(s policy.Setting) bool { return s.Source.Kind != policy.FromBackstop || c.Target.Ended }))
	c.Want = c.record.Settings
}

// remember keeps the texts of a cgroup that has all desired settings.
func (c *change) remember() {
	*c.last = seen{}
	switch {
	case c.hasRemoved, len(c.raise)+len(c.lower)+len(c.Target.Stale) > 0, !c.found.isCurrent, c.Target.Partial:
	case len(c.Want)+len(c.Foreign) == 0:
		c.last.idle = true
	default:
		for _, t := range c.found.texts {
			c.last.texts = append(c.last.texts, fileText{t.file, bytes.Clone(t.text)}) // not the buffer that it was read into
		}
	}
}

func (c *change) doRaise() {
	if !c.Compared {
		return
	}
	var err error
	c.raise, err = c.write(c.raise)
	c.Err = errors.Join(c.Err, err, c.Cgroup.ReplaceIOMaxBelow(c.Target.Stale))
}

// doLower writes the record, then the lower values and the weight. If the program ends in
// between, there is a record without its limit, which the next pass writes, and never a
// limit without a record. The record has earlier errors of this pass. Limits are written
// even if the record cannot be.
func (c *change) doLower() {
	if !c.Compared || errors.Is(c.Err, blkio.ErrGone) {
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
	c.written.note(c)
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
	c.remember()
	c.Err = errors.Join(c.Err, recordErr)
}

// carry keeps settings in the record that could not be lifted, so that the next pass knows
// that this program wrote them.
func (c *change) carry() {
	switch old := c.found.known; {
	case old.Observed, len(old.Settings) == 0:
	case c.record.Observed:
		c.record = *old
	default:
		c.record.Add(old, old.Settings)
	}
}

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

// readRecord reads the record of a target's cgroup, decoded and as bytes. Usually it has
// the bytes of the desired record, and need not be decoded.
func readRecord(t *plan.Target, cg cgroupfs.Cgroup) (*record.Record, []byte, error) {
	raw, err := record.ReadRaw(cg, t.Record.Kind)
	if err != nil || raw == nil {
		return nil, nil, err
	}
	// The texts are not kept, because this is rarely needed, and 750 texts are 400 KB.
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

// lifted returns the settings to remove unless they are desired. These are the settings of a record, which this
// program wrote, and those that the runtime has written from the OCI spec.
func (c *change) lifted(old *record.Record, actual blkio.Values) policy.Settings {
	var out policy.Settings
	if !old.Observed { // those were decided once, and never written
		out = old.Settings.Without(c.Foreign)
	}
	for _, s := range c.Target.Stale {
		if value := actual.At(s.Address); value.Amount == s.From {
			out = out.Join(policy.Settings{{Value: value}})
		}
	}
	return out
}

// Storage drivers such as ceph-csi set limits on the pod's cgroup as well, before a container exists. The kernel has one value
// for each disk and key, so the two can meet. The lower value holds: it is within what both ask for. A value that replaces
// one of the plugin is replaced at the next comparison: once in each pass, and not at each write of the other program.

// foreign compares the desired settings of a pod's cgroup with values of other programs. It takes those that stay out of the
// desired ones, and reports them.
func (c *change) foreign(old *record.Record, actual blkio.Values) {
	if c.Target.Container != "" || len(c.Want) == 0 || c.record.Observed || c.found.unread != nil || c.Unreadable != nil {
		return // without a record, values of this program look like those of another
	}
	stay := c.staying(old, actual)
	for at := range actual {
		_, isDesired := c.Want.Get(at)
		if v := actual.At(at); at.Key.IsRate() && v.IsLimit() && !isDesired && !isRecorded(old, at) {
			stay = append(stay, policy.Setting{Value: v})
		}
	}
	if len(stay) == 0 || c.isForeign() { // the record of such a pod is not trusted
		return
	}
	c.Foreign = policy.NewSettings(stay...)
	c.Want, c.record.Settings = c.Want.Without(c.Foreign), c.record.Settings.Without(c.Foreign)
	c.reportForeign()
}

// staying returns the values of other programs that stay although others are desired.
func (c *change) staying(old *record.Record, actual blkio.Values) (stay []policy.Setting) {
	for _, s := range c.Want {
		now := actual.At(s.Address)
		if s.Key.IsRate() && now.IsLimit() && now.Amount < s.Amount && !isRecorded(old, s.Address) {
			stay = append(stay, policy.Setting{Value: now})
		}
	}
	return stay
}

// isRecorded reports whether this program wrote a value at an address, by a record.
func isRecorded(r *record.Record, at blkio.Address) bool {
	_, found := r.Settings.Get(at)
	return found && !r.Observed
}

// maxForeign bounds the values of other programs in a record.
const maxForeign = 8

func (c *change) reportForeign() {
	c.found.isCurrent = false
	c.record.Warnings = slices.Clip(c.record.Warnings)
	for i, s := range c.Foreign {
		if i == maxForeign {
			c.record.Warnings = append(c.record.Warnings, "and more limits of other programs")
			return
		}
		c.record.Warnings = append(c.record.Warnings, "io.max of the pod has "+s.OnDisk(c.record.Disks)+" of another program, which stays")
	}
}
