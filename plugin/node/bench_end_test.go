package node

import (
	"slices"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
)

// BenchmarkEnd measures the end of a container, until the lines that lift its limits are known: the rest of it races with the removal
// of the cgroup. The node has 1,000 pods of two containers each.
func BenchmarkEnd(b *testing.B) {
	const pods = 1000
	var cgroups []string
	for i := range pods {
		cgroups = append(cgroups, podSlice(i), benchScope(i, "db"), benchScope(i, "sidecar"))
	}
	h, _ := tree(b, cgroups...)
	n := newNode(b, h)
	exits := exitHandler{n}
	exits.Watching(anyCgroup{})
	for i := range pods {
		sb, db, sidecar := benchPod(i, "/var/lib")
		for _, c := range []*Container{db, sidecar} {
			if _, err := n.create(b.Context(), sb, c, false); err != nil {
				b.Fatal(err)
			}
			if err := n.start(b.Context(), sb, c, true); err != nil {
				b.Fatal(err)
			}
		}
	}
	var all []snapshot
	for _, g := range n.groups() {
		all = append(all, n.snapshotsOf(g)...)
	}
	slices.SortFunc(all, func(a, b snapshot) int { return a.arrival - b.arrival })
	var took []time.Duration
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		c := &all[i*7%len(all)]
		began := time.Now()
		end := exits.Ended(c.cgroup)
		if end == nil {
			b.Fatalf("nothing is to be done at the end of %s", c.cgroup)
		}
		lines := end.Limits()
		if took = append(took, time.Since(began)); len(lines) == 0 {
			b.Fatalf("no limits are to be lifted in %s", c.cgroup)
		}
		n.Removed(c.pod.id, c.id)
		func() { // it runs again
			s := n.state.Lock()
			defer n.state.Unlock()
			s.add(c)
		}()
	}
	report(b, "end", took)
}

// anyCgroup is a watch that takes all cgroups.
type anyCgroup struct{}

func (anyCgroup) Add(cgroupfs.Cgroup) error { return nil }
