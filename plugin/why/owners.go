package why

import (
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/blkio/writeback"
)

// FileOwner is a file and its writeback owner. Unknown fields are empty.
type FileOwner struct {
	Path      string `json:"path"`
	State     string `json:"state"`
	CgroupID  uint64 `json:"cgroupID,omitempty"`
	Cgroup    string `json:"cgroup,omitempty"` // path below the cgroup root
	Namespace string `json:"namespace,omitempty"`
	Pod       string `json:"pod,omitempty"`
	Container string `json:"container,omitempty"` // "" for the pod's own cgroup
	Foreign   int    `json:"foreign"`             // number of the last 16 votes that other cgroups won
}

// The states of an owner.
const (
	OwnerLive  = "live"  // its cgroup exists
	OwnerEnded = "ended" // its cgroup was removed, and a record names its container
	OwnerGone  = "gone"
	OwnerNone  = "none"
)

// FileOwners returns the containers of the owners of files. paths and owners are in the
// same order. The caller reads the owners before, so that a cgroup that is created in
// between is none of them. With an error, some names may be missing.
func FileOwners(tree *cgroupfs.Hierarchy, paths []string, owners []writeback.Owner) ([]FileOwner, error) {
	rows := make([]FileOwner, 0, len(paths))
	n, err := newNames(tree, nil)
	for i, p := range paths {
		o := owners[i]
		s := n.of(o.Cgroup)
		row := FileOwner{
			Path: p, State: OwnerGone, CgroupID: o.Cgroup, Cgroup: s.Cgroup,
			Namespace: s.Namespace, Pod: s.Pod, Container: s.Container, Foreign: o.Foreign(),
		}
		switch {
		case o.Cgroup == 0:
			row.State = OwnerNone
		case s.Ended:
			row.State = OwnerEnded
		case s.Cgroup != "":
			row.State = OwnerLive
		}
		rows = append(rows, row)
	}
	return rows, err
}
