package storage

import (
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// mountModel is a mount namespace as the kernel keeps it: a tree of mounts. It looks up a path as the kernel
// does: directory by directory, and at each onto the mount there.
type mountModel struct {
	mounts []*Mount // in the order in which they were made
	rng    *rand.Rand
}

func newMountModel(rng *rand.Rand) *mountModel {
	root := &Mount{ID: 1 + rng.IntN(1000), Mountpoint: "/", Root: "/", FSType: "ext4", Source: "/dev/sda1"}
	root.Dev.Major, root.Dev.Minor = 8, 1
	return &mountModel{mounts: []*Mount{root}, rng: rng}
}

// at returns the mount on a directory that is in the mount m, or m.
func (n *mountModel) at(m *Mount, dir string) *Mount {
	for again := true; again; {
		again = false
		for _, c := range n.mounts {
			if c != n.mounts[0] && c.Parent == m.ID && c.Mountpoint == dir {
				m, again = c, true
				break
			}
		}
	}
	return m
}

// lookUp is path_lookupat in fs/namei.c, reduced to mounts.
func (n *mountModel) lookUp(p string) *Mount {
	m, dir := n.at(n.mounts[0], "/"), ""
	for name := range strings.SplitSeq(strings.Trim(p, "/"), "/") {
		if name == "" {
			continue
		}
		dir += "/" + name
		m = n.at(m, dir)
	}
	return m
}

// remoteAbove returns the nearest mount on the way to m that is not local, or nil.
func (n *mountModel) remoteAbove(m *Mount) *Mount {
	for m.Mountpoint != "/" {
		if m = n.lookUp(path.Dir(m.Mountpoint)); !isLocal(m) {
			return m
		}
	}
	return nil
}

// mount is mount(2). An ID that was unmounted may be used again.
func (n *mountModel) mount(p string) *Mount {
	id := 1
	for slices.ContainsFunc(n.mounts, func(m *Mount) bool { return m.ID == id }) {
		id = 1 + n.rng.IntN(1000)
	}
	m := &Mount{ID: id, Parent: n.lookUp(p).ID, Mountpoint: p, Root: "/", FSType: "tmpfs", Source: "tmpfs"}
	if n.rng.IntN(4) == 0 {
		m.FSType = "nfs4"
	}
	m.Dev.Minor = uint32(100 + id)
	n.mounts = append(n.mounts, m)
	return m
}

// unmount is umount(2) of a mount that nothing is mounted on; nil if it drew the root.
func (n *mountModel) unmount() *Mount {
	var leaves []int
	for i, m := range n.mounts[1:] {
		if !slices.ContainsFunc(n.mounts, func(c *Mount) bool { return c.Parent == m.ID && c != m }) {
			leaves = append(leaves, i+1)
		}
	}
	if len(leaves) == 0 {
		return nil
	}
	i := leaves[n.rng.IntN(len(leaves))]
	m := n.mounts[i]
	n.mounts = slices.Delete(slices.Clone(n.mounts), i, i+1)
	return m
}

// text is mountinfo.
func (n *mountModel) text() string {
	var b strings.Builder
	for _, m := range n.mounts {
		fmt.Fprintf(&b, "%d %d %s %s %s rw,relatime - %s %s rw\n", m.ID, m.Parent, m.Dev, m.Root, m.Mountpoint, m.FSType, m.Source)
	}
	return b.String()
}

// names has bytes that sort before and after the slash, and names that others begin with.
func (n *mountModel) path() string {
	names := []string{"a", "a-b", "a.b", "ab", "a!", "b", "a0"}
	p := ""
	for range n.rng.IntN(5) {
		p += "/" + names[n.rng.IntN(len(names))]
	}
	return path.Clean("/" + p)
}

func (n *mountModel) check(t *testing.T, what string, table *MountTable) {
	t.Helper()
	for range 40 {
		p := n.path()
		got, ok := table.Find(p)
		if want := n.lookUp(p); !ok || got.ID != want.ID {
			t.Fatalf("%s: %s is in mount %+v, want %+v; the mounts are\n%s", what, p, got, want, n.text())
		}
		_, remote := table.find(p)
		if want := n.remoteAbove(got); (remote == nil) != (want == nil) || want != nil && remote.ID != want.ID {
			t.Fatalf("%s: %s is below the remote mount %+v, want %+v; the mounts are\n%s", what, p, remote, want, n.text())
		}
	}
}

// TestFindIsTheKernels compares the mount of a path with the model after each of many mounts
// and unmounts, on, above and below one another.
func TestFindIsTheKernels(t *testing.T) {
	for seed := range uint64(25) {
		rng := rand.New(rand.NewPCG(seed, 0))
		n := newMountModel(rng)
		for step := range 25 {
			if rng.IntN(4) == 0 {
				n.unmount()
			} else {
				n.mount(n.path())
			}
			n.check(t, fmt.Sprintf("seed %d, step %d", seed, step), parseTable(t, n.text()))
		}
	}
}

// TestNextIsSorted compares a table that was made from the one before and the changes with
// one that was sorted as a whole.
func TestNextIsSorted(t *testing.T) {
	for seed := range uint64(25) {
		rng := rand.New(rand.NewPCG(seed, 1))
		n := newMountModel(rng)
		table := newMountTable(slices.Clone(n.mounts))
		for step := range 25 {
			gone := map[*Mount]bool{}
			var added []*Mount
			for range 1 + rng.IntN(4) {
				if rng.IntN(3) == 0 {
					if m := n.unmount(); m != nil && !slices.Contains(added, m) {
						gone[m] = true
					} else if m != nil {
						added = slices.DeleteFunc(added, func(a *Mount) bool { return a == m })
					}
					continue
				}
				added = append(added, n.mount(n.path()))
			}
			table = table.next(slices.Clone(n.mounts), added, gone)
			if !slices.IsSortedFunc(table.sorted, byMountpoint) || len(table.sorted) != len(n.mounts) {
				t.Fatalf("seed %d, step %d: %d mounts are sorted of %d", seed, step, len(table.sorted), len(n.mounts))
			}
			if diff := cmp.Diff(n.mounts, table.All()); diff != "" {
				t.Fatalf("seed %d, step %d: the order of the kernel is lost:\n%s", seed, step, diff)
			}
			n.check(t, fmt.Sprintf("seed %d, step %d", seed, step), table)
		}
	}
}

// TestBelowIsThePrefix compares the mounts below a directory with the mountpoints that begin with its path and
// a slash.
func TestBelowIsThePrefix(t *testing.T) {
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 2))
		n := newMountModel(rng)
		for range 30 {
			n.mount(n.path())
		}
		table := parseTable(t, n.text())
		for range 30 {
			dir := n.path()
			if dir == "/" {
				dir = "" // as callers name the root
			}
			var want, got []string
			for _, m := range table.sorted {
				if strings.HasPrefix(m.Mountpoint, dir+"/") && m.Mountpoint != "/" {
					want = append(want, m.Mountpoint)
				}
			}
			for _, m := range table.below(dir) {
				if !isBelow(m.Mountpoint, dir) {
					break
				}
				got = append(got, m.Mountpoint)
			}
			if !slices.Equal(got, want) {
				t.Errorf("seed %d: below %q are %q, want %q", seed, dir, got, want)
			}
		}
	}
}

// TestPathFunctions compares the functions on paths, which allocate nothing, with those of
// the standard library.
func TestPathFunctions(t *testing.T) {
	n := newMountModel(rand.New(rand.NewPCG(7, 7)))
	for range 5000 {
		p, other := n.path(), n.path()
		if got, want := parentDir(p), path.Dir(p); got != want {
			t.Errorf("parentDir(%q) is %q, want %q", p, got, want)
		}
		want := p
		for want != "/" && !strings.HasPrefix(other, want) {
			want = path.Dir(want)
		}
		// find calls it with a mountpoint that is sorted before the path.
		isAncestor := other == "/" || strings.HasPrefix(p, other+"/")
		if got := commonDir(p, other); other < p && !isAncestor && got != want {
			t.Errorf("commonDir(%q, %q) is %q, want %q", p, other, got, want)
		}
		dir := strings.TrimSuffix(other, "/")
		below := p != "/" && strings.HasPrefix(p, dir+"/")
		if got := isBelow(p, dir); got != below {
			t.Errorf("isBelow(%q, %q) is %v", p, dir, got)
		}
		if got := compareToBelow(p, dir); (got > 0) != (below || strings.Compare(p, dir+"/") > 0 && !below && p != dir+"/") {
			t.Errorf("compareToBelow(%q, %q) is %d", p, dir, got)
		}
	}
}

// TestFindRefuses has paths that are not absolute, and tables that hold no path.
func TestFindRefuses(t *testing.T) {
	table := parseTable(t, nodeMounts)
	for _, p := range []string{"", "a", "./a", "../a", "~", "\x00"} {
		if m, ok := table.Find(p); ok || m != nil {
			t.Errorf("%q is in %+v", p, m)
		}
	}
	for _, text := range []string{"", "5 4 8:1 / /only rw - ext4 /dev/sda1 rw\n"} {
		if m, ok := parseTable(t, text).Find("/other"); ok {
			t.Errorf("of %q: %+v", text, m)
		}
	}
	if m, ok := parseTable(t, "5 4 8:1 / /only rw - ext4 /dev/sda1 rw\n").Find("/only/x"); !ok || m.ID != 5 {
		t.Errorf("a table without a root: %+v, %v", m, ok)
	}
}

// TestParentsInACircle verifies that Find ends, with some mount, if the parents of a table
// that a filesystem has forged lines of go round in circles.
func TestParentsInACircle(t *testing.T) {
	for _, parents := range [][3]int{{1, 2, 3}, {2, 3, 1}, {3, 1, 2}, {2, 1, 1}, {0, 0, 0}, {9, 9, 9}} {
		var text strings.Builder
		for i, parent := range parents {
			fmt.Fprintf(&text, "%d %d 0:%d / /a rw - tmpfs tmpfs rw\n", i+1, parent, i+1)
		}
		table := parseTable(t, "10 1 8:1 / / rw - ext4 /dev/sda1 rw\n"+text.String())
		for _, p := range []string{"/", "/a", "/a/b"} {
			if m, ok := table.Find(p); !ok || m == nil {
				t.Errorf("%v: %s is in no mount", parents, p)
			}
		}
	}
}
