package node

import (
	"slices"
	"strings"

	"github.com/nri-blkio/nri-blkio/plugin/enforce"
)

// noteForeign notes limits of other programs after a comparison, and logs them if they are others than before.
func (a applier) noteForeign(g groupIdentity, r *enforce.Result) {
	if r.Target.Container != "" || !r.Compared || !a.pods.noteForeign(g, r) {
		return
	}
	var texts []string
	for _, s := range r.Foreign {
		texts = append(texts, s.OnDisk(r.Target.Record.Disks))
	}
	if len(texts) > 0 {
		a.log.WithField("cgroup", r.Target.Cgroup).WithField("limits", strings.Join(texts, ", ")).Warn("Another program limits the pod's cgroup: its limits stay")
	}
}

// noteForeign reports whether the limits of other programs are others than before.
func (t *podTable) noteForeign(g groupIdentity, r *enforce.Result) (isNew bool) {
	s := t.state.Lock()
	defer t.state.Unlock()
	f := &g.in(s).foreign
	isNew = !slices.Equal(*f, r.Foreign)
	*f = r.Foreign
	return isNew
}
