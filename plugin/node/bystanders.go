package node

import (
	"slices"

	"github.com/nri-blkio/nri-blkio/plugin/inventory"
)

// A pod without annotations of ours that no rule gives a class is a bystander. A new policy may have a
// class for it, and the runtime lists what runs only for a plugin that registers, which waits for each
// stop of a container that is under way and blocks all other events meanwhile. So what the events tell
// of bystanders is kept.

// bystander is a sandbox of no concern.
type bystander struct {
	sandbox    *Sandbox     // without annotations
	containers []*Container // in the order in which they came
}

// newBystander keeps of a sandbox what a policy may depend on.
func newBystander(sb *Sandbox) *bystander {
	kept := *sb
	kept.Annotations = nil
	return &bystander{sandbox: &kept}
}

// note keeps what was told of a container, in the place of what was told before.
func (b *bystander) note(ctr *Container, now State) {
	kept := *ctr
	kept.State = now
	b.forget(ctr.ID)
	spec := ctr.Spec() // not the whole description
	kept.Spec = func() *inventory.Spec { return spec }
	b.containers = append(b.containers, &kept)
}

func (b *bystander) forget(id string) {
	b.containers = slices.DeleteFunc(b.containers, func(c *Container) bool { return c.ID == id })
}

func (b *bystander) stopped(id string) {
	for _, c := range b.containers {
		if c.ID == id {
			c.State = Stopped
		}
	}
}

// PassBy notes a container of a pod that was found to be of no concern. It returns true if the pod has
// become one of concern since. It reads nothing of the node.
func (n *Node) PassBy(sb *Sandbox, ctr *Container, now State) (concerned bool) {
	if n.pods.passBy(sb, ctr, now) {
		return true
	}
	// A policy that came before the container was noted did not find it.
	facts := sb.Facts()
	return n.policy.Load().Concerns(&facts)
}

// passBy notes a container, unless its pod is known.
func (t *podTable) passBy(sb *Sandbox, ctr *Container, now State) (known bool) {
	s := t.state.Lock()
	defer t.state.Unlock()
	if s.pods[sb.ID] != nil {
		return true
	}
	b := s.bystanders[sb.ID]
	if b == nil {
		b = newBystander(sb)
		s.bystanders[sb.ID] = b
	}
	b.note(ctr, now)
	return false
}

// keepBystanders replaces the bystanders by those that the runtime lists.
func (s *state) keepBystanders(sandboxes []*Sandbox, ctrs []*Container) {
	clear(s.bystanders)
	for _, sb := range sandboxes {
		if s.pods[sb.ID] == nil {
			s.bystanders[sb.ID] = newBystander(sb)
		}
	}
	for _, ctr := range slices.SortedStableFunc(slices.Values(ctrs), byAge) {
		if b := s.bystanders[ctr.Sandbox]; b != nil {
			b.note(ctr, ctr.State)
		}
	}
}

// admitBystanders makes those bystanders part of the state that the policy that is in force concerns.
func (n *Node) admitBystanders() {
	pol := n.policy.Load()
	if !pol.HasClasses() {
		return
	}
	for _, sb := range n.pods.bystanding() {
		if facts := sb.Facts(); pol.Concerns(&facts) {
			n.pods.joined(n.describePod(sb))
		}
	}
}

// bystanding returns the sandboxes of no concern.
func (t *podTable) bystanding() []*Sandbox {
	s := t.state.Lock()
	defer t.state.Unlock()
	out := make([]*Sandbox, 0, len(s.bystanders))
	for _, b := range s.bystanders {
		out = append(out, b.sandbox)
	}
	return out
}

// admit adds the containers of a pod that was a bystander.
func (s *state) admit(pod *pod) {
	b := s.bystanders[pod.id]
	if b == nil {
		return
	}
	delete(s.bystanders, pod.id)
	for _, ctr := range slices.SortedStableFunc(slices.Values(b.containers), byAge) {
		s.adoptOne(pod, ctr)
	}
	s.markDirty(pod.group.in(s))
}
