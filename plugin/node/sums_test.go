package node

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

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

// TestEditAddsUpOnce verifies that an edit of a pod with many containers adds up the pod once, and not for each container: all events
// wait for the lock meanwhile.
func TestEditAddsUpOnce(t *testing.T) {
	const containers = 40
	b := newBudgetNode(t, strings.Replace(tenantBudget, "200Mi", "200Gi", 1))
	sb := tenant("0", "* wbps=2Mi; /data wbps=5Mi")
	for k := range containers {
		if err := b.createOf(sb, member(sb, fmt.Sprint("c", k), bind("/mnt/data/x", "/data"))); err != nil {
			t.Fatal(err)
		}
	}
	s := b.state.Lock()
	defer b.state.Unlock()
	var of []*snapshot
	for _, c := range s.pods["sb-0"].sorted() {
		of = append(of, &c.snapshot)
	}
	best := func(of []*snapshot) time.Duration {
		out := time.Hour
		for range 50 { // most of them while another process has the CPU
			began := time.Now()
			if excess := s.excess(of[0].pod.group.in(s), of, nil); excess != nil {
				t.Fatal(excess)
			}
			out = min(out, time.Since(began))
		}
		return out
	}
	one, all := best(of[:1]), best(of)
	if all > containers/4*one {
		t.Errorf("one container takes %v, and %d take %v", one, containers, all)
	}
}

// TestCheckAddsUpChanged verifies that the check of a container and a report add up only the pods that have changed since the last one.
func TestCheckAddsUpChanged(t *testing.T) {
	b := newBudgetNode(t, strings.Replace(tenantBudget, "200Mi", "200Gi", 1))
	var last *snapshot
	for i := range 20 {
		sb := tenant(fmt.Sprint(i), "* wbps=2Mi")
		c := member(sb, "x")
		if err := b.createOf(sb, c); err != nil {
			t.Fatal(err)
		}
		now := b.peek().pods[sb.ID].containers[c.ID].snapshot
		last = &now
	}
	shares := func() map[*group]*groupShare { return maps.Clone(b.peek().namespaces["tenant-a"].sums.shares) }
	changed := func(before map[*group]*groupShare) (keys []string) {
		for g, share := range shares() {
			if before[g] != share {
				keys = append(keys, g.key)
			}
		}
		return keys
	}
	b.Budgets()
	before := shares()
	if excess := excess(b.Node, last); excess != nil {
		t.Fatal(excess)
	}
	b.Budgets()
	if got := changed(before); len(got) > 0 {
		t.Errorf("added up again without a change: %q", got)
	}
	b.Stopped("sb-3", "sb-3-x")
	if excess := excess(b.Node, last); excess != nil {
		t.Fatal(excess)
	}
	if got, want := changed(before), []string{sliceOf("3")}; !slices.Equal(got, want) {
		t.Errorf("added up again: %q, want %q", got, want)
	}
	b.Reload(rules(t, ""))
	if b.Budgets(); b.peek().namespaces["tenant-a"].sums != nil {
		t.Error("sums are kept without a budget")
	}
}

// TestFailedSearchForgetsNoRecord verifies that a search that could not read the record of a container does not hide what another read
// has found.
func TestFailedSearchForgetsNoRecord(t *testing.T) {
	b := newBudgetNode(t, tenantBudget)
	sb := tenant("0", "* wbps=2Mi")
	if err := b.createOf(sb, member(sb, "a")); err != nil {
		t.Fatal(err)
	}
	s := b.state.Lock()
	c := s.pods[sb.ID].sorted()[0]
	c.decision, c.recalled = undecided, nil // as after a restart
	searched := c.snapshot
	s.recount(c.pod.group.in(s))
	b.state.Unlock()
	of := snapshot{decision: &decision{policy: searched.pod.request.now.Load().Under(b.policy.Load())}}
	of.pod = searched.pod
	b.readGranted(&of) // as the creation of another container does
	b.noteFound(&searched, true, errors.New("input/output error"))
	if found := b.snapshot(searched.ref); found.recalled == nil {
		t.Error("the record is forgotten, and is not read again")
	}
}
