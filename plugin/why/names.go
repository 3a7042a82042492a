package why

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/blkio/writeback"
	"github.com/nri-blkio/nri-blkio/plugin/inspect"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/plugin/runtimeconfig"
)

// Subject is a pod, one of its containers, or another cgroup.
type Subject struct {
	Namespace string `json:"namespace,omitempty"`
	Pod       string `json:"pod,omitempty"`
	Container string `json:"container,omitempty"` // "": the pod as a whole
	Cgroup    string `json:"cgroup,omitempty"`    // path below the cgroup root, also of one that a container made; "": it was removed
	// Ended is true for a container that has ended.
	Ended bool `json:"ended,omitempty"`
}

// String names the subject.
func (s Subject) String() string {
	name := s.Pod
	if s.Namespace != "" {
		name = s.Namespace + "/" + s.Pod
	}
	if s.Container != "" {
		name += " " + s.Container
	}
	switch {
	case s.Ended:
		return name + " (ended)"
	case name != "":
		return name
	case s.Cgroup == ".":
		return "the node"
	case s.Cgroup != "":
		return "cgroup " + s.Cgroup
	}
	return "a removed cgroup"
}

func (s Subject) isOfPod(o Subject) bool {
	return s.Pod != "" && s.Namespace == o.Namespace && s.Pod == o.Pod
}

func (s Subject) isWhole() bool {
	pod, container := split(s.Cgroup)
	return pod != "" && container == ""
}

// isOutside reports whether the subject is a cgroup outside of pods. That of the kernel's threads, the root, is not one.
func (s Subject) isOutside() bool {
	pod, _ := split(s.Cgroup)
	return pod == "" && s.Cgroup != "" && s.Cgroup != "."
}

// isMade reports whether the subject is a cgroup that a container made below its own.
func (s Subject) isMade() bool {
	pod, container := split(s.Cgroup)
	return pod != "" && path.Join(pod, container) != s.Cgroup
}

// names finds the subjects of cgroups.
type names struct {
	byID    func(uint64) (cgroupfs.Cgroup, error)
	paths   map[uint64]string
	pods    map[string]runtimeconfig.Pod // by UID, with "_" for "-"
	records map[string]*record.Record
	ended   map[uint64]inspect.Ended
}

// newNames reads the tree and its records. With an error it has the rest of them. The pods can be nil: then only those with
// records have names.
func newNames(tree *cgroupfs.Hierarchy, pods []runtimeconfig.Pod) (*names, error) {
	n := &names{byID: tree.ByID, pods: map[string]runtimeconfig.Pod{}, records: map[string]*record.Record{}}
	for _, p := range pods {
		n.pods[strings.ReplaceAll(p.UID, "-", "_")] = p
	}
	records, err := inspect.Records(tree, inspect.Filter{})
	n.ended = inspect.EndedContainers(records)
	for _, r := range records {
		n.records[r.Cgroup.Path()] = r.Record
	}
	var readErr error
	if n.paths, readErr = tree.IDs(); readErr != nil {
		return n, readErr
	}
	return n, err
}

// of returns the subject of a cgroup's ID. It adds the path of one that is not known yet: of those that a container made, only
// some are.
func (n *names) of(id uint64) Subject {
	if _, ok := n.paths[id]; !ok && id != 0 {
		if c, err := n.byID(id); err == nil {
			n.paths[id] = c.Path()
		}
	}
	if dir, ok := n.paths[id]; ok {
		return n.at(dir)
	}
	if e, ok := n.ended[id]; ok {
		return Subject{Namespace: e.Pod.Namespace, Pod: e.Pod.Pod, Container: e.Exit.Container, Ended: true}
	}
	return Subject{}
}

// crunChild is the child of a container's cgroup where crun, with the systemd driver, runs the processes and writes the limits of the
// OCI spec. It is not one that the container made.
const crunChild = "container"

// at returns the subject of a cgroup's path. What a container creates below its own cgroup is the container's.
func (n *names) at(dir string) Subject {
	pod, container := split(dir)
	if pod == "" {
		return Subject{Cgroup: dir}
	}
	if dir == path.Join(pod, container, crunChild) && container != "" {
		dir = path.Dir(dir)
	}
	out := Subject{Cgroup: dir}
	known, byRuntime := n.pods[cgroupfs.PodUID(pod)]
	if byRuntime {
		out.Namespace, out.Pod = known.Namespace, known.Name
		out.Container = known.Containers[containerID(container)]
	}
	for _, p := range []string{pod, path.Join(pod, container)} {
		if r := n.records[p]; r != nil {
			out.Namespace, out.Pod = r.Namespace, r.Pod
			if p != pod {
				out.Container = r.Container
			}
		}
	}
	return out
}

// split divides a path at the cgroup of its pod. Both are "" for another cgroup than a pod's.
func split(dir string) (pod, container string) {
	if cgroupfs.PodUID(dir) == "" {
		return "", ""
	}
	pod = dir
	for i := range dir {
		if dir[i] == '/' && cgroupfs.PodUID(dir[:i]) != "" {
			pod = dir[:i]
			break
		}
	}
	container, _, _ = strings.Cut(strings.TrimPrefix(dir[len(pod):], "/"), "/")
	return pod, container
}

// containerID returns the ID in the name of a container's cgroup: "cri-containerd-ID.scope", "crio-ID.scope" or "ID".
func containerID(name string) string {
	name = strings.TrimSuffix(name, ".scope")
	return name[strings.LastIndexByte(name, '-')+1:]
}

// Target is what is asked about.
type Target struct {
	Namespace string // "": any
	Pod       string
	Container string // "": all of them
}

// find returns the cgroup of the target.
func (n *names) find(t Target) (Subject, error) {
	var found []Subject
	var others []string
	for _, id := range slices.Sorted(maps.Keys(n.paths)) { // the kernel gives a later cgroup a larger ID
		s := n.at(n.paths[id])
		if s.Pod == "" || s.isMade() || s.Pod != t.Pod || t.Namespace != "" && s.Namespace != t.Namespace {
			continue
		}
		switch {
		case s.Container == t.Container && (t.Container != "" || s.isWhole()):
			found = append(found, s)
		case s.Container != "":
			others = append(others, s.Container)
		}
	}
	slices.SortStableFunc(found, func(a, b Subject) int { return strings.Compare(a.Namespace, b.Namespace) })
	switch {
	case len(found) > 0 && found[0].Namespace != found[len(found)-1].Namespace:
		return Subject{}, fmt.Errorf("pods of two namespaces have the name %q: write %s or %s", t.Pod, found[0], found[len(found)-1])
	case len(found) > 0: // the newest: a former one of the same name may not be removed yet
		return found[len(found)-1], nil
	case len(others) > 0:
		slices.Sort(others)
		return Subject{}, fmt.Errorf("pod %q has no container %q here: it has %s", t.Pod, t.Container, strings.Join(slices.Compact(others), ", "))
	}
	return Subject{}, fmt.Errorf("no running pod %q on this node", strings.TrimPrefix(t.Namespace+"/"+t.Pod, "/"))
}

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
// same order. The caller reads the owners first. A cgroup that is created after that cannot be one of
// them. With an error, some names may be missing.
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
