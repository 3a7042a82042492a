package plugin

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
)

// target is one cgroup and what should be on it.
type target struct {
	cgroup string
	want   map[blkio.Dev]blkio.Limits
	weight uint32
	record Record
	raw    []byte     // the record as it lies on the cgroup; nil if it is empty
	owner  *container // nil for the pod's cgroup
}

// plan is what should be on the cgroups of a pod. It is computed once for each
// change of the pod, so that a pass over a quiet node is reading only.
type plan struct {
	pod        target
	containers []target
}

// targets returns what should be on the pod's cgroups now, of the containers
// only that one if it is set.
func (p *Plugin) targets(pod *pod, only *container) (target, []target) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if pod.plan == nil {
		pod.plan = newPlan(p.policy.Load(), pod)
	}
	if only == nil {
		return pod.plan.pod, pod.plan.containers
	}
	i := slices.IndexFunc(pod.plan.containers, func(t target) bool { return t.owner == only })
	if i < 0 {
		return pod.plan.pod, nil // stopped meanwhile
	}
	return pod.plan.pod, pod.plan.containers[i : i+1]
}

// newPlan computes a plan. The caller holds mu.
func newPlan(pol *policy.Policy, pod *pod) *plan {
	observed := pol.Mode == policy.ModeObserve
	out := &plan{pod: podTarget(pol, pod, observed)}
	for _, c := range pod.sorted() {
		if c.running {
			out.containers = append(out.containers, containerTarget(pod, c, observed))
		}
	}
	return out
}

func containerTarget(pod *pod, c *container, observed bool) target {
	t := target{cgroup: c.cgroup, owner: c, record: newRecord(KindContainer, pod, c.desired, c.err, observed)}
	t.record.Container, t.record.ContainerID = c.name, c.id
	if !observed {
		t.want, t.weight = wanted(c.desired), c.desired.Weight
	}
	return t.closed()
}

func newRecord(kind string, pod *pod, d policy.Desired, err error, observed bool) Record {
	r := Record{
		Version: recordVersion, Kind: kind, Namespace: pod.namespace, Pod: pod.name, UID: pod.uid,
		Limits: recordLimits(d.Disks), Weight: d.Weight, Warnings: d.Warnings, Observed: observed,
	}
	for _, s := range d.Skipped {
		r.Skipped = append(r.Skipped, fmt.Sprintf("%q: %s", s.What, s.Reason))
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
	return t.closed()
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

// closed adds the form in which the record lies on the cgroup.
func (t target) closed() target {
	if !t.record.empty() {
		t.raw = t.record.Marshal()
	}
	return t
}

// readRecord reads what was recorded on the target's cgroup. Mostly it is what
// should be there, which takes no decoding to see.
func (t *target) readRecord(cg blkio.Cgroup) (*Record, error) {
	raw, err := cg.ReadXattr(RecordXattr)
	if err != nil || raw == nil {
		return nil, err
	}
	if bytes.Equal(raw, t.raw) {
		return &t.record, nil
	}
	return ParseRecord(raw)
}

// recorded are the limits that a record says we wrote.
func (t *target) recorded(old *Record) map[blkio.Dev]blkio.Limits {
	switch {
	case old.Observed:
		return nil // decided once, never written
	case old == &t.record:
		return t.want
	}
	return old.DevLimits()
}
