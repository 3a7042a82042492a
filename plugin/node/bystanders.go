package node

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
	"github.com/nri-blkio/nri-blkio/plugin/node/lifecycle"
	"github.com/nri-blkio/nri-blkio/plugin/record"
)

// A pod without annotations of ours that no rule gives a class, and whose namespace has no budget, is a bystander. A
// new policy may have one for it, and the runtime lists what runs only for a plugin that registers, which waits for each
// stop of a container that is under way and blocks all other events meanwhile. So the node keeps what the
// events report about bystanders.

// bystander is a sandbox of no concern.
type bystander struct {
	sandbox    Sandbox          // without annotations; it does not change
	containers []*bystandingCtr // in the order in which they came
}

// bystandingCtr is a container of a bystander that has not ended.
type bystandingCtr struct {
	*Container
	starts bool // true after StartContainer; false if a list has reported it since
	size   int  // of the spec, in bytes
}

// bystanderRoom is the memory in bytes that the specs of a bystander's containers take at most. It is
// enough for 30 containers with 15 mounts: a tenant decides how many there are.
const bystanderRoom = 128 << 10

// newBystander keeps of a sandbox what a policy may depend on.
func newBystander(sb *Sandbox) *bystander {
	b := &bystander{sandbox: *sb}
	b.sandbox.Annotations = nil
	return b
}

// newBystandingCtr returns what is kept of a container, apart from bystander.note.
func newBystandingCtr(ctr *Container, now State) *bystandingCtr {
	kept, spec := *ctr, ctr.Spec()
	kept.State, kept.Spec, kept.Unified = now, func() *inventory.Spec { return spec }, nil
	for _, file := range []string{blkio.IOMax, blkio.IOWeight, "memory.high"} {
		if text, found := ctr.Unified[file]; found && kept.Unified == nil {
			kept.Unified = map[string]string{file: text}
		} else if found {
			kept.Unified[file] = text
		}
	}
	return &bystandingCtr{Container: &kept}
}

// note keeps a report about a container, and drops an earlier report.
func (b *bystander) note(c *bystandingCtr) {
	b.forget(c.ID)
	room := bystanderRoom
	for _, o := range b.containers {
		room -= o.size
	}
	spec, size := c.Spec().Within(room)
	c.Spec, c.size = func() *inventory.Spec { return spec }, size
	b.containers = append(b.containers, c)
}

func (b *bystander) forget(id string) {
	b.containers = slices.DeleteFunc(b.containers, func(c *bystandingCtr) bool { return c.ID == id })
}

// forgetFailed forgets containers of a name that were not started. It is called when a container with this name is created
// again: the earlier creation has failed, and the runtime reported no removal.
func (b *bystander) forgetFailed(name string) {
	b.containers = slices.DeleteFunc(b.containers, func(c *bystandingCtr) bool { return c.State == Created && c.Name == name })
}

// forgetBystanding forgets a container of a bystander that has ended.
func (s *state) forgetBystanding(sandbox, id string) {
	if b := s.bystanders[sandbox]; b != nil {
		b.forget(id)
	}
}

// PassBy notes a container of a pod that was found to be of no concern. It returns true if the pod has
// become one of concern since. It reads nothing of the node.
func (n *Node) PassBy(sb *Sandbox, ctr *Container, now State) (concerned bool) {
	c := newBystandingCtr(ctr, now)
	c.starts = now == Running
	if n.pods.passBy(sb, c) {
		return true
	}
	// A policy that came before the container was noted did not find it.
	facts := sb.Facts()
	return n.policy.Load().Concerns(&facts)
}

// passBy notes a container, unless its pod is known.
func (t *podTable) passBy(sb *Sandbox, c *bystandingCtr) (known bool) {
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
	if c.State == Created {
		b.forgetFailed(c.Name)
	}
	b.note(c)
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
	for _, ctr := range ctrs {
		if b := s.bystanders[ctr.Sandbox]; b != nil && ctr.State != Stopped {
			b.note(newBystandingCtr(ctr, ctr.State))
		}
	}
}

// admitBystanders makes those bystanders part of the state that the policy that is in force concerns.
func (n *Node) admitBystanders() {
	pol := n.policy.Load()
	if !pol.ConcernsUnannotated() {
		return
	}
	for _, sb := range n.pods.bystanding() {
		if facts := sb.Facts(); pol.Concerns(&facts) {
			pod, cgroup := n.describePod(&sb)
			n.pods.admitted(pod, cgroup, false)
			n.lookAtAll() // a container may have started without an event
		}
	}
}

// admitRecorded calls findRecorded within a bound, and logs an error that lasts.
func (n *Node) admitRecorded(ctx context.Context) {
	err := n.inFlight.passes.For(ctx, "bystanders", passDeadline, n.findRecorded)
	if n.listing.unread.Due(time.Now(), err) {
		n.log.WithError(err).Warn("Reading the records of pods without limits failed, retrying: limits of an earlier policy may stay")
	}
}

// findRecorded makes those bystanders part of the state whose cgroups have a record: an earlier policy
// had a class for them, and the record could not be read during their last event. The pass removes their
// limits. It forgets bystanders whose cgroup was removed without an event, as findGone does with other pods.
func (n *Node) findRecorded(context.Context) error {
	var unread error
	for _, sb := range n.pods.bystanding() {
		cgroup, err := cgroupfs.PodCgroup(sb.Cgroup)
		if err != nil || cgroup == "" {
			continue
		}
		switch found, err := n.recorded(cgroup); {
		case found:
			pod, cgroup := n.describePod(&sb)
			n.pods.admitted(pod, cgroup, true)
		case errors.Is(err, blkio.ErrGone):
			n.pods.forgetBystander(sb.ID)
		case !errors.Is(err, blkio.ErrNotSupported): // by the kernel: then there are no records
			unread = cmp.Or(unread, err)
		}
	}
	return unread
}

// recorded reports whether the cgroup of a pod has a record of the pod, or of a container.
func (n *Node) recorded(cgroup string) (bool, error) {
	cg := n.cgroups.Cgroup(cgroup)
	pod, err := cg.ReadXattr(record.Xattr)
	if pod != nil {
		return true, nil
	}
	containers, unlisted := cg.ListAbove(record.Xattr)
	return len(containers) > 0, cmp.Or(err, unlisted)
}

// forgetBystander forgets a sandbox of no concern.
func (t *podTable) forgetBystander(id string) {
	s := t.state.Lock()
	defer t.state.Unlock()
	delete(s.bystanders, id)
}

// bystanding returns the sandboxes of no concern.
func (t *podTable) bystanding() []Sandbox {
	s := t.state.Lock()
	defer t.state.Unlock()
	out := make([]Sandbox, 0, len(s.bystanders))
	for _, b := range s.bystanders {
		out = append(out, b.sandbox)
	}
	return out
}

// admitted makes a bystander part of the state, unless it was removed meanwhile. recorded is true if the
// cgroups of the pod have a record.
func (t *podTable) admitted(fresh podIdentity, cgroup string, recorded bool) {
	s := t.state.Lock()
	defer t.state.Unlock()
	if s.bystanders[fresh.id] == nil {
		return
	}
	pod := s.join(fresh, cgroup)
	s.admit(pod)
	for _, c := range pod.containers {
		// No limit has held back its writes so far. If it has ended unseen, the pod's cgroup needs none
		// for what is left of them.
		c.exit.planned = !recorded
	}
}

// admit adds the containers of a pod that was a bystander.
func (s *state) admit(pod *pod) {
	b := s.bystanders[pod.id]
	if b == nil {
		return
	}
	delete(s.bystanders, pod.id)
	slices.SortStableFunc(b.containers, func(a, b *bystandingCtr) int { return byAge(a.Container, b.Container) })
	for _, ctr := range b.containers {
		if !ctr.starts {
			s.adoptOne(pod, ctr.Container)
			continue
		}
		told := newContainer(pod.podIdentity, ctr.Container)
		c := s.add(&told)
		c.pid, c.use.unjudged = ctr.PID, true
		s.handle(c, lifecycle.StartContainer) // it may have no process yet, as one that is restored from a checkpoint
	}
	s.markDirty(pod.group.in(s))
}
