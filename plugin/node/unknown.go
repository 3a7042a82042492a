package node

import (
	"slices"
	"strings"

	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/policy"
)

// unknownContainers returns the limits and weights of a pod's running containers that no event has reported.
// containerd 1.7 does not synchronize a plugin that it starts itself. After its restart, such containers are
// known by their cgroups only. Their records hold what they were granted. A container without a record counts
// as unlimited.
func (a applier) unknownContainers(v *view) []policy.Desired {
	if v.group.cgroup == "" {
		return nil
	}
	children, err := a.cgroups.Cgroup(v.group.cgroup).Children()
	if err != nil {
		a.log.WithError(err).WithField("cgroup", v.group.cgroup).Error("Reading the pod's other containers failed: no backstop")
		return []policy.Desired{{}}
	}
	var out []policy.Desired
	for _, child := range children {
		name := child.Path()[strings.LastIndexByte(child.Path(), '/')+1:]
		if slices.ContainsFunc(v.cgroups, func(known string) bool { return strings.Contains(name, known) }) {
			continue
		}
		// A child that cannot be read counts as running: a backstop without it would be too low.
		if populated, err := child.Populated(); err == nil && !populated {
			continue
		}
		var d policy.Desired
		if r, err := record.Read(child, record.KindContainer); err == nil && r != nil {
			d = r.Granted()
		}
		out = append(out, d)
	}
	return out
}
