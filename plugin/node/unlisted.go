package node

import (
	"fmt"
	"slices"

	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/plugin/weights"
)

// unlisted has the running containers and pods with a weight that no event has reported, by the records on
// their cgroups. A cgroup without a record has no weight of this program.
type unlisted struct {
	weighted []weights.Weighted // without their disks, which records do not have
	// problems are the errors of records that cannot be read, because of which weighted may not be complete.
	problems []string
}

// demand returns the weights of the containers and pods that no event has reported, as far as they are known.
// The caller may append to the result.
func (l *listing) demand() weights.Demand {
	found := l.unlisted.Load()
	switch {
	case l.done.Load():
		return weights.Demand{Complete: true}
	case found == nil:
		return weights.Demand{Unknown: "the runtime has not listed what runs"}
	case len(found.problems) > 0:
		return weights.Demand{Weighted: slices.Clip(found.weighted), Unknown: first(found.problems)}
	case len(found.weighted) > 0:
		var names []string
		for _, w := range found.weighted {
			names = append(names, w.String())
		}
		return weights.Demand{Weighted: slices.Clip(found.weighted), Unknown: first(names) + " runs with a weight by the record on its cgroup, and the runtime has not listed it"}
	}
	return weights.Demand{Complete: true}
}

// first returns the first one of some texts, and the number of the others.
func first(texts []string) string {
	if len(texts) > 1 {
		return fmt.Sprintf("%s (and %d more)", texts[0], len(texts)-1)
	}
	return texts[0]
}

// findUnlisted reads the cgroups where the runtime may never list its containers. It stops once no unreported
// container with a weight runs, because events report all later ones.
func (n *Node) findUnlisted() {
	if n.listing.unlikely.Load() && !n.listing.demand().Complete {
		n.listing.unlisted.Store(n.readUnlisted())
	}
}

func (n *Node) readUnlisted() *unlisted {
	out := &unlisted{}
	err := n.cgroups.Walk(record.Xattr, func(c cgroupfs.Cgroup, a cgroupfs.Attribute) error {
		r, err := record.ParseAttribute(a)
		if err == nil && (r == nil || !r.HasWeight()) || n.pods.isReported(c.Path()) {
			return nil
		}
		// A cgroup that cannot be read counts: its weight would lose its effect otherwise.
		if populated, unread := c.Populated(); unread == nil && !populated {
			return nil
		}
		if err != nil {
			out.problems = append(out.problems, fmt.Sprintf("cgroup %s: %v", c.Path(), err))
			return nil
		}
		out.weighted = append(out.weighted, weights.Weighted{
			Namespace: r.Namespace, Pod: r.Pod, Container: r.Container, Cgroup: c.Path(), Weights: r.IOWeight(),
		})
		return nil
	})
	if err != nil {
		out.problems = append(out.problems, err.Error())
	}
	return out
}

// isReported reports whether an event has reported the container that a cgroup belongs to. For the cgroup of a
// pod, it reports whether a container of the pod may run that an event has reported.
func (t *podTable) isReported(cgroup string) bool {
	s := t.state.Lock()
	defer t.state.Unlock()
	if len(s.byCgroup[cgroup]) > 0 {
		return true
	}
	if g := s.groups[cgroup]; g != nil {
		for _, pod := range g.pods {
			for _, c := range pod.containers {
				if c.mayRun() {
					return true
				}
			}
		}
	}
	return false
}
