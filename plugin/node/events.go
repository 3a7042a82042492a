package node

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/plugin/enforce/plan"
	"github.com/nri-blkio/nri-blkio/plugin/podevent"
	"github.com/nri-blkio/nri-blkio/plugin/reminder"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/quote"
)

// Events receives what happens to pods. A note has text of its pod only.
type Events interface {
	// Note notes that something has happened to a pod. The key is the same if it happens again. Note waits for nothing.
	Note(of podevent.Pod, reason podevent.Reason, key podevent.Key, note string)
	// Run keeps what was noted until ctx ends. present returns the UIDs of the node's pods, and nil while they are not known.
	Run(ctx context.Context, present func() map[string]bool)
}

// patience is the time for which limits are not in force before that is an event: most failures end with the first retries.
const patience = 5 * time.Second

// announced is what was noted about a lasting problem of a group.
type announced struct {
	since time.Time // when it began
	reminder.Reminder
}

// notedDecision is the decision about a container of which the facts were noted.
type notedDecision struct {
	policy   *policy.Pod
	request  *request
	settings int // their number: more disks can be found later
}

// notedEdit is a rejected edit of which an event was noted, and the reason.
type notedEdit struct {
	next *request
	editKey
}

func (d *decision) noted() notedDecision {
	return notedDecision{d.policy, d.request, len(d.desired.Settings)}
}

// event is one for Events.
type event struct {
	of     podevent.Pod
	reason podevent.Reason
	key    podevent.Key
	note   string
}

func (n *Node) note(events ...event) {
	for _, e := range events {
		if n.events != nil {
			n.events.Note(e.of, e.reason, e.key, e.note)
		}
	}
}

func (p *podIdentity) named() podevent.Pod {
	return podevent.Pod{UID: p.uid, Namespace: p.namespace, Name: p.name}
}

func (sb *Sandbox) named() podevent.Pod {
	return podevent.Pod{UID: sb.UID, Namespace: sb.Namespace, Name: sb.Name}
}

// containerText names a container in a note.
func containerText(name string) string { return "container " + quote.Name(name, quote.Most) }

// noteRefused notes that a container is rejected. The kubelet tries again, and each time counts.
func (n *Node) noteRefused(sb *Sandbox, container string, refusal error) {
	n.note(event{sb.named(), podevent.Refused, causeOf(refusal).about(container), containerText(container) + " is rejected: " + refusal.Error()})
}

// noteProblem notes that limits of a group are not in force. err is nil if all of them are.
func (n *Node) noteProblem(g groupIdentity, err error) {
	var found cause
	var text error
	if err != nil {
		found = causeOf(err)
		text = errors.New(found.text)
	}
	for _, p := range n.pods.toAnnounce(g, time.Now(), text) {
		n.note(event{p.named(), podevent.NotInForce, found.about("write"), "some limits are not in force, retrying: " + found.text})
	}
}

// toAnnounce returns the pods of a group, if its problem has lasted for some time, and is new or was announced some time
// ago.
func (t *podTable) toAnnounce(of groupIdentity, now time.Time, cause error) (out []podIdentity) {
	s := t.state.Lock()
	defer t.state.Unlock()
	g := of.in(s)
	known := &g.retry.announced
	if cause == nil {
		*known = announced{}
		return nil
	}
	if known.since.IsZero() {
		known.since = now
	}
	if now.Sub(known.since) < patience || !known.Due(now, cause) {
		return nil
	}
	for _, pod := range g.sorted() {
		out = append(out, pod.podIdentity)
	}
	return out
}

// noteApplied notes that a change of a pod counts, with the limits that its containers get by it.
func (n *Node) noteApplied(pod *podIdentity, applied string, of []identity) {
	if n.events == nil {
		return
	}
	texts := make([]string, 0, len(of))
	for _, c := range of {
		now := n.pods.snapshot(c.ref)
		if now.decision.policy == nil || !now.isLive() || !now.decision.request.isOf(pod) {
			continue
		}
		if now.decision.policy.Mode() == policy.ModeObserve {
			return // that is the event then
		}
		texts = append(texts, containerText(c.name)+" gets "+now.decision.text())
	}
	texts = append([]string{applied}, texts...)
	n.note(event{pod.named(), podevent.Changed, podevent.KeyOf(texts...), strings.Join(texts, "; ")})
}

// text describes the settings of a decision.
func (d *decision) text() string {
	kept := d.desired
	kept.Settings = plan.Kept(kept.Settings)
	if len(kept.Settings) == 0 {
		return "no limits"
	}
	return strings.Join(describe(kept), ", ")
}

// noteDecisions notes what was not noted yet: the facts about decisions for the containers of a group, why some limits are not in
// force, and rejected edits.
func (n *Node) noteDecisions(g groupIdentity) {
	if n.events == nil {
		return
	}
	decided, states := n.pods.unnoted(g, time.Now())
	for i := range decided {
		if fact, ok := decided[i].fact(); ok {
			n.note(fact)
		}
	}
	n.note(states...)
}

// unnoted returns the running containers of a group with decisions whose facts were not noted yet, and events for rejected
// edits and for limits that are not in force. They count as noted from then on.
func (t *podTable) unnoted(of groupIdentity, at time.Time) (decided []snapshot, states []event) {
	s := t.state.Lock()
	defer t.state.Unlock()
	for _, pod := range of.in(s).sorted() {
		containers := pod.sorted()
		for _, c := range containers {
			if now := c.decision.noted(); c.mayRun() && now.policy != nil && now != c.noted {
				c.noted = now
				decided = append(decided, c.snapshot)
			}
		}
		states = append(states, pod.newCauses(containers, at)...)
		key, text := pod.edit.rejection()
		if now := (notedEdit{pod.edit.next, key}); now != pod.notedEdit {
			if pod.notedEdit = now; text != "" {
				states = append(states, event{pod.named(), podevent.ChangeRejected, key.about(key.parts.String()), text})
			}
		}
	}
	return decided, states
}

// rejection returns why the edit is rejected, and zero values if it is not.
func (e *edit) rejection() (key editKey, text string) {
	if e.err == nil {
		return editKey{}, ""
	}
	key = editKeyOf(e.err)
	if e.next == nil { // the annotations are too large to be passed on
		return key, e.err.Error()
	}
	return key, (&rejectedEdit{key.parts, errors.New(causeOf(e.err).text)}).Error()
}

// fact returns an event about a fact of a decision, and false if there is none.
func (c *snapshot) fact() (event, bool) {
	d, pod := &c.decision, c.pod.named()
	if d.policy.Mode() != policy.ModeObserve {
		return event{pod, podevent.NoMemoryLimit, podevent.KeyOf(c.name), containerText(c.name) + " has a write limit and no memory limit of at most half of the node's memory: " +
			"its dirty pages can block all writers of the node (set resources.limits.memory)"}, slices.Contains(d.desired.WarningKinds, policy.NoMemoryLimit)
	}
	would, found := "mode observe: "+containerText(c.name)+" would ", causeOf(d.err)
	switch {
	case d.err != nil && d.policy.Action(d.err) == policy.Reject:
		return event{pod, podevent.Observed, found.about(c.name), would + "be rejected: " + found.text}, true
	case d.err != nil:
		return event{pod, podevent.Observed, found.about(c.name, d.text()), would + "get " + d.text() + ", without what is not enforced: " + found.text}, true
	}
	return event{pod, podevent.Observed, podevent.KeyOf(c.name, d.text()), would + "get " + d.text()}, len(d.desired.Settings) > 0
}

// uids returns the UIDs of the node's pods.
func (t *podTable) uids() map[string]bool {
	s := t.state.Lock()
	defer t.state.Unlock()
	out := make(map[string]bool, len(s.pods)+len(s.bystanders))
	for _, p := range s.pods {
		out[p.uid] = true
	}
	for _, b := range s.bystanders {
		out[b.sandbox.UID] = true
	}
	return out
}

// present returns the UIDs of the node's pods, and nil before the runtime has listed them.
func (n *Node) present() map[string]bool {
	if !n.listing.done.Load() {
		return nil
	}
	return n.pods.uids()
}

// PodsByCgroup returns the pods of the node by the paths of their cgroups, with bystanders.
func (n *Node) PodsByCgroup() map[string]podevent.Pod {
	out := n.pods.byCgroup()
	for _, sb := range n.pods.bystanding() {
		if cgroup, err := cgroupfs.PodCgroup(sb.Cgroup); err == nil { // else no file is known to be written by it
			out[cgroup] = sb.named()
		}
	}
	return out
}

func (t *podTable) byCgroup() map[string]podevent.Pod {
	s := t.state.Lock()
	defer t.state.Unlock()
	out := map[string]podevent.Pod{}
	for _, g := range s.groups {
		if g.cgroup == "" || g.shared() {
			continue
		}
		for _, pod := range g.pods { // all are sandboxes of one pod
			out[g.cgroup] = pod.named()
		}
	}
	return out
}
