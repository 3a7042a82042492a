package plugin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/sirupsen/logrus"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/policy"
)

// change is what one cgroup needs. Raising comes first and lowering last, so
// that nothing is ever held below what was granted at that moment.
type change struct {
	*target
	cg           cgroupfs.Cgroup
	found        found
	want         policy.Settings     // the target's, and what else stays
	record       record.Record       // the same
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

// apply brings the cgroups of a group into line. With only set, of the
// containers only that one is looked at: the start of a container must not
// wait for its neighbours. It waits for another writer until ctx ends.
func (p *Plugin) apply(ctx context.Context, g *group, only *container) error {
	if !p.take(g, ctx.Done()) {
		return fmt.Errorf("wait for a write to the pod's cgroups: %w", ctx.Err())
	}
	defer p.release(g)
	return p.write(g, only)
}

// write applies the pod's settings; the caller holds the pod's token.
func (p *Plugin) write(g *group, only *container) error {
	plan := p.planFor(g)
	podChange, podErr := p.inspect(plan.pod)
	podErr = errors.Join(podErr, podChange.doRaise())
	var errs []error
	for _, t := range plan.containers {
		if only == nil || t.owner == only {
			errs = append(errs, p.writeContainer(plan.pod, t, only != nil))
		}
	}
	podErr = errors.Join(podErr, podChange.doLower(p, podErr))
	if only == nil {
		p.sweep(plan)
	}
	return errors.Join(append(errs, podErr)...)
}

func (p *Plugin) writeContainer(pod, t *target, starting bool) error {
	c, err := p.inspect(t)
	err = errors.Join(err, c.doRaise())
	err = errors.Join(err, c.doLower(p, err))
	p.identify(&c)
	gone := errors.Is(err, blkio.ErrGone)
	if gone {
		err = nil
	} else {
		p.findProcess(t.owner)
	}
	p.hold(&c, pod)
	if starting {
		return err // see isUnplaced
	}
	return errors.Join(err, p.checkPlaced(t, gone))
}

// inspect reads what is on a cgroup and says what it needs.
func (p *Plugin) inspect(t *target) (change, error) {
	if t.Cgroup == "" {
		return change{}, nil // nothing for us to write to
	}
	c := change{target: t, want: t.Want, record: t.Record, spec: t.Spec.Stale, cg: p.cgroups.Cgroup(t.Cgroup), gone: p.isGone}
	old, raw, err := t.readRecord(c.cg)
	if errors.Is(err, blkio.ErrGone) {
		if t.owner == nil {
			return change{}, nil // the pod was removed, and its containers with it
		}
		return change{}, err
	}
	if errors.Is(err, record.ErrParse) {
		p.log.WithError(err).WithField("cgroup", t.Cgroup).Warn("Replacing an unreadable record")
	} else {
		c.found.unread = err
	}
	if old != nil && old.Cleared {
		return change{}, nil
	}
	c.found.record, c.found.raw = old, raw
	if old == nil {
		old = &record.Record{}
	}
	if t.Partial || t.Ended {
		c.keep(old)
	} else {
		c.drop(old)
	}
	err = c.compare(old)
	return c, err
}

// compare reads the control files that have settings, and notes what is to be written. A
// file that cannot be read keeps none from being written to another one.
func (c *change) compare(old *record.Record) error {
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
		case c.owner == nil && errors.Is(err, blkio.ErrNotSupported) && c.isEmpty():
			// systemd takes the io controller from a slice when its last
			// scope has ended. It comes back with the next one.
			c.target = nil
			return nil
		default:
			errs = append(errs, err)
		}
	}
	known := func(s policy.Setting) bool { return slices.Contains(read, s.File()) }
	raise, lower := policy.Diff(c.want.Where(known), c.lifted(old, actual).Where(known), actual)
	c.raise, c.lower = raise.Lines(), lower.Lines()
	return errors.Join(errs...)
}

// concerns reports whether a file has a setting that is wanted, recorded or in the OCI spec.
func (c *change) concerns(file string, old *record.Record) bool {
	in := func(s policy.Setting) bool { return s.File() == file }
	return slices.ContainsFunc(c.want, in) || slices.ContainsFunc(old.Settings, in) ||
		slices.ContainsFunc(c.spec, func(r blkio.Replacement) bool { return r.File() == file })
}

func (c *change) read(file string) (blkio.Values, error) {
	text, err := c.cg.ReadText(file, make([]byte, 0, 512))
	if err != nil {
		return nil, err
	}
	c.found.texts = append(c.found.texts, fileText{file, text})
	return blkio.ParseValues(file, string(text))
}

// isEmpty reports whether the cgroup is known to have no process.
func (c *change) isEmpty() bool {
	populated, err := c.cg.Populated()
	return err == nil && !populated
}

// keep adds what a record has beyond what is known to be wanted: not to know it
// is no reason to lift it. A backstop goes, since a container of which nothing is
// known counts as unlimited; not if none runs.
func (c *change) keep(old *record.Record) {
	if old.Observed || c.record.Observed {
		return
	}
	c.record.Add(old, old.Settings.Where(func(s policy.Setting) bool { return s.Source.Kind != policy.FromBackstop || c.Ended }))
	c.want = c.record.Settings
}

// drop has values of the OCI spec go that are ours and that nothing is wanted for, and
// records them, since the runtime may write them back when no other record of them is left.
func (c *change) drop(old *record.Record) {
	for _, r := range c.Spec.Unwanted {
		if value := (blkio.Value{Address: r.Address, Amount: r.From}); c.Spec.Ours || old.Put(value) {
			c.spec = append(slices.Clip(c.spec), r)
			c.record.Drop(value)
		}
	}
}

// isQuiet compares the control files with what they were when all was in place.
func (p *Plugin) isQuiet(t *target, buf []byte) bool {
	switch {
	case t.Cgroup == "":
		return true
	case t.idle: // and maybe removed without an event
		return t.owner == nil || p.cgroups.Cgroup(t.Cgroup).Exists()
	case t.quiet == nil:
		return false
	}
	cg := p.cgroups.Cgroup(t.Cgroup)
	for _, before := range t.quiet {
		if text, err := cg.ReadText(before.file, buf); err != nil || !bytes.Equal(text, before.text) {
			return false
		}
	}
	return true
}

// settle notes that a cgroup has all that it should have.
func (c *change) settle() {
	c.quiet, c.idle = nil, false
	switch {
	case c.hasGone, len(c.raise)+len(c.lower)+len(c.spec) > 0, !c.found.isCurrent, c.Partial:
	case len(c.want) == 0:
		c.idle = true
	default:
		for _, t := range c.found.texts {
			c.quiet = append(c.quiet, fileText{t.file, bytes.Clone(t.text)}) // not the buffer that it was read into
		}
	}
}

func (c *change) doRaise() error {
	if c.target == nil {
		return nil
	}
	var err error
	c.raise, err = c.write(c.raise)
	return errors.Join(err, c.cg.ReplaceIOMaxBelow(c.spec))
}

// doLower writes the record, then the lower values and the weight: a crash in
// between leaves a record without its limit, which the next pass sets, and
// never a limit without a record. failed is what went wrong
// before; it goes into the record too. A record that cannot be written keeps
// no limit from being.
func (c *change) doLower(p *Plugin, failed error) error {
	if c.target == nil || errors.Is(failed, blkio.ErrGone) {
		return nil
	}
	if failed != nil {
		c.carry()
	}
	var recordErr error
	if !c.found.record.HasSettings(&c.record) {
		recordErr = c.writeRecord(c.record)
	}
	var err error
	c.lower, err = c.write(c.lower)
	if errors.Is(err, blkio.ErrGone) {
		return err
	}
	final := c.record
	all := errors.Join(failed, err)
	if all != nil {
		c.carry()
		final = c.record
		final.Error = strings.ReplaceAll(all.Error(), "\n", "; ")
	} else if len(c.raise)+len(c.lower) > 0 {
		c.tell(p)
	}
	if recordErr == nil && (!c.found.isCurrent || all != nil) {
		recordErr = c.writeRecord(final)
	}
	c.found.isCurrent = c.found.isCurrent && all == nil
	c.settle()
	return errors.Join(err, recordErr)
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
		return record.Remove(c.cg, c.record.Kind)
	}
	data, err := r.Marshal(c.Room)
	if err != nil {
		return err
	}
	if bytes.Equal(data, c.found.raw) {
		c.found.isCurrent = true
		return nil
	}
	err = record.WriteRaw(c.cg, r.Kind, data)
	if errors.Is(err, fs.ErrPermission) && c.isForeign() {
		return nil // it would not be trusted either, see trusted
	}
	if err == nil {
		c.found.record, c.found.raw, c.found.isCurrent = &r, data, true
	}
	return err
}

// tell logs and counts what was written.
func (c *change) tell(p *Plugin) {
	fields := logrus.Fields{"pod": c.record.Namespace + "/" + c.record.Pod, "cgroup": c.cg.Path()}
	if c.record.Container != "" {
		fields["container"] = c.record.Container
	}
	for _, l := range slices.Concat(c.raise, c.lower) {
		message := "Wrote limit"
		if l.File == blkio.IOMax {
			p.metrics.written.Add(1)
		} else {
			message = "Wrote weight"
		}
		p.log.WithFields(fields).WithField(l.File, l.Text).Info(message)
	}
}
