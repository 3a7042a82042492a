package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/quote"
)

// An edit has up to two parts: annotations, and facts about the pod, which are its labels, its claims and the kinds of its
// containers. In a namespace with a budget each is tried on its own, because they can have different authors. While the budget
// has no room for the limits of a claim, edited annotations still apply. While the annotations are invalid, changed limits of a
// claim still apply.

// ofFacts returns the part of an edit that changes facts about the pod, nil if there is none.
func (e *editOf) ofFacts() *request {
	switch now := e.pod.request.now.Load(); {
	case now.hasFacts(e.noted):
		return nil
	case !e.noted.hasOtherAnnotations(now):
		return e.noted
	default:
		return now.withFacts(&e.noted.facts)
	}
}

// ofAnnotations returns the part of an edit that changes annotations, nil if there is none.
func (e *editOf) ofAnnotations() *request {
	switch now := e.pod.request.now.Load(); {
	case !e.noted.hasOtherAnnotations(now):
		return nil
	case now.hasFacts(e.noted):
		return e.noted
	default:
		return now.withAnnotationsOf(e.noted)
	}
}

// tryParts makes those parts of an edit count that can be granted, and notes why others are rejected. It reports whether
// one counts.
func (n *Node) tryParts(ctx context.Context, e *editOf, of []identity) (accepted bool, _ error) {
	var errs []error
	var rejection error
	var rejectedParts []string
	for _, part := range []func(*editOf) *request{(*editOf).ofFacts, (*editOf).ofAnnotations} {
		tried := *e
		if tried.next = part(e); tried.next == nil {
			continue
		}
		former := e.pod.request.now.Load()
		parts := tried.next.differences(former)
		tried.claims = tried.next.changedClaims(former)
		counts, reason, err := n.tryEdit(ctx, &tried, of)
		switch {
		case err != nil:
			errs = append(errs, err)
		case reason != nil:
			rejection = both(rejection, rejected(parts, reason))
			rejectedParts = append(rejectedParts, parts)
		case counts:
			accepted = true
			n.noteCounts(&tried, parts, of)
		}
	}
	if rejection != nil {
		n.rejectEdit(e, rejection, rejectedParts)
	}
	return accepted, errors.Join(errs...)
}

// both returns an error with the texts of two in one line. The first one may be nil.
func both(first, second error) error {
	if first == nil {
		return second
	}
	return fmt.Errorf("%w; %w", first, second)
}

// noteCounts notes that a part of an edit counts. Labels by which no rule selects change often, and claims are also tried when
// they become known: these are noted if a container gets other limits.
func (n *Node) noteCounts(e *editOf, parts string, of []identity) {
	changed := n.changed(e.before)
	log := n.log.WithField("pod", e.pod.String())
	switch {
	case !isOfAuthor(parts):
		for _, c := range changed {
			text := "Applying changed limits of claims to a running container"
			if c.hasNewKind {
				text = "Applying the class of its kind to a running container"
			}
			log.WithField("container", c.name).Info(text)
		}
		if len(changed) > 0 && len(e.claims) > 0 {
			n.noteApplied(&e.pod, e.applied(parts), of)
		}
	case len(changed) > 0 || strings.HasPrefix(parts, "annotations"):
		n.metrics.edits.applied.Add(1)
		log.WithField("edited", parts).Info("Applying an edit to a running pod")
		n.noteApplied(&e.pod, e.applied(parts), of)
	}
}

// maxClaims is the number of claims that an event names, so that it has room for the limits.
const maxClaims = 3

// applied says that parts of an edit apply, with the names of the claims whose limits change.
func (e *editOf) applied(parts string) string {
	if len(e.claims) > 0 {
		names := e.claims[:min(len(e.claims), maxClaims)]
		text := "limits of claim "
		if len(names) > 1 {
			text = "limits of claims "
		}
		text += strings.Join(names, ", ")
		if more := len(e.claims) - len(names); more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
		parts = strings.Replace(parts, limitsOfClaim, text, 1)
	}
	return "edited " + parts + " apply"
}

// changedContainer is a container that has other limits than before.
type changedContainer struct {
	name       string
	hasNewKind bool // its kind was not known before
}

// changed returns those containers that have other limits than before.
func (n *Node) changed(before []snapshot) (out []changedContainer) {
	for i := range before {
		if now := n.pods.snapshot(before[i].ref); !now.decision.hasValuesOf(&before[i].decision) {
			out = append(out, changedContainer{now.name, now.decision.kind(now.name) != before[i].decision.kind(now.name)})
		}
	}
	return out
}

// noteRule logs that a running container has other limits because its pod follows changed labels of the namespace.
func (n *Node) noteRule(before, now *snapshot) {
	if now.followsNamespace(before) {
		now.logger(n.log).WithField("limits", describe(now.decision.desired)).Info("A running container follows changed labels of its namespace")
	}
}

// followsNamespace reports whether a running container has other limits than before because its pod follows changed labels of the
// namespace.
func (c *snapshot) followsNamespace(before *snapshot) bool {
	former, by := before.decision.request, c.decision.request
	return former != nil && !former.facts.NamespaceLabels.Equal(by.facts.NamespaceLabels) && c.mayRun() && !c.decision.hasValuesOf(&before.decision)
}

// isMoved reports whether a running container got other limits by an edit of the namespace's labels. Labels that were unknown
// were not edited, and a new policy selects by other labels.
func (t *podTable) isMoved(before, now *snapshot) bool {
	if before.decision.request != nil {
		return now.followsNamespace(before) && before.decision.request.facts.NamespaceLabels != nil &&
			before.decision.policy.Of() == now.decision.policy.Of()
	}
	s := t.state.Lock()
	defer t.state.Unlock()
	p := now.pod.in(s)
	isMoved := p.isMoved && now.mayRun() && len(now.decision.desired.Settings) > 0
	p.isMoved = p.isMoved && !isMoved
	return isMoved
}

// noteNamespaces notes that pods follow changed labels of their namespace, with the rule that is in force now.
func (n *Node) noteNamespaces(moved []podIdentity) {
	for _, of := range moved {
		rule := "no rule"
		if name := of.request.now.Load().under(n.policy.Load()).Rule(); name != "" {
			rule = "rule " + quote.Name(name, quote.Most)
		}
		n.noteApplied(&of, "edited labels of the namespace apply, by which "+rule+" is in force", n.pods.decidable(of))
	}
}

// hasValuesOf reports whether two decisions set the same values. It ignores the sources of the values.
func (d *decision) hasValuesOf(o *decision) bool {
	return slices.EqualFunc(d.desired.Settings, o.desired.Settings, func(a, b policy.Setting) bool { return a.Value == b.Value })
}
