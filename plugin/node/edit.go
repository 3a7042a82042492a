package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nri-blkio/nri-blkio/plugin/node/cause"
	"github.com/nri-blkio/nri-blkio/plugin/node/notice"
	"github.com/nri-blkio/nri-blkio/plugin/podevent"
	"github.com/nri-blkio/nri-blkio/plugin/podfacts"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// An edit is what the API server knows about a running pod, and what does not count yet: the containers run, so none can be rejected
// with a message. It counts if it is valid, and if the budget of the namespace has room for all that the pod is granted by it.
// Otherwise what was granted stays. Annotations and facts (labels, claims) can have different authors, so
// either of them counts without the other.

// edits returns the edits of the pods of a group that can be tried, in the order of the pods' arrival.
func (n *Node) edits(of groupIdentity) (out []editOf) {
	s := n.state.Lock()
	defer n.state.Unlock()
	for _, p := range of.in(s).pods {
		if e, ok := p.editNow(); ok {
			out = append(out, e)
		}
	}
	return out
}

// editNow returns the edit of a pod, if it has one that can be tried. Annotations wait for a live container, unless containers are
// rejected: without one they would count unseen, and could keep the next container from starting.
func (p *pod) editNow() (e editOf, ok bool) {
	next, now := p.edit.next, p.request.now.Load()
	if next == nil {
		return e, false
	}
	e = editOf{p.podIdentity, next, next.Differences(now), false, next.ChangedClaims(now)}
	e.waits = e.parts.Has(podfacts.Annotations) && !p.hasLiveContainer() && !p.isRejected()
	return e, !e.waits || e.parts.Has(besideAnnotations)
}

// isRejected reports whether the last container that was created was rejected.
func (p *pod) isRejected() bool {
	var last knownFacts
	for _, known := range p.known {
		if known.arrival > last.arrival {
			last = known
		}
	}
	return last.isRejected
}

// candidates returns what may count of an edit, the best first: all of it, its facts alone, or its annotations alone.
func (e *editOf) candidates(now *podfacts.Request) []*podfacts.Request {
	facts := now.With(e.next, besideAnnotations)
	switch {
	case e.waits:
		return []*podfacts.Request{facts}
	case !e.parts.Has(podfacts.Annotations) || !e.parts.Has(besideAnnotations):
		return []*podfacts.Request{e.next}
	}
	return []*podfacts.Request{e.next, facts, now.With(e.next, podfacts.Annotations)}
}

// tryEdit makes an edit or a part of it count, or notes why it is rejected. It reports whether a part of it counts. An error is an
// internal failure, after which the edit is tried again.
func (n *Node) tryEdit(ctx context.Context, e *editOf) (accepted bool, _ error) {
	found, err := n.findForEdit(ctx, e)
	if err != nil {
		return false, err
	}
	v, pol := n.viewPod(e.pod), n.policy.Load()
	v.keepLive()
	before := v.containers
	v.known = nil // their disks were not found for other targets
	if !v.use(found, pol) {
		n.markDirty(e.pod.group) // the next pass finds what has changed
		return false, nil
	}
	var rejection error
	for _, by := range e.candidates(v.request) {
		p := v.propose(by, by.Under(pol), copies(v.containers), n.controls.Missing())
		reason := p.refused()
		if reason == nil {
			excess, err := n.commitEdit(&p, e)
			if err != nil {
				return false, nil
			}
			if excess == nil {
				n.noteCounts(&p, e, before)
				if by == e.next {
					return true, nil
				}
				accepted, e.parts = true, e.next.Differences(by)
				break
			}
			reason = excess
		}
		if rejection == nil {
			rejection = reason
		}
	}
	if rejection != nil {
		n.noteRejected(e, rejection)
	}
	return accepted, nil
}

// keepLive drops the containers that have ended.
func (v *podView) keepLive() {
	v.containers = slices.DeleteFunc(v.containers, func(c snapshot) bool { return !c.isLive() })
}

// use has a view use what was found for an edit. It returns false if the containers or their disks are not those any more, or if the
// containers are not decided by the request that counts: it would not be known what they take of a budget already.
func (v *podView) use(found []snapshot, pol *policy.Policy) bool {
	if len(v.containers) != len(found) {
		return false
	}
	v.containers = slices.Clone(v.containers)
	for i := range v.containers {
		c, f := &v.containers[i], &found[i]
		if f.ref != c.ref || f.search.rev != c.search.rev || !c.decidedBy(pol) {
			return false
		}
		c.disks, c.layer = f.disks, f.layer
	}
	return true
}

// findForEdit finds the disks of a pod's containers also for the targets of an edit. It may hang as long as a disk does. So it has a
// goroutine of its own, and keeps no container from being decided by the request that counts.
func (n *Node) findForEdit(ctx context.Context, e *editOf) ([]snapshot, error) {
	v := n.viewPod(e.pod)
	v.keepLive()
	for i := range v.containers {
		if c := &v.containers[i]; !c.isDecidable() || c.hangs() {
			return nil, fmt.Errorf("container %s: %w", c.name, cmp.Or(c.search.err, cause.ErrNoAnswer))
		}
	}
	pol := n.policy.Load()
	what := soughtBy(e.next.Under(pol))
	what.targets = what.targets.And(v.request.Under(pol).Targets())
	found := make(chan []snapshot, 1)
	err := n.inFlight.passes.Within(ctx, e.pod.group.key+" edit", func(ctx context.Context) error {
		if !n.beginTrial(e) {
			return fmt.Errorf("find the disks of its new targets: %w", cause.ErrNoAnswer)
		}
		defer n.endTrial(e)
		for i := range v.containers {
			c := &v.containers[i]
			if _, err := n.finder().find(ctx, what, n.layers.Current(), c); err != nil { // the pass compares the mounts
				return fmt.Errorf("container %s: %w", c.name, err)
			}
		}
		found <- v.containers
		return nil
	})
	if err != nil {
		return nil, err
	}
	return <-found, nil
}

// beginTrial notes that an edit is tried. It returns false if that is under way: the edit was tried by an earlier pass,
// whose deadline has ended.
func (n *Node) beginTrial(e *editOf) bool {
	s := n.state.Lock()
	defer n.state.Unlock()
	p := e.pod.in(s)
	if p.trying == e.next {
		return false
	}
	p.trying = e.next
	return true
}

func (n *Node) endTrial(e *editOf) {
	s := n.state.Lock()
	defer n.state.Unlock()
	if p := e.pod.in(s); p.trying == e.next { // otherwise a newer edit is tried
		p.trying = nil
	}
}

// refused returns the error because of which the proposal rejects an edit, or nil. Facts alone are like a new policy: limits that
// were granted stay, and only the budget can reject them.
func (p *proposal) refused() error {
	if !p.editsAnnotations() {
		return nil
	}
	for _, err := range p.policy.Check() {
		if refusesEdit(p.policy, err) {
			return err
		}
	}
	for _, c := range p.containers {
		if !c.isLive() { // it has ended
			continue
		}
		for _, err := range c.decision.desired.Errors {
			if refusesEdit(p.policy, err) {
				return err
			}
		}
		if refusesEdit(p.policy, c.decision.err) {
			return c.decision.err
		}
	}
	return nil
}

// refusesEdit reports whether an error rejects an edit. An invalid edit changes nothing, even where the policy lets
// containers start that have an invalid annotation.
func refusesEdit(pol *policy.Pod, err error) bool {
	invalid, ok := errors.AsType[*annotation.Error](err)
	return ok && invalid.Kind() == annotation.Invalid || pol.Refuses(err)
}

// noteRejected notes why an edit, or what is left of it, is rejected. It is tried again with each pass, because the policy, the disks or
// the budget may change.
func (n *Node) noteRejected(e *editOf, why error) {
	err := &rejectedEdit{e.parts, why}
	s := n.state.Lock()
	defer n.state.Unlock()
	p := e.pod.in(s)
	if p.edit.next != e.next {
		return
	}
	isTold := p.edit.err != nil && partsOf(p.edit.err) == e.parts && cause.KeyOf(p.edit.err) == cause.KeyOf(why)
	if p.edit.err = err; !isTold {
		s.changed(p.group.in(s)) // the record has the error
	}
}

// noteCounts notes that a candidate of an edit counts. Labels by which no rule selects change often, and claims are also tried when
// they become known: these are noted if a container gets other limits.
func (n *Node) noteCounts(p *proposal, e *editOf, before []snapshot) {
	parts := p.request.Differences(p.view.request)
	var changed []string // containers that have other limits than before
	for i := range before {
		now := p.containers[i]
		if !now.decision.hasValuesOf(before[i].decision) {
			changed = append(changed, now.name)
		}
	}
	log := n.log.WithField("pod", e.pod.String())
	switch {
	case !parts.Has(podfacts.Annotations | podfacts.Labels):
		for _, container := range changed {
			log.WithField("container", container).Info("Applying changed limits of claims to a running container")
		}
		if len(changed) > 0 && len(e.claims) > 0 {
			n.noteApplied(&e.pod, e.applied(parts))
		}
	case len(changed) > 0 || parts.Has(podfacts.Annotations):
		n.metrics.Applied.Add(1)
		log.WithField("edited", parts.String()).Info("Applying an edit to a running pod")
		n.noteApplied(&e.pod, e.applied(parts))
	}
}

// maxClaims is the number of claims that an event names, so that it has room for the limits.
const maxClaims = 3

// applied says that parts of an edit apply, with the names of the claims whose limits change.
func (e *editOf) applied(parts podfacts.Parts) string {
	if len(e.claims) == 0 {
		return "edited " + parts.String() + " apply"
	}
	names := e.claims[:min(len(e.claims), maxClaims)]
	text := "limits of claim "
	if len(names) > 1 {
		text = "limits of claims "
	}
	text += strings.Join(names, ", ")
	if more := len(e.claims) - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return "edited " + parts.Text(text) + " apply"
}

// noteApplied notes that a change of a pod counts, with the limits that its containers get by it.
func (n *Node) noteApplied(of *podIdentity, applied string) {
	texts, now := []string{applied}, n.viewPod(*of).containers
	for i := range now {
		c := &now[i]
		if c.decision.policy == nil || !c.isLive() || !of.asks(c.decision.request) {
			continue
		}
		if c.decision.policy.Mode() == policy.ModeObserve {
			return // that is the event then
		}
		texts = append(texts, containerText(c.name)+" gets "+textOf(c.inForce()))
	}
	n.note(notice.Event{Of: of.named(), Reason: podevent.Changed, Key: podevent.KeyOf(texts...), Note: strings.Join(texts, "; ")})
}
