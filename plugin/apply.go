package plugin

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
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
	want   map[blkio.Dev]blkio.Limits // the target's, and what else stays
	record record.Record              // the same
	spec   []cgroupfs.Replacement     // the target's, and those of unwanted that are ours
	text   []byte                     // of io.max, where that was read
	cg     cgroupfs.Cgroup
	old    *record.Record // may be the target's own, which is never changed
	unread error          // of reading it; what is not known is not replaced, either
	raise  []blkio.DevLimits
	lower  []blkio.DevLimits
	weight uint32 // 0: leave it
	// gone reports whether the node has no such disk. hasGone is true if a limit was for
	// one: it is not written, and it is tried again with the next pass.
	gone    func(blkio.Dev) bool
	hasGone bool
}

// apply brings the cgroups of a group into line. With only set, of the
// containers only that one is looked at: the start of a container must not
// wait for its neighbours. It waits for another writer until ctx ends.
func (p *Plugin) apply(ctx context.Context, g *group, only *container) error {
	if !p.take(g, ctx.Done()) {
		return fmt.Errorf("wait for another write to the pod's cgroups: %w", ctx.Err())
	}
	defer p.release(g)
	return p.write(g, only)
}

// write is apply for who holds the group's token.
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
	if t.cgroup == "" {
		return change{}, nil // nothing for us to write to
	}
	c := change{target: t, want: t.want, record: t.record, spec: t.spec, cg: p.cgroups.Cgroup(t.cgroup), gone: p.isGone}
	old, err := t.readRecord(c.cg)
	if errors.Is(err, blkio.ErrGone) {
		if t.owner == nil {
			return change{}, nil // the pod is gone, and its containers with it
		}
		return change{}, err
	}
	if errors.Is(err, record.ErrParse) {
		p.log.WithError(err).WithField("cgroup", t.cgroup).Warn("Replacing a record that cannot be read")
	} else {
		c.unread = err
	}
	if old != nil && old.Cleared {
		return change{}, nil
	}
	c.old = old
	if old == nil {
		old = &record.Record{}
	}
	if t.partial || t.ended {
		c.keep(old)
	} else {
		c.drop(old)
	}
	if len(c.want) > 0 || len(old.Limits) > 0 || len(c.spec) > 0 {
		if c.text, err = c.cg.ReadIOMaxText(make([]byte, 0, 512)); err != nil {
			if t.owner == nil && errors.Is(err, blkio.ErrNotSupported) {
				// systemd takes the io controller from a slice when its last
				// scope has ended. It comes back with the next one.
				if populated, unknown := c.cg.Populated(); unknown == nil && !populated {
					return change{}, nil
				}
			}
			return c, err
		}
		actual, err := blkio.ParseIOMax(string(c.text))
		if err != nil {
			return c, err
		}
		c.raise, c.lower = diff(c.want, c.lifted(old, actual), actual)
	}
	return c, c.inspectWeight(old)
}

// keep adds what a record has beyond what is known to be wanted: not to know it
// is no reason to lift it. A backstop goes, since a container of which nothing is
// known counts as unlimited; not if none runs.
func (c *change) keep(old *record.Record) {
	if old.Observed || c.record.Observed {
		return
	}
	c.record.Limits = slices.Clone(c.record.Limits)
	for _, l := range c.record.Missing(old) {
		if l.Source.Kind != policy.FromBackstop || c.ended {
			c.record.Limits = append(c.record.Limits, l)
		}
	}
	c.want = c.record.DevLimits()
	if c.record.Weight == 0 {
		c.record.Weight, c.record.WeightFrom = old.Weight, old.WeightFrom
	}
}

// drop has values of the OCI spec go that are ours and that nothing is wanted for, and
// records them, since the runtime may write them back when no other record of them is left.
func (c *change) drop(old *record.Record) {
	for _, value := range c.unwanted {
		if c.ours || old.Put(value) {
			c.spec = append(slices.Clip(c.spec), value)
			c.record.Dropped = append(c.record.Dropped, record.SpecLine(value))
		}
	}
	slices.Sort(c.record.Dropped) // they come from a map
	if w := c.unwantedWeight; w != 0 && (c.ours || old.DroppedWeight == w || old.Weight == w && !old.Observed) {
		c.record.DroppedWeight = w
	}
}

// isQuiet compares io.max with what it was when all was in place.
func (p *Plugin) isQuiet(t *target, buf []byte) bool {
	switch {
	case t.cgroup == "":
		return true
	case t.idle: // and gone without an event, maybe
		return t.owner == nil || p.cgroups.Cgroup(t.cgroup).Exists()
	case t.quiet == nil:
		return false
	}
	c := change{target: t, cg: p.cgroups.Cgroup(t.cgroup)}
	text, err := c.cg.ReadIOMaxText(buf)
	if err != nil || !bytes.Equal(text, t.quiet) {
		return false
	}
	return c.inspectWeight(&t.record) == nil && c.weight == 0
}

// settle notes that a cgroup has all that it should have.
func (c *change) settle() {
	c.quiet, c.idle = nil, false
	done := !c.hasGone && len(c.raise)+len(c.lower)+len(c.spec) == 0 && c.weight == 0
	switch {
	case !done || c.old == nil && !c.record.Empty() || c.old != nil && !c.old.Equal(&c.record):
	case c.partial:
	case len(c.want) == 0 && c.target.weight == 0:
		c.idle = true
	default:
		c.quiet = bytes.Clone(c.text) // not the buffer that it was read into
	}
}

// defaultWeight is the kernel's io.weight (CGROUP_WEIGHT_DFL).
const defaultWeight = 100

func (c *change) inspectWeight(old *record.Record) error {
	want := c.target.weight
	// Where limits are observed only, none is to stay, even if not all is known.
	if want == 0 && old.Weight != 0 && !old.Observed && (!c.partial || c.record.Observed) {
		want = defaultWeight
	}
	unwanted := cmp.Or(c.specWeight, c.record.DroppedWeight)
	if want == 0 && unwanted == 0 {
		return nil
	}
	actual, err := c.cg.ReadIOWeight()
	if want == 0 {
		if actual.Default != unwanted {
			return err // not what the runtime has written back
		}
		want = defaultWeight
	}
	if err == nil && actual.Default != want {
		c.weight = want
	}
	return err
}

// diff compares per device and key. A value that was recorded and is wanted
// no more goes back to max; one that is neither is somebody else's.
func diff(want, recorded, actual map[blkio.Dev]blkio.Limits) (raise, lower []blkio.DevLimits) {
	up, down := map[blkio.Dev]blkio.Limits{}, map[blkio.Dev]blkio.Limits{}
	set := func(dev blkio.Dev, k int, rate blkio.Amount) {
		now := blkio.Max // a device without a line has no limits
		if limits, ok := actual[dev]; ok && limits[k] != blkio.Unset {
			now = limits[k]
		}
		into := down
		if rate > now {
			into = up
		}
		if rate != now {
			limits := into[dev]
			limits[k] = rate
			into[dev] = limits
		}
	}
	for dev, limits := range want {
		for k, rate := range limits {
			if rate != blkio.Unset {
				set(dev, k, rate)
			}
		}
	}
	for dev, limits := range recorded {
		for k, rate := range limits {
			if rate != blkio.Unset && want[dev][k] == blkio.Unset {
				set(dev, k, blkio.Max)
			}
		}
	}
	return devLimits(up), devLimits(down)
}

func devLimits(m map[blkio.Dev]blkio.Limits) []blkio.DevLimits {
	var out []blkio.DevLimits
	for dev, limits := range m {
		out = append(out, blkio.DevLimits{Dev: dev, Limits: limits})
	}
	slices.SortFunc(out, func(a, b blkio.DevLimits) int { return cmp.Or(a.Dev.Compare(b.Dev)) })
	return out
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
// never a limit that nobody knows to be ours. failed is what went wrong
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
	if !c.old.Names(&c.record) {
		recordErr = c.writeRecord(c.record)
	}
	var err error
	c.lower, err = c.write(c.lower)
	if c.weight != 0 {
		err = errors.Join(err, c.cg.WriteIOWeight(c.weight))
	}
	if errors.Is(err, blkio.ErrGone) {
		return err
	}
	final := c.record
	if all := errors.Join(failed, err); all != nil {
		c.carry()
		final = c.record
		final.Error = strings.ReplaceAll(all.Error(), "\n", "; ")
	} else if len(c.raise)+len(c.lower) > 0 || c.weight != 0 {
		c.tell(p)
	}
	if recordErr == nil {
		recordErr = c.writeRecord(final)
	}
	c.settle()
	return errors.Join(err, recordErr)
}

// carry keeps in the record what could not be lifted, so that the next pass
// knows it for ours.
func (c *change) carry() {
	switch {
	case c.old == nil || c.old.Observed:
	case c.record.Observed:
		c.record = *c.old
	default:
		c.record.Limits = append(slices.Clone(c.record.Limits), c.record.Missing(c.old)...)
		if c.record.Weight == 0 {
			c.record.Weight, c.record.WeightFrom = c.old.Weight, c.old.WeightFrom
		}
	}
}

// writeRecord writes a record that differs from the one that is there.
func (c *change) writeRecord(r record.Record) error {
	switch {
	case c.unread != nil:
		return c.unread
	case c.old == nil && r.Empty(), c.old != nil && c.old.Equal(&r):
		return nil
	case r.Empty():
		c.old = nil
		return record.Remove(c.cg, c.record.Kind)
	}
	err := record.Write(c.cg, &r)
	if errors.Is(err, fs.ErrPermission) && c.isForeign() {
		return nil // it would not be trusted either, see trusted
	}
	if err == nil {
		c.old = &r
	}
	return err
}

// tell logs and counts what was written.
func (c *change) tell(p *Plugin) {
	fields := logrus.Fields{"pod": c.record.Namespace + "/" + c.record.Pod, "cgroup": c.cg.Path()}
	if c.record.Container != "" {
		fields["container"] = c.record.Container
	}
	p.metrics.written.Add(int64(len(c.raise) + len(c.lower)))
	for _, l := range append(slices.Clone(c.raise), c.lower...) {
		p.log.WithFields(fields).WithField("io.max", l.String()).Info("Limit written")
	}
	if c.weight != 0 {
		p.log.WithFields(fields).WithField("io.weight", c.weight).Info("Weight written")
	}
}
