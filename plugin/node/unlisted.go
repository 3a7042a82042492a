package node

import (
	"strings"

	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
)

// Listing compares the pods that the kubelet runs with those that the runtime has listed, or reported since.
type Listing struct {
	Listed   int      // running pods that are known, by bystanders too
	Unlisted []string // UIDs of the other running pods, in a fixed order
}

// CompareListed reads which pods run below the cgroup of the kubelet's pods. The runtime reports a container before it runs, so a pod
// with a container that runs is known if the runtime is that of the kubelet.
func (n *Node) CompareListed() (Listing, error) {
	running, err := n.cgroups.RunningPods()
	if err != nil {
		return Listing{}, err
	}
	return n.listing(running), nil
}

func (n *Node) listing(running []cgroupfs.Cgroup) (out Listing) {
	s := n.state.Lock()
	defer n.state.Unlock()
	for _, c := range running {
		uid := strings.ReplaceAll(cgroupfs.PodUID(c.Path()), "_", "-") // no UID of the kubelet has a "_"
		if s.groups[groupKey(c.Path(), "")] != nil || s.byUID[uid] != nil {
			out.Listed++
		} else {
			out.Unlisted = append(out.Unlisted, uid)
		}
	}
	return out
}
