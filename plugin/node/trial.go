package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/nri-blkio/nri-blkio/policy"
)

// A trial decides the containers of a pod by an edit, and changes nothing. It may have to find the disks of new targets,
// and hang there as long as a disk does. So it has a goroutine of its own, and keeps no container from being resolved by
// the request that counts. What has changed meanwhile is found when the edit is about to count (podTable.acceptEdit).

// trial has the decisions for the containers of a pod by an edit.
type trial struct {
	*editOf
	containers []snapshot
	// onlyFacts is true for an edit of labels or claims only. It is like a new policy: limits that were granted stay, and only the
	// budget of the namespace can reject it.
	onlyFacts bool
	lines     []func() // to log if the edit counts
}

// log logs what the trial has found.
func (t *trial) log() {
	for _, line := range t.lines {
		line()
	}
}

// changesOnlyFacts reports whether an edit is of labels or claims only: its annotations are those that count.
func (e *editOf) changesOnlyFacts() bool {
	return !e.next.hasOtherAnnotations(e.pod.request.now.Load())
}

// refusedByPolicy returns the error because of which the policy rejects an edit before any disk is looked up, or nil.
func (e *editOf) refusedByPolicy(pol *policy.Policy) error {
	if e.changesOnlyFacts() {
		return nil
	}
	return e.next.refusedBy(pol)
}

// refusedBy returns the error because of which the policy rejects a request before any disk is looked up, or nil.
func (r *request) refusedBy(current *policy.Policy) error {
	pol := r.under(current)
	for _, err := range pol.Check() {
		if refusesEdit(pol, err) {
			return err
		}
	}
	return nil
}

// try decides containers of a pod by an edit. It returns at the latest when ctx ends.
func (n *Node) try(ctx context.Context, pol *policy.Policy, e *editOf, of []identity) (*trial, error) {
	for _, c := range of {
		if n.pods.hangs(c) { // the trial would hang as well
			return nil, fmt.Errorf("container %s: one of its disks does not answer", c.name)
		}
	}
	found := make(chan *trial, 1)
	err := n.inFlight.passes.Within(ctx, e.pod.group.key+" edit", func(ctx context.Context) error {
		if !n.pods.beginTrial(e) {
			return errors.New("one of the disks of its new targets does not answer")
		}
		defer n.pods.endTrial(e)
		out, err := n.decideAll(ctx, pol, e, of)
		found <- out
		return err
	})
	if err != nil {
		return nil, err
	}
	return <-found, nil
}

// beginTrial notes that an edit is tried. It returns false if that is under way: the edit was tried by an earlier pass,
// whose deadline has ended.
func (t *podTable) beginTrial(e *editOf) bool {
	s := t.state.Lock()
	defer t.state.Unlock()
	p := e.pod.in(s)
	if p.trying == e.noted {
		return false
	}
	p.trying = e.noted
	return true
}

func (t *podTable) endTrial(e *editOf) {
	s := t.state.Lock()
	defer t.state.Unlock()
	if p := e.pod.in(s); p.trying == e.noted { // otherwise a newer edit is tried
		p.trying = nil
	}
}

// decideAll decides containers by an edit.
func (n *Node) decideAll(ctx context.Context, pol *policy.Policy, e *editOf, of []identity) (*trial, error) {
	out := &trial{editOf: e, onlyFacts: e.changesOnlyFacts()}
	for _, c := range of {
		out.containers = append(out.containers, n.pods.snapshot(c.ref))
	}
	layers, by := n.layers.current.Load(), n.resolver
	by.held = &out.lines
	by.around = func(pod podIdentity) surroundings {
		around := n.pods.around(pod)
		around.seen = factsOf(out.containers)
		return around
	}
	// The first round finds the disks that new targets select. The limit of the pod as a whole depends on those of all
	// containers, so only the second round decides it: once, because it is the same for all of them.
	former := slices.Clone(out.containers)
	var whole func() (policy.Settings, error)
	for round := range 2 {
		by.total = func(pol *policy.Pod, c *snapshot) (policy.Settings, error) {
			if round == 0 {
				return nil, nil
			}
			if whole == nil {
				whole = sync.OnceValues(func() (policy.Settings, error) { return by.checkTotal(pol, c) })
			}
			return whole()
		}
		for i := range out.containers {
			c := &out.containers[i]
			c.decision = former[i].decision
			if err := by.resolve(ctx, pol, e.next, layers, c); err != nil {
				return nil, fmt.Errorf("container %s: %w", c.name, err)
			}
		}
	}
	return out, nil
}

// refused returns the error because of which an edit is rejected by a decision for a container, or nil.
func (t *trial) refused() error {
	for i := range t.containers {
		c := &t.containers[i]
		if t.onlyFacts || !c.isLive() { // it has ended
			continue
		}
		if err := c.decision.refusesEdit(); err != nil {
			return err
		}
	}
	return nil
}

// refusesEdit returns an error of a decision that rejects an edit, or nil.
func (d *decision) refusesEdit() error {
	for _, err := range d.desired.Errors {
		if refusesEdit(d.policy, err) {
			return err
		}
	}
	if refusesEdit(d.policy, d.err) {
		return d.err
	}
	return nil
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
