package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/enforce/plan"
	"github.com/nri-blkio/nri-blkio/plugin/node/lifecycle"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// An edit of a pod's annotations changes all that it asks for, or nothing: the containers run, so none can be rejected with
// a message. The reconciler decides all containers of the pod by the new annotations, as if they were created now. If
// each decision is granted, and the budget of the namespace has room, the pod gets the new request and the decisions in one section with the lock. Otherwise the
// former request stays.

// edit is a live change of the annotations of a pod that does not count yet.
type edit struct {
	next *request // nil for none
	err  error    // the reason why it is rejected, for the record; nil before the first try
}

// rejected returns the error of a pod whose edited annotations do not count.
func rejected(err error) error {
	return fmt.Errorf("the annotations were edited, and those before stay in force: %w", err)
}

// editOf is the edit of one pod, as the reconciler tries it.
type editOf struct {
	pod podIdentity
	edit
}

// edits returns the edits of the pods of a group, in the order of the pods' arrival.
func (t *podTable) edits(of groupIdentity) (out []editOf) {
	s := t.state.Lock()
	defer t.state.Unlock()
	for _, p := range of.in(s).sorted() {
		if p.edit.next != nil {
			out = append(out, editOf{p.podIdentity, p.edit})
		}
	}
	return out
}

// hasEdit reports whether a pod of the group has an edit that does not count yet.
func (t *podTable) hasEdit(of groupIdentity) bool { return len(t.edits(of)) > 0 }

// tryEdits makes those edits of a group count that can be granted. It returns the containers that it has decided.
func (n *Node) tryEdits(ctx context.Context, g groupIdentity) (decided []identity, errs []error) {
	for _, e := range n.pods.edits(g) {
		if e.next.under(n.policy.Load()).Budget() == nil && n.pods.acceptLabels(&e) && e.next == nil {
			continue
		}
		of := n.pods.decidable(e.pod)
		switch accepted, err := n.tryEdit(ctx, &e, of); {
		case err != nil:
			errs = append(errs, fmt.Errorf("decide edited annotations: %w", err))
		case accepted:
			decided = append(decided, of...)
			n.metrics.edits.applied.Add(1)
			n.log.WithField("pod", e.pod.String()).Info("Applying edited annotations to a running pod")
		}
	}
	return decided, errs
}

// acceptLabels makes the labels of an edit count, whatever becomes of its annotations, and updates the edit. No budget has to
// have room for them.
func (t *podTable) acceptLabels(e *editOf) bool {
	s := t.state.Lock()
	defer t.state.Unlock()
	p, now := e.pod.in(s), e.pod.request.now.Load()
	if p.edit.next != e.next || maps.Equal(now.facts.Labels, e.next.facts.Labels) {
		return false
	}
	s.replaceRequest(p, now.withLabels(e.next.facts.Labels))
	if p.edit = (edit{err: p.edit.err}); e.next.annotations == nil || !now.has(e.next.annotations) {
		p.edit.next = e.next
	} else {
		p.edit.err = nil
	}
	e.edit = p.edit
	return true
}

// tryEdit makes an edit count for its pod and these containers of it, or notes why it is rejected. An error is an internal
// failure, after which the edit is tried again.
func (n *Node) tryEdit(ctx context.Context, e *editOf, of []identity) (accepted bool, _ error) {
	pol := n.policy.Load()
	for _, err := range e.next.under(pol).Check() {
		if refusesEdit(e.next.under(pol), err) {
			n.rejectEdit(e, err)
			return false, nil
		}
	}
	if err := n.decideFormer(ctx, of); err != nil {
		return false, err
	}
	release, err := n.takeResolutions(ctx, of)
	defer release()
	if err != nil {
		return false, err
	}
	trial, err := n.trial(ctx, pol, e, of)
	if err != nil {
		return false, err
	}
	var unlisted []unlistedPod
	for i := range trial {
		if err := trial[i].refusedEdit(); err != nil {
			n.rejectEdit(e, err)
			return false, nil
		}
	}
	if len(trial) > 0 {
		unlisted = n.readFormer(&trial[0])
	}
	excess, accepted := n.pods.acceptEdit(e, trial, unlisted)
	if excess != nil {
		n.rejectEdit(e, excess)
	}
	return accepted, nil
}

// decideFormer decides containers that this process has not decided by the annotations that count. Otherwise it would not be
// known what they take of a budget already.
func (n *Node) decideFormer(ctx context.Context, of []identity) error {
	for _, c := range of {
		now := n.pods.snapshot(c.ref)
		if !now.isLive() || now.decision.policy != nil || n.pods.hangs(c) {
			continue
		}
		if err := n.resolve(ctx, c); err != nil {
			return fmt.Errorf("container %s: %w", c.name, err)
		}
	}
	return nil
}

// takeResolutions waits for the right to resolve containers. release returns it for those that it was taken for.
func (n *Node) takeResolutions(ctx context.Context, of []identity) (release func(), _ error) {
	var taken []identity
	release = func() {
		for _, c := range taken {
			n.pods.endResolution(c)
		}
	}
	for _, c := range of {
		if n.pods.hangs(c) { // each pass would wait, and with it the other pods
			return release, fmt.Errorf("container %s: one of its disks does not answer", c.name)
		}
		select {
		case c.token <- struct{}{}:
			taken = append(taken, c)
		case <-ctx.Done():
			return release, fmt.Errorf("wait for another resolution of container %s: %w", c.name, context.Cause(ctx))
		}
	}
	return release, nil
}

// trial decides containers by an edit, and changes nothing.
func (n *Node) trial(ctx context.Context, pol *policy.Policy, e *editOf, of []identity) ([]snapshot, error) {
	out := make([]snapshot, 0, len(of))
	for _, c := range of {
		out = append(out, n.pods.beginResolution(c))
	}
	layers, by := n.layers.current.Load(), n.resolver
	by.neighbours = func(pod podIdentity) ([]policy.Container, bool) {
		_, shared := n.pods.neighbours(pod)
		return factsOf(out), shared
	}
	// The first round finds the disks that new targets select. The limit of the pod as a whole depends on those of all
	// containers, so only the second round decides it.
	former := slices.Clone(out)
	for range 2 {
		for i := range out {
			out[i].decision = former[i].decision
			if err := by.resolve(ctx, pol, e.next, layers, &out[i]); err != nil {
				return nil, fmt.Errorf("container %s: %w", of[i].name, err)
			}
		}
	}
	return out, nil
}

// factsOf returns the facts of containers that are sorted by name, of the newest one of each name.
func factsOf(cs []snapshot) []policy.Container {
	var out []policy.Container
	arrival := 0
	for i := range cs {
		switch last := len(out) - 1; {
		case last < 0 || out[last].Name != cs[i].name:
			out = append(out, cs[i].disks.Facts)
		case cs[i].arrival > arrival:
			out[last] = cs[i].disks.Facts
		default:
			continue
		}
		arrival = cs[i].arrival
	}
	return out
}

// refusedEdit returns the error because of which an edit is rejected by a decision for a container, or nil.
func (c *snapshot) refusedEdit() error {
	if !c.isLive() {
		return nil // it has ended
	}
	for _, err := range c.decision.desired.Errors {
		if refusesEdit(c.decision.policy, err) {
			return err
		}
	}
	if refusesEdit(c.decision.policy, c.decision.err) {
		return c.decision.err
	}
	return nil
}

// refusesEdit reports whether an error rejects an edit. An invalid edit changes nothing, even where the policy lets
// containers start that have an invalid annotation.
func refusesEdit(pol *policy.Pod, err error) bool {
	invalid, ok := errors.AsType[*annotation.Error](err)
	return ok && invalid.Kind == annotation.Invalid || plan.Refuses(pol, err)
}

// rejectEdit notes why an edit is rejected. The edit is tried again with each pass, because the policy, the disks or the
// budget may change.
func (n *Node) rejectEdit(e *editOf, err error) {
	err = rejected(err)
	if !n.pods.noteRejected(e, err) {
		return
	}
	n.metrics.edits.rejected.Add(1)
	n.log.WithField("pod", e.pod.String()).WithError(err).Warn("Rejected edited annotations of a running pod")
}

// noteRejected reports whether the error of an edit is new.
func (t *podTable) noteRejected(e *editOf, err error) (isNew bool) {
	s := t.state.Lock()
	defer t.state.Unlock()
	p := e.pod.in(s)
	if p.edit.next != e.next || p.edit.err != nil && p.edit.err.Error() == err.Error() {
		return false
	}
	p.edit.err = err
	s.changed(p.group.in(s)) // the record has the error
	return true
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
// of the namespace has no room for it, and false if the pod has changed since the decisions.
func (t *podTable) acceptEdit(e *editOf, trial []snapshot, unlisted []unlistedPod) (excess *annotation.Error, accepted bool) {
	s := t.state.Lock()
	defer t.state.Unlock()
	p := e.pod.in(s)
	g := p.group.in(s)
	if p.edit.next != e.next || s.pods[p.id] != p || len(p.containers) != len(trial) {
		s.markDirty(g)
		return nil, false
	}
	for i := range trial {
		if trial[i].in(s) != p.containers[trial[i].id] {
			s.markDirty(g)
			return nil, false
		}
	}
	if excess := s.exchange(p, trial, unlisted); excess != nil {
		return excess, false
	}
	p.edit = edit{}
	s.replaceAnnotations(p, e.next)
	for i := range trial {
		c := trial[i].in(s)
		c.disks, c.layer = trial[i].disks, trial[i].layer
		if c.resolution.again {
			s.resolveAgain(c)
		}
		s.remember(&c.snapshot)
	}
	s.revise(p) // annotations may be unknown, and only labels have changed
	return nil, true
}

// exchange replaces the decisions for the containers of a pod, unless the budget has no room for the new ones.
func (s *state) exchange(p *pod, trial []snapshot, unlisted []unlistedPod) *annotation.Error {
	g := p.group.in(s)
	former, granted := make([]decision, len(trial)), g.recorded.granted
	for i := range trial {
		c := trial[i].in(s)
		former[i], c.decision = c.decision, trial[i].decision
	}
	g.recorded.granted = policy.Desired{} // the next plan has it again
	for i := range trial {
		c := trial[i].in(s)
		if !c.isLive() || !c.decision.asksMore(&former[i]) {
			continue
		}
		if excess := s.excess(&c.snapshot, unlisted); excess != nil && refusesEdit(c.decision.policy, excess) {
			for i := range trial {
				trial[i].in(s).decision = former[i]
			}
			g.recorded.granted = granted
			return excess
		}
	}
	return nil
}

// asksMore reports whether a decision takes more of the budget of its namespace than the former one.
func (d *decision) asksMore(former *decision) bool {
	b := d.policy.Budget()
	if b == nil {
		return false
	}
	before := map[blkio.Address]blkio.Amount{}
	former.desired.Charges(b, func(at blkio.Address, amount blkio.Amount) { before[at] = amount })
	more := slices.ContainsFunc(former.total, func(x policy.Setting) bool {
		now, found := d.total.Get(x.Address)
		return !found || now.Amount > x.Amount
	})
	d.desired.Charges(b, func(at blkio.Address, amount blkio.Amount) { more = more || amount > before[at] })
	return more
}

// isLive reports whether a container may run, or was created and has not started.
func (c *snapshot) isLive() bool { return c.mayRun() || c.life.Phase() == lifecycle.Created }
