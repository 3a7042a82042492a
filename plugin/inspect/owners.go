package inspect

import (
	"errors"
	"strings"

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
	cgroups, err := newCgroupNames(tree)
	for i, p := range paths {
		row := FileOwner{Path: p}
		cgroups.fill(&row, owners[i])
		rows = append(rows, row)
	}
	return rows, err
}

// cgroupNames finds the containers of cgroup IDs.
type cgroupNames struct {
	paths   map[uint64]string
	records map[string]Recorded // by path
	ended   map[uint64]Ended
}

// newCgroupNames reads the tree and its records. With an error it has the rest of them.
func newCgroupNames(tree *cgroupfs.Hierarchy) (*cgroupNames, error) {
	paths, err := tree.IDs()
	records, readErr := Records(tree, Filter{})
	c := &cgroupNames{paths: paths, records: map[string]Recorded{}, ended: EndedContainers(records)}
	for _, r := range records {
		c.records[r.Cgroup.Path()] = r
	}
	return c, errors.Join(err, readErr)
}

// fill adds to a row the owner of its file.
func (c *cgroupNames) fill(row *FileOwner, o writeback.Owner) {
	row.CgroupID, row.Foreign = o.Cgroup, o.Foreign()
	dir, live := c.paths[o.Cgroup]
	ended, known := c.ended[o.Cgroup]
	switch {
	case o.Cgroup == 0:
		row.State = OwnerNone
	case live:
		row.State, row.Cgroup = OwnerLive, dir
		row.name(c.above(dir))
	case known:
		row.State = OwnerEnded
		row.Namespace, row.Pod, row.Container = ended.Pod.Namespace, ended.Pod.Pod, ended.Exit.Container
	default:
		row.State = OwnerGone
	}
}

// above finds the record of a cgroup, or of the nearest one above: runtimes and
// containers make cgroups of their own.
func (c *cgroupNames) above(dir string) (Recorded, bool) {
	for {
		if r, ok := c.records[dir]; ok {
			return r, true
		}
		i := strings.LastIndexByte(dir, '/')
		if i < 0 {
			return Recorded{}, false
		}
		dir = dir[:i]
	}
}

func (r *FileOwner) name(of Recorded, known bool) {
	if known {
		r.Namespace, r.Pod, r.Container = of.Record.Namespace, of.Record.Pod, of.Record.Container
	}
}
