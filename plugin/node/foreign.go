package node

import (
	"slices"
	"strings"

	"github.com/nri-blkio/nri-blkio/plugin/enforce"
	"github.com/nri-blkio/nri-blkio/policy"
)

// noteForeign notes limits of other programs after a comparison, and logs them if they are others than before.
func (n *Node) noteForeign(g groupIdentity, r *enforce.Result) {
	if r.Target.Container != "" || !r.Compared || !n.replaceForeign(g, r.Foreign) {
		return
	}
	var texts []string
	for _, s := range r.Foreign {
		texts = append(texts, s.OnDisk(r.Target.Record.Disks))
	}
	if len(texts) > 0 {
		n.log.WithField("cgroup", r.Target.Cgroup).WithField("limits", strings.Join(texts, ", ")).Warn("Another program limits the pod's cgroup: its limits stay")
	}
}

// replaceForeign reports whether the limits of other programs are others than before.
func (n *Node) replaceForeign(of groupIdentity, now policy.Settings) (isNew bool) {
	s := n.state.Lock()
	defer n.state.Unlock()
	g := of.in(s)
	isNew = !slices.Equal(g.foreign, now)
	g.foreign = now
	return isNew
}
