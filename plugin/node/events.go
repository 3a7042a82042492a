package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/plugin/bounded"
	"github.com/nri-blkio/nri-blkio/plugin/enforce/plan"
	"github.com/nri-blkio/nri-blkio/plugin/podevent"
	"github.com/nri-blkio/nri-blkio/plugin/reminder"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
	"github.com/nri-blkio/nri-blkio/policy/quote"
)

// Events receives what happens to pods. A note has text of its pod only.
type Events interface {
	// Note notes that something has happened to a pod. It waits for nothing.
	Note(of podevent.Pod, reason podevent.Reason, note string)
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

// notedEdit is a rejected edit of which an event was noted, and the text without amounts that change by themselves.
type notedEdit struct {
	next *request
	text string
}

func (d *decision) noted() notedDecision {
	return notedDecision{d.policy, d.request, len(d.desired.Settings)}
}

// event is one for Events.
type event struct {
	of     podevent.Pod
	reason podevent.Reason
	note   string
}

func (n *Node) note(events ...event) {
	for _, e := range events {
		if n.events != nil {
			n.events.Note(e.of, e.reason, e.note)
		}
	}
}

func (p *podIdentity) named() podevent.Pod {
	return podevent.Pod{UID: p.uid, Namespace: p.namespace, Name: p.name}
}

// sandbox returns the facts of a sandbox by which its pod is found.
func (p *podIdentity) sandbox() *Sandbox {
	return &Sandbox{ID: p.id, Namespace: p.namespace, Name: p.name, UID: p.uid}
}

func (sb *Sandbox) named() podevent.Pod {
	return podevent.Pod{UID: sb.UID, Namespace: sb.Namespace, Name: sb.Name}
}

// containerText names a container in a note.
func containerText(name string) string { return "container " + quote.Name(name, quote.Most) }

// noteRefused notes that a container is rejected. The kubelet tries again, and each time counts.
func (n *Node) noteRefused(sb *Sandbox, container string, refusal error) {
	n.note(event{sb.named(), podevent.Refused, containerText(container) + " is rejected: " + refusal.Error()})
}

// noteProblem notes that limits of a group are not in force. err is nil if all of them are.
func (n *Node) noteProblem(g groupIdentity, err error) {
	var cause error
	if err != nil {
		cause = errors.New(causeOf(err))
	}
	for _, p := range n.toAnnounce(g, time.Now(), cause) {
		n.note(event{p.named(), podevent.NotInForce, "some limits are not in force, retrying: " + cause.Error()})
	}
}

// toAnnounce returns the pods of a group, if its problem has lasted for some time, and is new or was announced some time
// ago.
func (n *Node) toAnnounce(of groupIdentity, now time.Time, cause error) (out []podIdentity) {
	s := n.state.Lock()
	defer n.state.Unlock()
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

// errNoAnswer is the error of a container whose resolution has been under way for too long.
var errNoAnswer = errors.New("one of its disks does not answer")

// errWriteHangs is the error of a group whose writer has been at work for too long.
var errWriteHangs = errors.New("a write to the pod's cgroups hangs in the kernel")

// causeOf returns the cause of an error in text that a tenant may see. The text of other errors can have paths of the node,
// and with them names of other tenants: so only errors of these kinds have one.
func causeOf(err error) string {
	if invalid, ok := errors.AsType[*annotation.Error](err); ok {
		return invalid.Error()
	}
	for _, known := range []error{errNoAnswer, errWriteHangs, bounded.ErrBusy} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	if failed, ok := errors.AsType[*cgroupfs.CgroupError](err); ok && failed.Data != "" {
		return fmt.Sprintf("%s %s %q: %s", failed.Op, failed.Name, failed.Data, reasonOf(failed.Err))
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "a disk or a cgroup does not answer in time"
	}
	return strings.TrimPrefix(ErrInternal.Error(), "nri-blkio: ")
}

// reasonOf returns the reason of the system for a failed write, without the path.
func reasonOf(err error) string {
	for _, known := range []error{blkio.ErrGone, blkio.ErrNoDevice, blkio.ErrNotSupported} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	if failed, ok := errors.AsType[*fs.PathError](err); ok {
		err = failed.Err
	}
	return err.Error()
}

// noteApplied notes that a change of a pod counts, with the limits that its containers get by it.
func (n *Node) noteApplied(pod *podIdentity, applied string, of []identity) {
	if n.events == nil {
		return
	}
	texts := make([]string, 0, len(of))
	for _, c := range of {
		now := n.snapshot(c.ref)
		if now.decision.policy == nil || !now.isLive() || !now.decision.request.isOf(pod) {
			continue
		}
		if now.decision.policy.Mode() == policy.ModeObserve {
			return // that is the event then
		}
		texts = append(texts, containerText(c.name)+" gets "+now.decision.text())
	}
	n.note(event{pod.named(), podevent.Changed, strings.Join(append([]string{applied}, texts...), "; ")})
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
	decided, states := n.unnoted(g, time.Now())
	for i := range decided {
		if reason, note := decided[i].fact(); note != "" {
			n.note(event{decided[i].pod.named(), reason, note})
		}
	}
	n.note(states...)
}

// unnoted returns the running containers of a group with decisions whose facts were not noted yet, and events for rejected
// edits and for limits that are not in force. They count as noted from then on.
func (n *Node) unnoted(of groupIdentity, at time.Time) (decided []snapshot, states []event) {
	s := n.state.Lock()
	defer n.state.Unlock()
	for _, pod := range of.in(s).sorted() {
		containers := pod.sorted()
		for _, c := range containers {
			if now := c.decision.noted(); c.mayRun() && now.policy != nil && now != c.noted {
				c.noted = now
				decided = append(decided, c.snapshot)
			}
		}
		states = append(states, pod.newCauses(containers, at)...)
		text := pod.edit.text()
		if now := (notedEdit{pod.edit.next, annotation.WithoutAmounts(text)}); now != pod.notedEdit {
			if pod.notedEdit = now; text != "" {
				states = append(states, event{pod.named(), podevent.ChangeRejected, text})
			}
		}
	}
	return decided, states
}

// text returns why the edit is rejected, and "" if it is not.
func (e *edit) text() string {
	switch {
	case e.err == nil:
		return ""
	case e.next == nil: // the annotations are too large to be passed on
		return e.err.Error()
	}
	of := partAnnotations
	if r, ok := errors.AsType[*rejectedEdit](e.err); ok {
		of = r.parts
	}
	return (&rejectedEdit{of, errors.New(causeOf(e.err))}).Error()
}

// fact returns the fact that an event is about, with an empty note for none.
func (c *snapshot) fact() (podevent.Reason, string) {
	d := &c.decision
	if d.policy.Mode() != policy.ModeObserve {
		if slices.Contains(d.desired.WarningKinds, policy.NoMemoryLimit) {
			return podevent.NoMemoryLimit, containerText(c.name) + " has a write limit and no memory limit of at most half of the node's memory: " +
				"its dirty pages can block all writers of the node (set resources.limits.memory)"
		}
		return "", ""
	}
	would := "mode observe: " + containerText(c.name) + " would "
	switch {
	case d.err != nil && d.policy.Action(d.err) == policy.Reject:
		return podevent.Observed, would + "be rejected: " + causeOf(d.err)
	case d.err != nil:
		return podevent.Observed, would + "get " + d.text() + ", without what is not enforced: " + causeOf(d.err)
	case len(d.desired.Settings) > 0:
		return podevent.Observed, would + "get " + d.text()
	}
	return "", ""
}

// present returns the UIDs of the node's pods, and nil before the runtime has listed them.
func (n *Node) present() map[string]bool {
	if !n.listing.done.Load() {
		return nil
	}
	s := n.state.Lock()
	defer n.state.Unlock()
	out := make(map[string]bool, len(s.pods))
	for _, p := range s.pods {
		out[p.uid] = true
	}
	return out
}

// PodsByCgroup returns the pods of the node by the paths of their cgroups, with bystanders.
func (n *Node) PodsByCgroup() map[string]podevent.Pod {
	s := n.state.Lock()
	defer n.state.Unlock()
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
