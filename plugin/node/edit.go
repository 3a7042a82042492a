package node

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nri-blkio/nri-blkio/plugin/enforce/plan"
	"github.com/nri-blkio/nri-blkio/plugin/node/lifecycle"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// An edit of a pod's annotations changes all that it asks for, or nothing: the containers run, so none can be rejected with
// a message. The reconciler decides all containers of the pod by the new annotations, as if they were created now. If
// each decision is granted, and the budget of the namespace has room, the pod gets the new request and the decisions in
// one section with the lock. Otherwise the former request stays. Labels and limits of claims are edited in the same
// way in a namespace with a budget, which may have no room for them (see editparts.go).

// edit is a live change of the annotations, labels or claims of a pod, or of the known kinds of its containers, that does not count yet.
type edit struct {
	next *request // nil for none
	err  error    // the reason why it is rejected, for the record; nil before the first try
	// unknown is the reason why the pod may have an edit that is not known; nil if it has none.
	unknown error
	// waits is true for an edit that the first container of its pod rejects, until the pod has a container.
	waits bool
	// reported is the edit whose rejection was logged last.
	reported *request
}

// rejectedEdit is the error of a pod whose edited annotations or labels, or changed claims, do not count.
type rejectedEdit struct {
	parts string // those that were edited, "annotations and labels"
	cause error
}

// limitsOfClaim is the part of an edit that changes limits of claims only. The author of the pod need not know of it.
const limitsOfClaim = "limits of a claim"

func rejected(parts string, cause error) error { return &rejectedEdit{parts, cause} }

func (e *rejectedEdit) Error() string {
	switch e.parts {
	case limitsOfClaim:
		return fmt.Sprintf("the limits of a claim were changed, and those before stay in force: %v", e.cause)
	case kindsOfContainers:
		return fmt.Sprintf("the kinds of containers are known now, and the limits before stay in force: %v", e.cause)
	}
	return fmt.Sprintf("the %s were edited, and those before stay in force: %v", e.parts, e.cause)
}

func (e *rejectedEdit) Unwrap() error { return e.cause }

// editOf is the edit of one pod, as the reconciler tries it: the whole of it, or a part.
type editOf struct {
	pod podIdentity
	edit
	noted  *request   // the whole edit, as the pod has it
	claims []string   // those whose limits the edit changes, see changedClaims
	before []snapshot // the containers of the pod, just before the edit counts
}

// edits returns the edits of the pods of a group, in the order of the pods' arrival.
func (t *podTable) edits(of groupIdentity) (out []editOf) {
	s := t.state.Lock()
	defer t.state.Unlock()
	for _, p := range of.in(s).sorted() {
		if p.edit.next != nil && !p.edit.waits {
			out = append(out, editOf{pod: p.podIdentity, edit: p.edit, noted: p.edit.next})
		}
	}
	return out
}

// hasEdit reports whether a pod of the group has an edit that does not count yet.
func (g *group) hasEdit() bool {
	for _, p := range g.pods {
		if p.edit.next != nil && !p.edit.waits {
			return true
		}
	}
	return false
}

// followedEdit is an edit of labels or claims that counts, and by which containers have yet to be decided.
type followedEdit struct {
	editOf
	parts string
	of    []identity
}

// tryEdits makes those edits of a group count that can be granted. It returns the containers that it has decided, and the edits
// by which others have yet to be.
func (n *Node) tryEdits(ctx context.Context, g groupIdentity) (decided []identity, followed []followedEdit, errs []error) {
	for _, e := range n.pods.edits(g) {
		of := n.pods.decidable(e.pod)
		if e.next.under(n.policy.Load()).Budget() == nil {
			before := n.snapshots(of)
			if parts, accepted := n.pods.acceptFacts(&e); accepted {
				e.before = before
				followed = append(followed, followedEdit{e, parts, of})
			}
			if e.next == nil {
				continue
			}
		}
		accepted, err := n.tryParts(ctx, &e, of)
		if err != nil {
			errs = append(errs, fmt.Errorf("decide an edit: %w", err))
		}
		if accepted {
			decided = append(decided, of...)
		}
	}
	return decided, followed, errs
}

// acceptFacts makes the labels and claims of an edit count, updates the edit, and returns the names of these parts. The
// annotations of the edit can still be rejected. The caller has checked that no budget applies to the pod.
func (t *podTable) acceptFacts(e *editOf) (parts string, accepted bool) {
	s := t.state.Lock()
	defer t.state.Unlock()
	p, now := e.pod.in(s), e.pod.request.now.Load()
	if p.edit.next != e.next || now.hasFacts(e.next) {
		return "", false
	}
	next := now.withFacts(&e.next.facts)
	s.replaceRequest(p, next)
	if p.edit = (edit{next: e.next, err: p.edit.err}); !e.next.hasOtherAnnotations(now) {
		p.edit = edit{}
		s.revise(p) // annotations may be unknown
	}
	e.edit, e.noted, e.claims = p.edit, p.edit.next, next.changedClaims(now)
	return next.differences(now), true
}

// tryEdit makes an edit or a part of it count for its pod and these containers of it, or returns why it is rejected. An error is
// an internal failure, after which the edit is tried again.
func (n *Node) tryEdit(ctx context.Context, e *editOf, of []identity) (accepted bool, rejection, _ error) {
	pol := n.policy.Load()
	if err := e.refusedByPolicy(pol); err != nil {
		return false, err, nil
	}
	if err := n.decideFormer(ctx, pol, of); err != nil {
		return false, nil, err
	}
	found, err := n.try(ctx, pol, e, of)
	if err != nil {
		return false, nil, err
	}
	if err := found.refused(); err != nil {
		return false, err, nil
	}
	var unlisted []unlistedPod
	if len(of) > 0 {
		unlisted = n.readFormer(&found.containers[0])
	}
	// No resolution by the former request may end after the edit counts.
	release, err := n.takeResolutions(ctx, of)
	defer release()
	if err != nil {
		return false, nil, err
	}
	e.before = n.snapshots(of)
	excess, accepted := n.pods.acceptEdit(found, unlisted)
	switch {
	case excess != nil:
		return false, excess, nil
	case accepted:
		found.log()
		for i := range e.before {
			n.warnClaims(&e.before[i], &found.containers[i])
		}
	}
	return accepted, nil, nil
}

func (n *Node) snapshots(of []identity) (out []snapshot) {
	for _, c := range of {
		out = append(out, n.pods.snapshot(c.ref))
	}
	return out
}

// decideFormer decides containers by the annotations that count, unless they are decided by the policy. Otherwise it would not be
// known what they take of a budget already.
func (n *Node) decideFormer(ctx context.Context, pol *policy.Policy, of []identity) error {
	for _, c := range of {
		now := n.pods.snapshot(c.ref)
		if !now.isLive() || now.decidedBy(pol) || n.pods.hangs(c) {
			continue
		}
		if err := n.resolve(ctx, c); err != nil {
			return fmt.Errorf("container %s: %w", c.name, err)
		}
	}
	return nil
}

// refusesEdit reports whether an error rejects an edit. An invalid edit changes nothing, even where the policy lets
// containers start that have an invalid annotation.
func refusesEdit(pol *policy.Pod, err error) bool {
	invalid, ok := errors.AsType[*annotation.Error](err)
	return ok && invalid.Kind == annotation.Invalid || plan.Refuses(pol, err)
}

// rejectEdit notes why these parts of an edit are rejected. They are tried again with each pass, because the policy, the disks or the
// budget may change.
func (n *Node) rejectEdit(e *editOf, err error, parts []string) {
	if !n.pods.noteRejected(e, err) {
		return
	}
	log := n.log.WithField("pod", e.pod.String()).WithError(err)
	switch {
	case slices.ContainsFunc(parts, isOfAuthor):
		n.metrics.edits.rejected.Add(1)
		log.Warn("Rejected an edit of a running pod")
	case slices.Contains(parts, kindsOfContainers):
		log.Warn("Rejected the classes of kinds of containers for a running pod")
	default:
		log.Warn("Rejected changed limits of claims of a running pod")
	}
}

// noteRejected notes the error of an edit, and reports whether it is new.
func (t *podTable) noteRejected(e *editOf, err error) (isNew bool) {
	s := t.state.Lock()
	defer t.state.Unlock()
	p := e.pod.in(s)
	if p.edit.next != e.noted || p.edit.err != nil && p.edit.err.Error() == err.Error() {
		return false
	}
	// What is granted to others changes with each of their pods.
	isReported := p.edit.reported == e.noted && p.edit.err != nil && annotation.WithoutAmounts(p.edit.err.Error()) == annotation.WithoutAmounts(err.Error())
	p.edit.err, p.edit.reported = err, e.noted
	s.changed(p.group.in(s)) // the record has the error
	return !isReported
}

// decidable returns the containers of a pod.
func (t *podTable) decidable(of podIdentity) (out []identity) {
	s := t.state.Lock()
	defer t.state.Unlock()
	for _, c := range of.in(s).sorted() {
		out = append(out, c.identity)
	}
	return out
}

// acceptEdit makes an edit the request of its pod, with the decisions for its containers. It returns an error if the budget
// of the namespace has no room for it, and false if the pod has changed since the decisions. The caller holds the tokens
// of the containers.
func (t *podTable) acceptEdit(found *trial, unlisted []unlistedPod) (excess *annotation.Error, accepted bool) {
	s := t.state.Lock()
	defer t.state.Unlock()
	p := found.pod.in(s)
	if !found.isCurrent(s, p) {
		s.markDirty(p.group.in(s))
		return nil, false
	}
	if excess := s.exchange(p, found, unlisted); excess != nil {
		return excess, false
	}
	if p.edit = (edit{}); found.next != found.noted {
		p.edit.next = found.noted // of which the other part does not count yet
	}
	if found.onlyFacts {
		s.replaceRequest(p, found.next)
	} else {
		s.replaceAnnotations(p, found.next)
	}
	for i := range found.containers {
		c := found.containers[i].in(s)
		c.disks, c.layer = found.containers[i].disks, found.containers[i].layer
		s.remember(&c.snapshot)
	}
	s.revise(p) // annotations may be unknown, and only facts have changed
	return nil, true
}

// isCurrent reports whether a pod has the same edit and the same containers as when a trial began, and these are resolved as
// they were.
func (t *trial) isCurrent(s *state, p *pod) bool {
	if p.edit.next != t.noted || s.pods[p.id] != p || len(p.containers) != len(t.containers) {
		return false
	}
	return !slices.ContainsFunc(t.containers, func(c snapshot) bool {
		now := c.in(s)
		return now != p.containers[c.id] || now.resolution.number != c.resolution.number
	})
}

// isLive reports whether a container may run, or was created and has not started.
func (c *snapshot) isLive() bool { return c.mayRun() || c.life.Phase() == lifecycle.Created }
