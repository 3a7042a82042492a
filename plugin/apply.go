package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/sirupsen/logrus"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
)

// target is one cgroup and what should be on it.
type target struct {
	cgroup string
	want   map[blkio.Dev]blkio.Limits
	weight uint32
	record Record
	owner  *container // nil for the pod's cgroup
}

// change is what one cgroup needs. Raising comes first and lowering last, so
// that nothing is ever held below what was granted at that moment.
type change struct {
	target
	cg     blkio.Cgroup
	old    *Record
	raise  []blkio.DevLimits
	lower  []blkio.DevLimits
	weight uint32 // 0: leave it
}

// apply brings the cgroups of a pod into line. With only set, of the
// containers only that one is looked at: the start of a container must not
// wait for its neighbours. It waits for another writer until ctx ends.
func (p *Plugin) apply(ctx context.Context, pod *pod, only *container) error {
	select {
	case pod.writing <- struct{}{}:
		defer func() { <-pod.writing }()
	case <-ctx.Done():
		return fmt.Errorf("wait for another write to the pod's cgroups: %w", ctx.Err())
	}
	podTarget, containers := p.targets(pod, only)
	podChange, podErr := p.inspect(podTarget)
	podErr = errors.Join(podErr, podChange.doRaise())
	var errs []error
	for _, t := range containers {
		err := p.applyContainer(pod, t, only != nil)
		errs = append(errs, err)
	}
	podErr = errors.Join(podErr, podChange.doLower(p.log, podErr))
	return errors.Join(append(errs, podErr)...)
}

func (p *Plugin) applyContainer(pod *pod, t target, starting bool) error {
	c, err := p.inspect(t)
	err = errors.Join(err, c.doRaise())
	err = errors.Join(err, c.doLower(p.log, err))
	if errors.Is(err, blkio.ErrGone) && !starting {
		// It ended; its StopContainer event is under way or was missed.
		p.mu.Lock()
		defer p.mu.Unlock()
		t.owner.running = false
		p.markDirty(pod.id)
		return nil
	}
	return err
}

// targets computes what should be on the pod's cgroups now.
func (p *Plugin) targets(pod *pod, only *container) (target, []target) {
	pol := p.policy.Load()
	observed := pol.Mode == policy.ModeObserve
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []target
	for _, c := range pod.sorted() {
		if c.running && (only == nil || c == only) {
			out = append(out, containerTarget(pod, c, observed))
		}
	}
	return podTarget(pol, pod, observed), out
}

func containerTarget(pod *pod, c *container, observed bool) target {
	t := target{cgroup: c.cgroup, owner: c, record: newRecord(KindContainer, pod, c.desired, c.err, observed)}
	t.record.Container, t.record.ContainerID = c.name, c.id
	if !observed {
		t.want, t.weight = wanted(c.desired), c.desired.Weight
	}
	return t
}

func newRecord(kind string, pod *pod, d policy.Desired, err error, observed bool) Record {
	r := Record{
		Version: recordVersion, Kind: kind, Namespace: pod.namespace, Pod: pod.name, UID: pod.uid,
		Limits: recordLimits(d.Disks), Weight: d.Weight, Warnings: d.Warnings, Observed: observed,
	}
	for _, s := range d.Skipped {
		r.Skipped = append(r.Skipped, fmt.Sprintf("%s: %s", s.What, s.Reason))
	}
	if err != nil {
		r.Error = err.Error()
	}
	return r
}

// podTarget is the pod total and the backstop, the smaller of the two for
// each disk and key. The caller holds mu.
func podTarget(pol *policy.Policy, pod *pod, observed bool) target {
	total, err := pol.PodTotal(pod.request, pod.seen())
	granted := pod.granted()
	total.Disks = withBackstop(total, granted)
	if pod.warned {
		total.Warnings = append(total.Warnings, pod.request.Unmatched(pod.seen())...)
	}
	t := target{cgroup: pod.cgroup, record: newRecord(KindPod, pod, total, err, observed)}
	if !observed {
		t.want, t.weight = wanted(total), total.Weight
	}
	return t
}

// backstop is the source of values that no annotation names for the pod.
const backstop = "backstop: the sum of the containers' limits"

func withBackstop(total policy.Desired, granted []policy.Desired) []policy.DiskLimits {
	known := map[blkio.Dev]policy.DiskLimits{}
	for _, d := range granted {
		for _, disk := range d.Disks {
			known[disk.Disk.Dev] = policy.DiskLimits{Disk: disk.Disk}
		}
	}
	for _, disk := range total.Disks {
		known[disk.Disk.Dev] = disk
	}
	var out []policy.DiskLimits
	for _, m := range policy.MergePod(total, policy.Backstop(granted)) {
		disk := known[m.Dev]
		for k, rate := range m.Limits {
			if rate != disk.Limits[k] {
				disk.Sources[k] = policy.Source{Annotation: backstop}
			}
		}
		disk.Limits = m.Limits
		out = append(out, disk)
	}
	return out
}

func wanted(d policy.Desired) map[blkio.Dev]blkio.Limits {
	out := make(map[blkio.Dev]blkio.Limits, len(d.Disks))
	for _, disk := range d.Disks {
		out[disk.Disk.Dev] = disk.Limits
	}
	return out
}

// inspect reads what is on a cgroup and says what it needs.
func (p *Plugin) inspect(t target) (change, error) {
	c := change{target: t, cg: p.cgroups.Cgroup(t.cgroup)}
	if t.cgroup == "" {
		return change{}, nil // no pod cgroup known: said when the pod came
	}
	old, err := ReadRecord(c.cg)
	if errors.Is(err, blkio.ErrGone) {
		if t.owner == nil {
			return change{}, nil // the pod is gone, and its containers with it
		}
		return change{}, err
	}
	if err != nil {
		p.log.WithError(err).WithField("cgroup", t.cgroup).Warn("Replacing a record that cannot be read")
	}
	if old == nil && t.record.empty() || old != nil && old.Cleared {
		return change{}, nil
	}
	c.old = old
	if old == nil {
		old = &Record{}
	}
	if len(t.want) > 0 || len(old.Limits) > 0 {
		actual, err := c.cg.ReadIOMax()
		if err != nil {
			return c, err
		}
		recorded := old.DevLimits()
		if old.Observed {
			recorded = nil // decided once, never written
		}
		c.raise, c.lower = diff(t.want, recorded, actual)
	}
	return c, c.inspectWeight(old)
}

// defaultWeight is the kernel's io.weight (CGROUP_WEIGHT_DFL).
const defaultWeight = 100

func (c *change) inspectWeight(old *Record) error {
	want := c.target.weight
	if want == 0 && old.Weight != 0 && !old.Observed {
		want = defaultWeight
	}
	if want == 0 {
		return nil
	}
	actual, err := c.cg.ReadIOWeight()
	if err == nil && actual.Default != want {
		c.weight = want
	}
	return err
}

// diff compares per device and key. A value that was recorded and is wanted
// no more goes back to max; one that is neither is somebody else's.
func diff(want, recorded, actual map[blkio.Dev]blkio.Limits) (raise, lower []blkio.DevLimits) {
	up, down := map[blkio.Dev]blkio.Limits{}, map[blkio.Dev]blkio.Limits{}
	set := func(dev blkio.Dev, k int, rate blkio.Rate) {
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

func (c *change) doRaise() error { return c.write(c.raise) }

// doLower writes the record, then the lower values and the weight: a crash in
// between leaves a record without its limit, which the next pass sets, and
// never a limit that nobody knows to be ours. failed is what went wrong
// before; it goes into the record too.
func (c *change) doLower(log logrus.FieldLogger, failed error) error {
	if c.cg.Path() == "" || errors.Is(failed, blkio.ErrGone) {
		return nil
	}
	if err := c.writeRecord(c.record); err != nil {
		return err
	}
	err := c.write(c.lower)
	if c.weight != 0 {
		err = errors.Join(err, c.cg.WriteIOWeight(c.weight))
	}
	if len(c.raise)+len(c.lower) > 0 || c.weight != 0 {
		c.log(log)
	}
	if all := errors.Join(failed, err); all != nil && !errors.Is(all, blkio.ErrGone) {
		failing := c.record
		failing.Error = all.Error()
		err = errors.Join(err, c.writeRecord(failing))
	}
	return err
}

func (c *change) write(lines []blkio.DevLimits) error {
	var errs []error
	for _, l := range lines {
		errs = append(errs, c.cg.WriteIOMax(l))
	}
	return errors.Join(errs...)
}

func (c *change) writeRecord(r Record) error {
	if c.old != nil && c.old.equal(&r) {
		return nil
	}
	if r.empty() {
		c.old = nil
		return c.cg.RemoveXattr(RecordXattr)
	}
	if err := WriteRecord(c.cg, &r); err != nil {
		return err
	}
	c.old = &r
	return nil
}

func (c *change) log(log logrus.FieldLogger) {
	fields := logrus.Fields{"pod": c.record.Namespace + "/" + c.record.Pod, "cgroup": c.cg.Path()}
	if c.record.Container != "" {
		fields["container"] = c.record.Container
	}
	for _, l := range append(slices.Clone(c.raise), c.lower...) {
		log.WithFields(fields).WithField("io.max", l.String()).Info("Limit written")
	}
	if c.weight != 0 {
		log.WithFields(fields).WithField("io.weight", c.weight).Info("Weight written")
	}
}
