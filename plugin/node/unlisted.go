package node

import (
	"strings"

	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
)

// Listing compares the pods that the kubelet runs with those that the runtime has listed, or reported since.
type Listing struct {
	Listed   int      // running pods that are known, by bystanders too
	Unlisted []string // UIDs of the other running pods, in a fixed order; a "-" in them is a "_"
}

// CompareListed reads which pods run below the cgroup of the kubelet's pods. The runtime reports a container before it runs, so a pod
// with a container that runs is known if the runtime is that of the kubelet.
func (n *Node) CompareListed() (out Listing, _ error) {
	running, err := n.cgroups.RunningPods()
	if err != nil {
		return Listing{}, err
	}
	known := n.knownPods()
	for _, c := range running {
		if uid := cgroupfs.PodUID(c.Path()); known[c.Path()] || known[uid] {
			out.Listed++
		} else {
			out.Unlisted = append(out.Unlisted, uid)
		}
	}
	return out, nil
}

// knownPods returns the cgroups and the UIDs of all pods, in the form of cgroupfs.PodUID.
func (n *Node) knownPods() map[string]bool {
	s := n.state.Lock()
	defer n.state.Unlock()
	out := make(map[string]bool, 2*len(s.groups))
	for _, g := range s.groups {
		out[g.cgroup] = true
	}
	for uid := range s.byUID {
		out[strings.ReplaceAll(uid, "-", "_")] = true
	}
	return out
}
