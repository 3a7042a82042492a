package node

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
)

// text returns all that sums have, as far as it does not depend on the order of events.
func (x *sums) text() string {
	out := []string{fmt.Sprintf("%d pods, %d undecided, %d unread", len(x.shares), len(x.undecided), len(x.unread))}
	for at, s := range x.total {
		out = append(out, fmt.Sprintf("%v: %d %d, %d unlimited, %d pods", at, s.high, s.low, s.unlimited, s.pods))
	}
	for g, of := range x.shares {
		out = append(out, fmt.Sprint(g.key, of.isUndecided, x.unread[g], x.undecided[g] == of))
		for _, p := range of.portions {
			out = append(out, fmt.Sprint(g.key, p.Address, p.Granted, p.Known))
		}
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

// checkSums returns an error unless the sums of all namespaces, and the indexes, are those of the pods that there are.
func (n *Node) checkSums() error {
	s := n.state.Lock()
	defer n.state.Unlock()
	for name, ns := range s.namespaces {
		kept := ns.sums
		if kept == nil {
			continue
		}
		for g := range kept.stale {
			if !g.isIn(name) {
				return fmt.Errorf("namespace %s keeps group %q, which has left", name, g.key)
			}
		}
		kept.update(nil)
		ns.sums = nil
		fresh := s.sumsOf(name, kept.budget)
		fresh.update(nil)
		ns.sums = kept
		if got, want := kept.text(), fresh.text(); got != want {
			return fmt.Errorf("namespace %s: the sums are\n%s\nwant\n%s", name, got, want)
		}
	}
	return s.checkIndexes()
}

func (s *state) checkIndexes() error {
	want := newIndexes()
	for _, p := range s.pods {
		want.byUID.add(p.uid, p)
		for _, c := range p.containers {
			want.addContainer(c)
		}
	}
	if !sameIndex(s.byUID, want.byUID) || !sameIndex(s.byCgroup, want.byCgroup) {
		return fmt.Errorf("the indexes are %v, want %v", s.indexes, want)
	}
	return nil
}

func sameIndex[V comparable](a, b index[V]) bool {
	return maps.EqualFunc(a, b, func(a, b []V) bool {
		return len(a) == len(b) && !slices.ContainsFunc(a, func(v V) bool { return !slices.Contains(b, v) })
	})
}

// TestSum verifies that a sum returns to what it was when a pod is added and removed, also after it was too large or unlimited.
func TestSum(t *testing.T) {
	var s sum
	add := func(amount blkio.Amount) { s.add(&policy.Portion{Granted: amount}) }
	remove := func(amount blkio.Amount) { s.remove(&policy.Portion{Granted: amount}) }
	add(5)
	for _, more := range [][]blkio.Amount{{7}, {blkio.Max}, {blkio.Max - 1, blkio.Max - 2, 9}, {1 << 63, 1 << 63, blkio.Max}} {
		want := blkio.Amount(5)
		for _, amount := range more {
			add(amount)
			want = policy.Plus(want, amount)
		}
		if got := s.granted(); got.Amount != want || got.Pods != 1+len(more) {
			t.Errorf("with %v: %+v, want %v", more, got, want)
		}
		for _, amount := range more {
			remove(amount)
		}
		if got := s.granted(); got != (policy.Granted{Amount: 5, Pods: 1}) {
			t.Errorf("without %v: %+v", more, got)
		}
	}
}
