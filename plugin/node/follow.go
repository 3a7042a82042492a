package node

import (
	"time"
)

// MountsChanged resolves those containers again that receive mounts of the host while they
// run. It does not wait for that.
func (n *Node) MountsChanged() {
	n.pods.resolveAgain(func(c *snapshot) bool { return c.disks.Propagates() })
}

// DisksChanged reconciles all pods now instead of at the next resync, because a disk that
// was removed lost its limits, and may have returned. Containers whose disks may have
// changed are resolved again. It does not wait for that.
func (n *Node) DisksChanged() {
	n.pods.resolveAgain(func(c *snapshot) bool { return c.disks.Follows() })
	n.reconcileAllSoon()
}

// reconcileAllSoon has the reconciler look at every pod soon.
func (n *Node) reconcileAllSoon() {
	select {
	case n.all <- struct{}{}:
	default: // that is to come
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

// resolveAgain has settle look into a container once more, if its disks may have become
// others.
func (s *state) resolveAgain(c *container) {
	if c.disks.LookAgain() {
		c.resolution.again = true
	}
}

// beginResolution returns a container to look into. What changes from now on may
// be missed by that look.
func (t *podTable) beginResolution(of identity) snapshot {
	s := t.state.Lock()
	defer t.state.Unlock()
	c := of.in(s)
	c.resolution.again, c.resolution.began = false, time.Now()
	return c.snapshot
}

// endResolution gives the token back that was taken for a look.
func (t *podTable) endResolution(c identity) {
	s := t.state.Lock()
	defer t.state.Unlock()
	c.in(s).resolution.began = time.Time{}
	<-c.token
}
