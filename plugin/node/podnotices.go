package node

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/node/cause"
	"github.com/nri-blkio/nri-blkio/plugin/node/lifecycle"
	"github.com/nri-blkio/nri-blkio/plugin/podevent"
	"github.com/nri-blkio/nri-blkio/plugin/podfacts"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/plugin/reminder"
	"github.com/nri-blkio/nri-blkio/policy"
)

// This file lists the notices about pods, see notice.go.

// patience is the time for which limits are not in force before an event says so: most failures end with the first retries.
const patience = 5 * time.Second

// maxCauses bounds the causes of a pod that have events, so that they do not displace its other events.
const maxCauses = 4

// notices returns what is to be told about the pods of a group now.
func (g *group) notices() (out []notice) {
	if err := g.retry.err; err != nil {
		at := logrus.Fields{"cgroup": g.cgroup}
		out = append(out, notice{
			noticeKey: noticeKey{kind: retried}, again: reminder.Interval, value: err.Error(),
			line: &line{level: logrus.ErrorLevel, text: "Some limits are not in force, retrying", fields: at, err: err},
			end:  &line{level: logrus.InfoLevel, text: "All limits are in force again", fields: at},
		})
	}
	if g.foreign != "" {
		out = append(out, notice{noticeKey: noticeKey{kind: foreignLimits}, value: g.foreign, line: &line{
			level: logrus.WarnLevel, text: "Another program limits the pod's cgroup: its limits stay", fields: logrus.Fields{"cgroup": g.cgroup, "limits": g.foreign},
		}})
	}
	for _, pod := range g.pods {
		out = append(out, pod.notices(g)...)
	}
	return out
}

// notices returns what is to be told about a pod of a group.
func (p *pod) notices(g *group) (out []notice) {
	if err := g.retry.err; err != nil {
		x := p.notInForce(notWritten, err)
		x.patience, x.again = patience, reminder.Interval
		x.value, x.cause = string(x.cause.About()), cause.Key{} // with another cause, it has lasted as long
		out = append(out, x)
	}
	causes := map[noticeKey]bool{}
	for _, c := range p.containers {
		if c.decision.policy == nil || !c.isLive() || c.life.Phase() == lifecycle.Refused {
			continue
		}
		if out = append(out, c.lines()...); c.start != startAnswered {
			continue
		}
		out = append(out, c.facts()...)
		for _, x := range c.causes() {
			if !causes[x.noticeKey] && len(causes) < maxCauses {
				causes[x.noticeKey] = true
				out = append(out, x)
			}
		}
	}
	if e := &p.edit; e.err != nil && (e.next == nil || e.isRejected) {
		out = append(out, p.rejected())
	}
	if p.isComplete {
		now, containers := p.request.now.Load(), record.WithEnded(p.seen(), g.recorded.exits) // the runtime does not list ended ones
		out = append(out, notice{noticeKey: noticeKey{kind: targetsUnmatched, pod: p.ref, request: now}, line: &line{
			level: logrus.WarnLevel, fields: logrus.Fields{"pod": p.String()},
			lines: func(pol *policy.Policy) []string { return now.Under(pol).Unmatched(containers) },
		}})
	}
	return out
}

// rejected returns the notice about a change that does not count.
func (p *pod) rejected() notice {
	e, of := p.edit, partsOf(p.edit.err)
	out := notice{noticeKey: noticeKey{kind: changeRejected, pod: p.ref, cause: cause.KeyOf(e.err), parts: of}, event: func() event {
		return event{p.named(), podevent.ChangeRejected, cause.KeyOf(e.err).About(of.String()), e.text()}
	}}
	if e.next != nil { // otherwise SetLive has logged it
		out.line = &line{level: logrus.WarnLevel, text: "Rejected changed limits of claims of a running pod", fields: logrus.Fields{"pod": p.String()}, err: e.err}
		if out.line.rejects = of.Has(podfacts.Annotations | podfacts.Labels); out.line.rejects {
			out.line.text = "Rejected an edit of a running pod"
		}
	}
	return out
}

// notInForce returns a notice about limits of the pod that are not in force.
func (p *podIdentity) notInForce(kind noticeKind, err error) notice {
	key, note := "new", "some limits are not in force: "
	switch kind {
	case notWritten:
		key, note = "write", "some limits are not in force, retrying: "
	case keepsGranted:
		key, note = "kept", "some limits are not in force, and some that were granted before stay: "
	}
	return notice{noticeKey: noticeKey{kind: kind, pod: p.ref, cause: cause.KeyOf(err)}, event: func() event {
		found := cause.Of(err)
		return event{p.named(), podevent.NotInForce, found.About(key), note + found.Text}
	}}
}

// lines returns the notices about a container that are lines of the log. Before the answer to its start the container may be refused,
// so that no other line is due.
func (c *snapshot) lines() (out []notice) {
	var patience time.Duration
	if c.start != startAnswered {
		patience = math.MaxInt64
	}
	add := func(kind noticeKind, err error, text string) *notice {
		out = append(out, notice{noticeKey: noticeKey{kind: kind, container: c.ref}, patience: patience, line: &line{
			level: logrus.WarnLevel, text: text, fields: logrus.Fields{"pod": c.pod.String(), "container": c.name}, err: err,
		}})
		x := &out[len(out)-1]
		if err != nil {
			x.cause = cause.KeyOf(err)
		}
		return x
	}
	if err := c.decision.err; err != nil {
		text := "Some limits of a running container are not enforced"
		if c.life.Phase() == lifecycle.Created || c.life.Phase() == lifecycle.Starting && !c.isLate() {
			text = "Some requested limits are not enforced"
		}
		add(notEnforced, err, text)
	}
	for _, err := range c.decision.desired.Claims {
		add(claimIgnored, err, "Limits of a claim do not count")
	}
	if err := c.use.failure; err != nil {
		add(undeclaredUnknown, err, "Finding undeclared disks of a container failed").value = err.Error()
	}
	if err := c.disks.Err(); err != nil {
		add(diskUnresolved, err, "Some disks of a container are not resolved yet")
	}
	if c.pid == 0 && c.mayRun() && c.disks.IsUncompared() {
		add(processUnknown, nil, "The runtime reports no process for a container: its mounts are not compared with the node's")
	}
	for _, m := range c.disks.Added {
		x := add(diskAdded, nil, "A mount of a container is on another disk than its path on the node led to: its limits hold for that disk as well")
		x.subject, x.line.fields["mountpoint"], x.line.fields["disks"] = m.Mountpoint, m.Mountpoint, strings.Join(blkio.DiskNames(m.Backing.Disks), " ")
	}
	return out
}

// facts returns the notices about facts of a container's decision.
func (c *snapshot) facts() []notice {
	d := c.decision
	key := noticeKey{kind: noMemoryLimit, container: c.ref, policy: d.policy, request: d.request, settings: len(d.desired.Settings)}
	isFact, value := slices.Contains(d.desired.WarningKinds, policy.NoMemoryLimit), ""
	if d.policy.Mode() == policy.ModeObserve {
		now := c.inForce()
		if key.kind, isFact = wouldGet, d.err != nil || len(now.Settings) > 0; c.pod.lent.Load() != nil {
			value = textOf(now)
		}
	}
	if !isFact || !c.mayRun() {
		return nil
	}
	return []notice{{noticeKey: key, value: value, event: c.fact}}
}

// fact returns the event about a fact of a container's decision.
func (c *snapshot) fact() event {
	d := c.decision
	if d.policy.Mode() != policy.ModeObserve {
		return event{c.pod.named(), podevent.NoMemoryLimit, podevent.KeyOf(c.name), containerText(c.name) + " has a write limit and no memory limit of " +
			"at most half of the node's memory: its dirty pages can block all writers of the node (set resources.limits.memory)"}
	}
	out := event{of: c.pod.named(), reason: podevent.Observed, note: "mode observe: " + containerText(c.name) + " would "}
	text := textOf(c.inForce())
	if d.err == nil {
		out.note, out.key = out.note+"get "+text, podevent.KeyOf(c.name, text)
		return out
	}
	found := cause.Of(d.err)
	if d.policy.Action(d.err) == policy.Reject {
		out.note, out.key = out.note+"be rejected: "+found.Text, found.About(c.name)
	} else {
		out.note, out.key = out.note+"get "+text+", without what is not enforced: "+found.Text, found.About(c.name, text)
	}
	return out
}

// A container can run without a part of what its pod or its claims ask for. Either the policy ignores the error, or the container
// already runs and cannot be rejected, or the cause is not an error, such as a claim on NFS. A class that a rule of the policy
// chooses causes no event, because the author of the pod did not ask for it.

// causes returns why parts of what is requested for a container that runs are not in force. Mode observe and failed writes have
// notices of their own. A cause that mostly ends within seconds, such as a disk that cannot be read, has to last.
func (c *snapshot) causes() (out []notice) {
	d := c.decision
	if d.policy.Mode() != policy.ModeEnforce || !c.mayRun() {
		return nil
	}
	kind := notGranted
	if slices.Contains(d.desired.WarningKinds, policy.StillGranted) {
		kind = keepsGranted
	}
	add := func(err error) {
		x := c.pod.notInForce(kind, err)
		if x.cause.IsInternal() || !d.policy.KnowsVolumes() && !c.isLate() { // the volumes are known in a moment
			x.patience = patience
		}
		out = append(out, x)
	}
	if d.err != nil {
		add(d.err)
	}
	for _, err := range slices.Concat(d.desired.Claims, d.desired.Unenforced) {
		add(err)
	}
	return out
}
