package node

// MountsChanged has those containers resolved again that receive mounts of the host while they run. It does not
// wait for that.
func (n *Node) MountsChanged() {
	n.searchAgain(func(c *snapshot) bool { return c.disks.Propagates() })
}

// DisksChanged reconciles all pods now instead of at the next resync, because a disk that was removed lost its
// limits, and may have returned. Containers that may have got other disks are resolved again. It does not wait
// for that.
func (n *Node) DisksChanged() {
	n.searchAgain(func(c *snapshot) bool { return c.disks.Follows() })
	n.all.send()
}

// searchAgain has the running containers for which a condition holds resolved once more.
func (n *Node) searchAgain(of func(*snapshot) bool) {
	s := n.state.Lock()
	defer n.state.Unlock()
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
		c.search.again = true
		c.search.rev++
	}
}
