package node

import (
	"time"
)

// MountsChanged has those containers resolved again that receive mounts of the host while they run. It does not
// wait for that.
func (n *Node) MountsChanged() {
	n.pods.resolveAgain(func(c *snapshot) bool { return c.disks.Propagates() })
}

// DisksChanged reconciles all pods now instead of at the next resync, because a disk that was removed lost its
// limits, and may have returned. Containers that may have got other disks are resolved again. It does not wait
// for that.
func (n *Node) DisksChanged() {
	n.pods.resolveAgain(func(c *snapshot) bool { return c.disks.Follows() })
	n.reconcileAllSoon()
}

// reconcileAllSoon wakes the reconciler for a pass over all pods.
func (n *Node) reconcileAllSoon() {
	select {
	case n.all <- struct{}{}:
	default: // such a pass is due already
	}
}

func (t *podTable) resolveAgain(of func(*snapshot) bool) {
	s := t.state.Lock()
	defer t.state.Unlock()
	for _, pod := range s.pods {
		for _, c := range pod.containers {
			if c.mayRun() && of(&c.snapshot) {
				s.resolveAgain(c)
				s.markDirty(pod.group.in(s))
			}
		}
	}
}

// resolveAgain has a container resolved once more, if its disks may have changed.
func (s *state) resolveAgain(c *container) {
	if c.disks.Invalidate() {
		c.resolution.again = true
		c.resolution.number++
	}
}

// beginResolution returns a container to resolve. The resolution may miss changes after this call.
func (t *podTable) beginResolution(of identity) snapshot {
	s := t.state.Lock()
	defer t.state.Unlock()
	c := of.in(s)
	c.resolution.again, c.resolution.began, c.resolution.newest = false, time.Now(), of.pod.in(s).newest()
	return c.snapshot
}

// endResolution returns the token that was taken for a resolution.
func (t *podTable) endResolution(c identity) {
	s := t.state.Lock()
	defer t.state.Unlock()
	c.in(s).resolution.began = time.Time{}
	<-c.token
}
