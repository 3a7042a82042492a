package policy

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
	"github.com/nri-blkio/nri-blkio/policy/quote"
	"github.com/nri-blkio/nri-blkio/policy/spelling"
)

// MountIndex finds the mounts that a target selects. A tenant chooses the number of targets
// and of mounts. So the time of a search grows with the length of the path only, not with
// the number of mounts.
type MountIndex struct {
	mounts []Mount
	dirs   dirIndex          // only with more than fewDirs mounts
	below  map[int]*dirIndex // of the mounts, made when first asked for
	// volumes are the mounts of each volume.
	volumes map[string][]int
	// isUnnamed is true if a mount is of a volume whose name in the pod its path does not show.
	isUnnamed bool
}

// IndexMounts returns an index of mounts. It reads their Destination; other fields may be set later.
func IndexMounts(mounts []Mount) MountIndex {
	x := MountIndex{mounts: mounts}
	if len(mounts) > fewDirs {
		for i := range mounts {
			x.dirs.dirs = append(x.dirs.dirs, mounts[i].Destination)
		}
	}
	return x
}

func (p *Pod) index(c *Container) MountIndex {
	if len(p.targets.Volumes) == 0 {
		return IndexMounts(c.Mounts)
	}
	return indexVolumes(c.Mounts, p.volumes.at[c.Name])
}

// indexVolumes returns an index of the mounts of a container that has its volumes as well. places is where the container has volumes of
// the pod, which the paths of mounts do not show or show wrongly: as the name of a PersistentVolume.
func indexVolumes(mounts []Mount, places []volumePlace) MountIndex {
	x := IndexMounts(mounts)
	x.volumes = map[string][]int{}
	known := map[int]bool{}
	for _, p := range places {
		if k := x.at(p.path); k >= 0 && !known[k] {
			known[k] = true
			x.volumes[p.volume] = append(x.volumes[p.volume], k)
		}
	}
	declared := maps.Clone(x.volumes)
	for i := range mounts {
		m := &mounts[i]
		x.isUnnamed = x.isUnnamed || !m.Injected && !m.isNamed()
		if m.Volume != "" && !known[i] && declared[m.Volume] == nil {
			x.volumes[m.Volume] = append(x.volumes[m.Volume], i)
		}
	}
	return x
}

// isNamed reports whether the path of a mount has the name that the pod gives the volume. For CSI and for a subPath, it can be that of a
// PersistentVolume.
func (m *Mount) isNamed() bool { return m.VolumePlugin != "" && m.VolumePlugin != "kubernetes.io/csi" }

// at returns the index of the mount at a path, or -1.
func (x *MountIndex) at(path string) int {
	if k := x.Find(path); k >= 0 && x.mounts[k].Destination == path {
		return k
	}
	return -1
}

// Find returns the index of the mount that a clean path is on. That is the mount with the longest destination
// that covers the path, and of several the last one. It returns -1 if the path is on the root filesystem.
func (x *MountIndex) Find(path string) int {
	if len(x.mounts) > fewDirs {
		return x.dirs.find(path)
	}
	return deepest(path, len(x.mounts), func(i int) string { return x.mounts[i].Destination })
}

// backing returns the backing of a path that mount i covers, see Mount.BackingOf.
func (x *MountIndex) backing(i int, path string) *blkio.Backing {
	m := &x.mounts[i]
	if len(m.Below) == 0 {
		return m.Backing
	}
	if x.below == nil {
		x.below = map[int]*dirIndex{}
	}
	below := x.below[i]
	if below == nil {
		below = &dirIndex{dirs: make([]string, 0, len(m.Below))}
		for _, b := range slices.Backward(m.Below) { // the first one of two at the same place
			below.dirs = append(below.dirs, b.Path)
		}
		x.below[i] = below
	}
	if k := below.find(path); k >= 0 {
		return m.Below[len(m.Below)-1-k].Backing
	}
	return m.Backing
}

// fewDirs is the number of directories up to which a path is compared with each of them. That takes less time
// than to make a tree of them, and only hostile containers have more.
const fewDirs = 32

// dirIndex finds the deepest of many directories that covers a path. If they are more
// than fewDirs, it makes a tree of the names in their paths.
type dirIndex struct {
	dirs     []string         // clean
	children map[dirEntry]int // numbers of nodes; the root is 0, and has no name
	values   []int            // of the nodes: an index of dirs, -1 for none
}

type dirEntry struct {
	parent int
	name   string
}

// find returns the index of the deepest directory that is a path or above it, of equal ones the last, or -1.
func (x *dirIndex) find(path string) int {
	if len(x.dirs) > fewDirs {
		return x.findInTree(path)
	}
	return deepest(path, len(x.dirs), func(i int) string { return x.dirs[i] })
}

// deepest is dirIndex.find without a tree.
func deepest(path string, n int, dirAt func(int) string) int {
	best, longest := -1, 0
	for i := range n {
		if dir := dirAt(i); covers(dir, path) && len(dir) >= longest {
			best, longest = i, len(dir)
		}
	}
	return best
}

func (x *dirIndex) findInTree(path string) int {
	if x.children == nil {
		x.makeTree()
	}
	best, node := -1, 0
	for name := range strings.SplitSeq(strings.TrimRight(path, "/"), "/") {
		next, ok := x.children[dirEntry{node, name}]
		if !ok {
			break
		}
		node = next
		if x.values[node] >= 0 {
			best = x.values[node]
		}
	}
	return best
}

func (x *dirIndex) makeTree() {
	x.children, x.values = map[dirEntry]int{}, []int{-1}
	for i, dir := range x.dirs {
		node := 0
		for name := range strings.SplitSeq(strings.TrimRight(dir, "/"), "/") {
			entry := dirEntry{node, name}
			next, ok := x.children[entry]
			if !ok {
				next = len(x.values)
				x.children[entry], x.values = next, append(x.values, -1)
			}
			node = next
		}
		x.values[node] = i
	}
}

// BackingOf returns the backing of a path that m covers: that of the longest of m and the
// mounts below it that covers the path.
func (m *Mount) BackingOf(path string) *blkio.Backing {
	best, longest := m.Backing, 0
	for i := range m.Below {
		if b := &m.Below[i]; len(b.Path) > longest && covers(b.Path, path) {
			best, longest = b.Backing, len(b.Path)
		}
	}
	return best
}

func covers(dir, path string) bool {
	for len(dir) > 0 && dir[len(dir)-1] == '/' {
		dir = dir[:len(dir)-1]
	}
	return len(path) >= len(dir) && (len(path) == len(dir) || path[len(dir)] == '/') && path[:len(dir)] == dir
}

// Unmatched returns a line for each annotation that names a container, path or volume that
// the pod does not have. Containers are created one after another, so the result is final
// only when all containers of the pod have been created. Each line is printable ASCII.
// After 16 lines the last one is "and N more".
func (p *Pod) Unmatched(cs []Container) []string {
	r := p.request
	if r.Empty() {
		return nil
	}
	var names []string
	var out distinct[string]
	var indexes []MountIndex
	areKnown := true // the mounts of all containers
	for i := range cs {
		names, indexes = append(names, cs[i].Name), append(indexes, p.index(&cs[i]))
		areKnown = areKnown && cs[i].Stage != Ended
	}
	for _, n := range r.ContainerNames() {
		if slices.Contains(names, n) {
			continue
		}
		line := "container." + n + ": the pod has no container " + quote.Text(n)
		if hint := spelling.Hint(n, names...); hint != "" {
			line += " (" + hint + ")"
		}
		out.add(line)
	}
	for _, q := range []*annotation.Scope{r.Each(), r.Total()} {
		if q == nil || q.Limits == nil || !areKnown {
			continue
		}
		for i := range q.Limits.Entries {
			if en := &q.Limits.Entries[i]; !p.isMatched(&en.Target, indexes) {
				out.add(q.Limits.From.Annotation + ": entry " + strconv.Itoa(en.Number) +
					": no container of the pod has a mount " + en.Target.Where())
			}
		}
	}
	return andMore(out.kept, len(out.more))
}

// isMatched reports whether some container has an object that the target selects.
func (p *Pod) isMatched(t *annotation.Target, containers []MountIndex) bool {
	switch t.Kind {
	case annotation.TargetPath:
		return slices.ContainsFunc(containers, func(x MountIndex) bool { return x.Find(t.Path) >= 0 })
	case annotation.TargetVolume:
		return slices.ContainsFunc(containers, func(x MountIndex) bool {
			return len(x.volumes[t.Volume]) > 0 || x.isUnnamed && !p.volumes.Known() // an error while the volumes are unknown
		})
	}
	return true
}
