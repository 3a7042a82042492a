package node

// A tenant decides how many mounts a pod has. The API server bounds only the size of the pod, which has room for some
// 80,000 of them, and the memory of the plugin is that of all tenants.

// mountRoom is the memory in bytes that the mounts of the containers of a pod take at most in their OCI specs. It is
// enough for about 4,000 mounts. What the plugin finds about them takes about twice as much again.
const mountRoom = 1 << 20

// mountRoom returns the bytes that are left for the mounts of a container of a pod, by its name. An earlier container of the name does
// not count, because this one replaces it.
func (s *state) mountRoom(p *pod, name string) int {
	room := mountRoom
	if !s.concerns(p.group.in(s)) {
		room = bystanderRoom
	}
	for other, known := range p.known {
		if other != name {
			room -= known.size
		}
	}
	unknown := map[string]*container{} // the newest of each name: the runtime also lists those that have ended
	for _, c := range p.containers {
		if _, known := p.known[c.name]; !known && c.name != name && (unknown[c.name] == nil || unknown[c.name].arrival < c.arrival) {
			unknown[c.name] = c
		}
	}
	for _, c := range unknown {
		room -= c.disks.Size
	}
	return max(0, room)
}

func (n *Node) mountRoom(of podIdentity, name string) int {
	s := n.state.Lock()
	defer n.state.Unlock()
	return s.mountRoom(of.in(s), name)
}
