package node

import (
	"errors"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/node/cause"
	"github.com/nri-blkio/nri-blkio/plugin/node/layers"
	"github.com/nri-blkio/nri-blkio/plugin/node/lifecycle"
	"github.com/nri-blkio/nri-blkio/plugin/node/notice"
	"github.com/nri-blkio/nri-blkio/plugin/nodereport"
	"github.com/nri-blkio/nri-blkio/plugin/podevent"
	"github.com/nri-blkio/nri-blkio/plugin/podfacts"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/plugin/reminder"
	"github.com/nri-blkio/nri-blkio/policy"
)

// What lasts is told once, in a line of the log, an event or both. Pure functions list the notices of a group of pods and of the node as
// a whole (nodeNotices): all states that are to be told while they last. told has those that were listed,
// and returns those that are due. A group is listed again only after it has changed, or when a notice of it waits for its time.

// tell tells what is due about the pods of a group.
func (n *Node) tell(of groupIdentity) {
	events, lines := n.dueOf(of, time.Now())
	n.note(events...)
	n.logLines(lines...)
}

func (n *Node) dueOf(of groupIdentity, now time.Time) (events []notice.Event, lines []notice.Line) {
	s := n.state.Lock()
	defer n.state.Unlock()
	g := of.in(s)
	if now.Before(g.told.Next) {
		return nil, nil
	}
	for _, x := range g.told.Due(g.notices(), now) {
		if x.Event != nil {
			events = append(events, x.Event())
		}
		if x.Line != nil {
			lines = append(lines, *x.Line)
		}
	}
	return events, lines
}

func (n *Node) logLines(lines ...notice.Line) {
	for i := range lines {
		if lines[i].Rejects {
			n.metrics.Rejected.Add(1)
		}
		lines[i].Log(n.log, n.policy.Load())
	}
}

// patience is the time for which limits are not in force before an event says so: most failures end with the first retries.
const patience = 5 * time.Second

// maxCauses bounds the causes of a pod that have events, so that they do not displace its other events.
const maxCauses = 4

// notices returns what is to be told about the pods of a group now.
func (g *group) notices() (out []notice.Notice[noticeKey]) {
	if err := g.retry.err; err != nil {
		at := logrus.Fields{"cgroup": g.cgroup}
		out = append(out, notice.Notice[noticeKey]{
			Key: noticeKey{kind: retried}, Again: reminder.Interval, Value: err.Error(),
			Line: &notice.Line{Level: logrus.ErrorLevel, Text: "Some limits are not in force, retrying", Fields: at, Err: err},
			End:  &notice.Line{Level: logrus.InfoLevel, Text: "All limits are in force again", Fields: at},
		})
	}
	if g.foreign != "" {
		out = append(out, notice.Notice[noticeKey]{Key: noticeKey{kind: foreignLimits}, Value: g.foreign, Line: &notice.Line{
			Level: logrus.WarnLevel, Text: "Another program limits the pod's cgroup: its limits stay", Fields: logrus.Fields{"cgroup": g.cgroup, "limits": g.foreign},
		}})
	}
	for _, pod := range g.pods {
		out = append(out, pod.notices(g)...)
	}
	return out
}

// notices returns what is to be told about a pod of a group.
func (p *pod) notices(g *group) (out []notice.Notice[noticeKey]) {
	if err := g.retry.err; err != nil {
		x := p.notInForce(notWritten, err)
		x.Patience, x.Again = patience, reminder.Interval
		x.Value, x.Key.cause = string(x.Key.cause.About()), cause.Key{} // with another cause, it has lasted as long
		out = append(out, x)
	}
	causes := map[noticeKey]bool{}
	for _, c := range p.containers {
		if c.decision.policy == nil || !c.isLive() || c.life.Phase() == lifecycle.Refused {
			continue
		}
		if out = append(out, c.lines()...); c.isStarting {
			continue
		}
		out = append(out, c.facts()...)
		for _, x := range c.causes() {
			if !causes[x.Key] && len(causes) < maxCauses {
				causes[x.Key] = true
				out = append(out, x)
			}
		}
	}
	if p.edit.err != nil {
		out = append(out, p.rejected())
	}
	if p.isComplete() {
		now, containers := p.request.now.Load(), record.WithEnded(p.seen(), g.recorded.exits) // the runtime does not list ended ones
		out = append(out, notice.Notice[noticeKey]{Key: noticeKey{kind: targetsUnmatched, pod: p.ref, request: now}, Line: &notice.Line{
			Level: logrus.WarnLevel, Fields: logrus.Fields{"pod": p.String()},
			Lines: func(pol *policy.Policy) []string { return now.Under(pol).Unmatched(containers) },
		}})
	}
	return out
}

// rejected returns the notice about a change that does not count.
func (p *pod) rejected() notice.Notice[noticeKey] {
	e, of := p.edit, partsOf(p.edit.err)
	out := notice.Notice[noticeKey]{Key: noticeKey{kind: changeRejected, pod: p.ref, cause: cause.KeyOf(e.err), parts: of}, Event: func() notice.Event {
		return notice.Event{Of: p.named(), Reason: podevent.ChangeRejected, Key: cause.KeyOf(e.err).About(of.String()), Note: e.text()}
	}}
	if e.next != nil { // otherwise SetLive has logged it
		out.Line = &notice.Line{Level: logrus.WarnLevel, Text: "Rejected changed limits of claims of a running pod", Fields: logrus.Fields{"pod": p.String()}, Err: e.err}
		if out.Line.Rejects = of.Has(podfacts.Annotations | podfacts.Labels); out.Line.Rejects {
			out.Line.Text = "Rejected an edit of a running pod"
		}
	}
	return out
}

// notInForce returns a notice about limits of the pod that are not in force.
func (p *podIdentity) notInForce(kind noticeKind, err error) notice.Notice[noticeKey] {
	key, note := "new", "some limits are not in force: "
	switch kind {
	case notWritten:
		key, note = "write", "some limits are not in force, retrying: "
	case keepsGranted:
		key, note = "kept", "some limits are not in force, and some that were granted before stay: "
	}
	return notice.Notice[noticeKey]{Key: noticeKey{kind: kind, pod: p.ref, cause: cause.KeyOf(err)}, Event: func() notice.Event {
		found := cause.Of(err)
		return notice.Event{Of: p.named(), Reason: podevent.NotInForce, Key: found.About(key), Note: note + found.Text}
	}}
}

// lines returns the notices about a container that are lines of the log. Before the answer to its start the container may be refused,
// so that no other line is due.
func (c *snapshot) lines() (out []notice.Notice[noticeKey]) {
	var patience time.Duration
	if c.isStarting {
		patience = math.MaxInt64
	}
	add := func(kind noticeKind, err error, text string) *notice.Notice[noticeKey] {
		out = append(out, notice.Notice[noticeKey]{Key: noticeKey{kind: kind, container: c.ref}, Patience: patience, Line: &notice.Line{
			Level: logrus.WarnLevel, Text: text, Fields: logrus.Fields{"pod": c.pod.String(), "container": c.name}, Err: err,
		}})
		x := &out[len(out)-1]
		if err != nil {
			x.Key.cause = cause.KeyOf(err)
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
		add(undeclaredUnknown, err, "Finding undeclared disks of a container failed").Value = err.Error()
	}
	if err := c.disks.Err(); err != nil {
		add(diskUnresolved, err, "Some disks of a container are not resolved yet")
	}
	if c.pid == 0 && c.mayRun() && c.disks.IsUncompared() {
		add(processUnknown, nil, "The runtime reports no process for a container: its mounts are not compared with the node's")
	}
	for _, m := range c.disks.Added {
		x := add(diskAdded, nil, "A mount of a container is on another disk than its path on the node led to: its limits hold for that disk as well")
		x.Key.subject, x.Line.Fields["mountpoint"], x.Line.Fields["disks"] = m.Mountpoint, m.Mountpoint, strings.Join(blkio.DiskNames(m.Backing.Disks), " ")
	}
	return out
}

// facts returns the notices about facts of a container's decision.
func (c *snapshot) facts() []notice.Notice[noticeKey] {
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
	return []notice.Notice[noticeKey]{{Key: key, Value: value, Event: c.fact}}
}

// fact returns the event about a fact of a container's decision.
func (c *snapshot) fact() notice.Event {
	d := c.decision
	if d.policy.Mode() != policy.ModeObserve {
		return notice.Event{Of: c.pod.named(), Reason: podevent.NoMemoryLimit, Key: podevent.KeyOf(c.name), Note: containerText(c.name) + " has a write limit and no memory limit of " +
			"at most half of the node's memory: its dirty pages can block all writers of the node (set resources.limits.memory)"}
	}
	out := notice.Event{Of: c.pod.named(), Reason: podevent.Observed, Note: "mode observe: " + containerText(c.name) + " would "}
	text := textOf(c.inForce())
	if d.err == nil {
		out.Note, out.Key = out.Note+"get "+text, podevent.KeyOf(c.name, text)
		return out
	}
	found := cause.Of(d.err)
	if d.policy.Action(d.err) == policy.Reject {
		out.Note, out.Key = out.Note+"be rejected: "+found.Text, found.About(c.name)
	} else {
		out.Note, out.Key = out.Note+"get "+text+", without what is not enforced: "+found.Text, found.About(c.name, text)
	}
	return out
}

// A container can run without a part of what its pod or its claims ask for. Either the policy ignores the error, or the container
// already runs and cannot be rejected, or the cause is not an error, such as a claim on NFS. A class that a rule of the policy
// chooses causes no event, because the author of the pod did not ask for it.

// causes returns why parts of what is requested for a container that runs are not in force. Mode observe and failed writes have
// notices of their own. A cause that mostly ends within seconds, such as a disk that cannot be read, has to last.
func (c *snapshot) causes() (out []notice.Notice[noticeKey]) {
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
		if x.Key.cause.IsInternal() || !d.policy.KnowsVolumes() && !c.isLate() { // the volumes are known in a moment
			x.Patience = patience
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

// Problems returns the problems of pods of which an event has told, and that last. Rejected containers are none of them: the state
// does not have these. It takes the lock for one group at a time, because it formats the texts of all notices.
func (n *Node) Problems() (out []nodereport.Problem) {
	for _, g := range n.groups() {
		out = append(out, n.problemsOf(g)...)
	}
	return out
}

func (n *Node) problemsOf(of groupIdentity) (out []nodereport.Problem) {
	s := n.state.Lock()
	defer n.state.Unlock()
	g := of.in(s)
	if len(g.told.Known) == 0 { // as of most groups
		return nil
	}
	for _, x := range g.notices() {
		if x.Event == nil || g.told.Known[x.Key].At.IsZero() {
			continue
		}
		e := x.Event()
		if of := e.Reason.Facts(); of.Type == podevent.Warning && !of.IsFact {
			out = append(out, nodereport.Problem{Namespace: e.Of.Namespace, Pod: e.Of.Name, Reason: string(e.Reason), Text: e.Note})
		}
	}
	return out
}

// nodeNotices returns what is to be told about the node as a whole now: a kernel without io.max, the errors of reading records and
// layers, layers elsewhere, and the pods without labels of their namespace.
func nodeNotices(kernel, records, located, elsewhere error, unlabelled []podIdentity) (out []notice.Notice[noticeKey]) {
	add := func(kind noticeKind, patience time.Duration, l *notice.Line) {
		if l.Err != nil {
			out = append(out, notice.Notice[noticeKey]{Key: noticeKey{kind: kind}, Patience: patience, Again: reminder.Interval, Value: l.Err.Error(), Line: l})
		}
	}
	add(limitsMissing, 0, &notice.Line{
		Level: logrus.WarnLevel, Text: "This node cannot limit: annotations with limits are unenforceable, and limits of classes are skipped", Err: kernel,
	})
	add(recordsUnread, 0, &notice.Line{
		Level: logrus.WarnLevel, Text: "Reading the records of pods without limits failed, retrying: limits of an earlier policy may stay", Err: records,
	})
	add(layersUnknown, layers.MaxPause, &notice.Line{ // a runtime that starts takes some seconds
		Level: logrus.WarnLevel, Text: "Asking the runtime for the location of writable layers failed: using its configuration files", Err: located,
	})
	add(layersElsewhere, 0, &notice.Line{
		Level: logrus.WarnLevel, Text: "Writable layers are on another disk than the runtime or its configuration says: rootfs means where containers have them", Err: elsewhere,
	})
	if len(unlabelled) > 0 {
		add(labelsUnknown, 0, &notice.Line{
			Level: logrus.ErrorLevel, Text: "Labels of namespaces are unknown: rules with namespaceSelector do not match their pods", Err: errNotDescribed,
			Fields: logrus.Fields{"pods": len(unlabelled), "pod": unlabelled[0].String()},
		})
	}
	return out
}

// tellOfNode tells what is due about the node. The labels of a new pod's namespace are known a moment after its sandbox is.
func (n *Node) tellOfNode(records error) {
	now := time.Now()
	for _, x := range n.told.Due(nodeNotices(n.kernelProblem(), records, n.layers.Problem(), n.layers.Elsewhere(), n.unlabelled(now.Add(-n.resync))), now) {
		n.logLines(*x.Line)
	}
}

// kernelProblem returns why this node cannot limit, or nil.
func (n *Node) kernelProblem() error {
	if slices.Contains(n.controls.Missing(), blkio.IOMax) {
		return errors.New(policy.NoIOMax)
	}
	return nil
}

// Problem returns why this node cannot limit, or that writable layers are elsewhere than the runtime says, for people; "" for neither.
func (n *Node) Problem() string {
	if err := n.kernelProblem(); err != nil {
		return err.Error()
	}
	if err := n.layers.Elsewhere(); err != nil {
		return "writable layers are on another disk than the runtime or its configuration says: " + err.Error()
	}
	return ""
}
