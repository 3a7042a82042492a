package node

import (
	"errors"
	"slices"
	"time"

	"github.com/nri-blkio/nri-blkio/plugin/node/lifecycle"
	"github.com/nri-blkio/nri-blkio/plugin/podevent"
	"github.com/nri-blkio/nri-blkio/plugin/podfacts"
	"github.com/nri-blkio/nri-blkio/plugin/reminder"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// Each turn of a group lists what is to be told about its pods now. A ledger of each pod has what was told, so that a state that lasts
// is told when it begins, and not in each turn. Events are one sink of what is due. The log is the other one.

// patience is the time for which limits are not in force before that is told: most failures end with the first retries.
const patience = 5 * time.Second

// maxCauses bounds the causes of a pod that are told, so that they do not displace its other events.
const maxCauses = 4

// notice is a state of a pod that is to be told while it lasts.
type notice struct {
	noticeKey
	since    time.Time     // when it began; zero if that is when it is first listed
	patience time.Duration // for which it has to last before it is told
	again    time.Duration // after which it is told again; 0 for never
	err      error         // that it is about; nil for a fact
}

// noticeKey identifies a notice for programs. It stays the same while only the text of the notice changes.
type noticeKey struct {
	reason    podevent.Reason
	container containerRef // of a fact
	decision  decisionKey  // of a fact
	cause     editKey      // of an edit or of limits that are not in force
	isRetried bool         // limits could not be decided or written
	isKept    bool         // some limits that were granted before stay
}

// decisionKey identifies a decision with the disks that it is about: more can be found later.
type decisionKey struct {
	policy   *policy.Pod
	request  *podfacts.Request
	settings int
}

// told is what was listed at the last look at a pod.
type told []toldNotice

type toldNotice struct {
	noticeKey
	since, at time.Time // at is zero if it was not told yet
	isListed  bool      // of this look
}

// due returns those notices that are to be told now, and keeps that they were. It forgets what is not listed any more.
func (t *told) due(listed []notice, now time.Time) (out []notice) {
	for i := range *t {
		(*t)[i].isListed = false
	}
	for _, x := range listed {
		i := slices.IndexFunc(*t, func(known toldNotice) bool { return known.noticeKey == x.noticeKey })
		if i < 0 {
			i = len(*t)
			*t = append(*t, toldNotice{noticeKey: x.noticeKey, since: now})
			if !x.since.IsZero() {
				(*t)[i].since = x.since
			}
		}
		known := &(*t)[i]
		isDue := known.at.IsZero() || x.again > 0 && now.Sub(known.at) >= x.again
		if isDue && !known.isListed && now.Sub(known.since) >= x.patience {
			known.at = now
			out = append(out, x)
		}
		known.isListed = true
	}
	*t = slices.DeleteFunc(*t, func(known toldNotice) bool { return !known.isListed })
	return out
}

// forget has notices of a reason told again.
func (t *told) forget(reason podevent.Reason) {
	*t = slices.DeleteFunc(*t, func(known toldNotice) bool { return known.reason == reason })
}

// tell tells what is due about the pods of a group.
func (n *Node) tell(g groupIdentity) {
	events, rejected := n.dueNotices(g, time.Now())
	n.note(events...)
	for _, e := range rejected {
		n.logRejected(e)
	}
}

// dueNotices returns the events that are due about the pods of a group, and the rejected edits among them.
func (n *Node) dueNotices(of groupIdentity, now time.Time) (events []event, rejected []loggedEdit) {
	s := n.state.Lock()
	defer n.state.Unlock()
	g := of.in(s)
	for _, pod := range g.sorted() {
		for _, x := range pod.told.due(pod.notices(&g.retry), now) {
			events = append(events, x.event(s, pod))
			if err, ok := errors.AsType[*rejectedEdit](x.err); ok && pod.edit.next != nil { // otherwise SetLive has logged it
				rejected = append(rejected, loggedEdit{pod.podIdentity, err})
			}
		}
	}
	return events, rejected
}

// notices returns what is to be told about a pod now. Those are few, and mostly the same as before.
func (p *pod) notices(problem *retry) (out []notice) {
	if problem.err != nil {
		key := noticeKey{reason: podevent.NotInForce, cause: editKey{causeKey: keyOf(problem.err)}, isRetried: true}
		out = append(out, notice{noticeKey: key, since: problem.since, patience: patience, again: reminder.Interval, err: problem.err})
	}
	containers := p.sorted()
	for _, c := range containers {
		if reason, found := c.fact(); found {
			out = append(out, notice{noticeKey: noticeKey{reason: reason, container: c.ref, decision: c.decision.key()}})
		}
	}
	first := len(out)
	for _, c := range containers {
		for _, err := range c.causes() {
			x := c.noticeOf(err)
			isListed := slices.ContainsFunc(out[first:], func(o notice) bool { return o.noticeKey == x.noticeKey })
			if !isListed && len(out)-first < maxCauses {
				out = append(out, x)
			}
		}
	}
	if e := &p.edit; e.err != nil && (e.next == nil || e.isRejected) {
		out = append(out, notice{noticeKey: noticeKey{reason: podevent.ChangeRejected, cause: editKeyOf(e.err)}, err: e.err})
	}
	return out
}

// event returns the event of a notice about a pod.
func (x *notice) event(s *state, p *pod) event {
	switch {
	case x.reason == podevent.ChangeRejected:
		return event{p.named(), x.reason, x.cause.about(x.cause.parts.String()), p.edit.text()}
	case x.isRetried:
		return event{p.named(), x.reason, x.cause.about("write"), "some limits are not in force, retrying: " + causeOf(x.err).text}
	case x.isKept:
		return event{p.named(), x.reason, x.cause.about("kept"), "some limits are not in force, and some that were granted before stay: " + causeOf(x.err).text}
	case x.reason == podevent.NotInForce:
		return event{p.named(), x.reason, x.cause.about("new"), "some limits are not in force: " + causeOf(x.err).text}
	}
	note, key := x.container.In(s).factText()
	return event{p.named(), x.reason, key, note}
}

func (d *decision) key() decisionKey {
	return decisionKey{d.policy, d.request, len(d.desired.Settings)}
}

// fact returns the reason of an event about a fact of a container's decision, and false if there is none.
func (c *snapshot) fact() (podevent.Reason, bool) {
	d := &c.decision
	switch {
	case !c.mayRun() || d.policy == nil:
		return "", false
	case d.policy.Mode() == policy.ModeObserve:
		return podevent.Observed, d.err != nil || len(d.desired.Settings) > 0
	}
	return podevent.NoMemoryLimit, slices.Contains(d.desired.WarningKinds, policy.NoMemoryLimit)
}

// factText returns the note about the fact of a container's decision, and its key.
func (c *snapshot) factText() (string, podevent.Key) {
	d := &c.decision
	if d.policy.Mode() != policy.ModeObserve {
		return containerText(c.name) + " has a write limit and no memory limit of at most half of the node's memory: " +
			"its dirty pages can block all writers of the node (set resources.limits.memory)", podevent.KeyOf(c.name)
	}
	would := "mode observe: " + containerText(c.name) + " would "
	if d.err == nil {
		return would + "get " + d.text(), podevent.KeyOf(c.name, d.text())
	}
	found := causeOf(d.err)
	if d.policy.Action(d.err) == policy.Reject {
		return would + "be rejected: " + found.text, found.about(c.name)
	}
	return would + "get " + d.text() + ", without what is not enforced: " + found.text, found.about(c.name, d.text())
}

// A container can run without a part of what its pod or its claims ask for. Either the policy ignores the error, or the container
// already runs and cannot be rejected, or the cause is not an error, such as a claim on NFS. A class that a rule of the policy
// chooses causes no event, because the author of the pod did not ask for it.

// causes returns why parts of what is requested for a container that runs are not in force. Mode observe and failed writes have
// notices of their own, and so has a container whose start was refused.
func (c *snapshot) causes() (out []error) {
	d := &c.decision
	if d.policy == nil || d.policy.Mode() != policy.ModeEnforce || !c.mayRun() || c.life.Phase() == lifecycle.Refused {
		return nil
	}
	if d.err != nil {
		out = append(out, d.err)
	}
	for _, errs := range [][]*annotation.Error{d.desired.Claims, d.desired.Unenforced} {
		for _, err := range errs {
			out = append(out, err)
		}
	}
	return out
}

// noticeOf returns the notice about one cause. A cause that mostly ends within seconds, such as a disk that cannot be read, has to last.
func (c *snapshot) noticeOf(err error) notice {
	d, key := &c.decision, keyOf(err)
	isKept := slices.Contains(d.desired.WarningKinds, policy.StillGranted)
	out := notice{noticeKey: noticeKey{reason: podevent.NotInForce, cause: editKey{causeKey: key}, isKept: isKept}, err: err}
	isInternal := key.failure != "" || key.request.Reason.Kind() == annotation.Internal
	if isInternal || !d.policy.KnowsClaims() && !c.isLate() { // the claims are known in a moment
		out.patience = patience
	}
	return out
}
