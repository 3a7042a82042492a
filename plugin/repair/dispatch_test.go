package repair

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio/writeback"
	"github.com/nri-blkio/nri-blkio/plugin/repair/filestate"
)

// compareVisits lets cmp compare the unexported fields of visits.
func compareVisits() cmp.Option { return cmp.AllowUnexported(visit{}) }

// visitTest is a task, and the visit that is made of it.
type visitTest struct {
	name string
	task task
	want visit
	left share // of the writer's, after it
}

func (tt *visitTest) run(t *testing.T, n *nodeTest) {
	n.domains.forgetPlaces()
	tt.task.shares = []share{*tt.task.to}
	tt.task.to = &tt.task.shares[0]
	got := n.visit(n.now, &tt.task)
	if diff := cmp.Diff(tt.want, got, compareVisits()); diff != "" {
		t.Errorf("the visit (-want, +got):\n%s", diff)
	}
	if diff := cmp.Diff(tt.left, *tt.task.to, cmp.AllowUnexported(share{}, domain{}, recent{}, fresh{}, span{})); diff != "" {
		t.Errorf("what was written since then (-want, +got):\n%s", diff)
	}
}

// TestVisit verifies that a visit covers the writes since the last visit, and drops pages if many of them are
// charged to others.
func TestVisit(t *testing.T) {
	n := newNodeTest(t)
	const writer = 5
	n.domains.cgroups.(*modelTree).paths = map[uint64]string{writer: "kubepods/podone/a"}
	for _, tt := range []visitTest{
		{
			"written to",
			task{&file{owner: member{id: 9}}, move, &share{fresh: fresh{span{4096, 8192}, 8192, 0}}},
			visit{work: move, ownerID: 9, first: 4096, last: 8192, fresh: 8192},
			share{},
		},
		{
			"by a writer whose pages are charged to others",
			task{&file{}, move, &share{fresh: fresh{span{0, 8192}, 8192, 8192}, writers: []uint64{writer, 77}}},
			visit{work: move, last: 8192, fresh: 8192, drops: true, writers: []string{"kubepods/podone/a"}},
			share{writers: []uint64{writer, 77}},
		},
		{
			"by such a writer, again: its mappings were looked for",
			task{&file{drops: drops{passes: 1}}, move, &share{fresh: fresh{span{0, 8192}, 8192, 8192}, writers: []uint64{writer}}},
			visit{work: move, last: 8192, fresh: 8192, drops: true},
			share{writers: []uint64{writer}},
		},
		{
			"by such a writer, later",
			task{&file{drops: drops{passes: mappedEvery}}, move, &share{fresh: fresh{bytes: 1, misplaced: 1}, writers: []uint64{writer}}},
			visit{work: move, fresh: 1, drops: true, writers: []string{"kubepods/podone/a"}},
			share{writers: []uint64{writer}},
		},
		{
			"where the last visit stopped",
			task{&file{drops: drops{offset: 12345}}, drop, &share{fresh: fresh{bytes: 1, misplaced: 1}}},
			visit{work: drop, fresh: 1, drops: true, dropAt: 12345},
			share{},
		},
		{
			"what is left of the owner before: all that was ever written",
			task{&file{drops: drops{leftovers: 1, passes: 1}}, drop, &share{fresh: fresh{span{100, 200}, 1, 0}, ever: span{10, 9000}}},
			visit{work: drop, first: 10, last: 9000, fresh: 1, drops: true},
			share{ever: span{10, 9000}},
		},
		{
			"at the end of what a file can have",
			task{&file{}, move, &share{fresh: fresh{span{1<<64 - 1, 1<<64 - 1}, 1, 0}}},
			visit{work: move, first: maxOffset, last: maxOffset, fresh: 1},
			share{},
		},
	} {
		t.Run(tt.name, func(t *testing.T) { tt.run(t, n) })
	}
}

// TestVisitLeftovers verifies that a few visits after a move drop the pages that others have left, with a pause
// before each. Pages of others that stay after many visits are left alone for longer.
func TestVisitLeftovers(t *testing.T) {
	n := newNodeTest(t)
	f := &file{drops: drops{leftovers: leftoverPasses}}
	to := &share{fresh: fresh{bytes: 1}}
	for i := range leftoverPasses {
		v := n.visit(n.now, &task{f, drop, to})
		if !v.drops || f.drops.leftovers != leftoverPasses-1-i || !f.drops.leftoversAt.Equal(n.now.Add(leftoverEvery)) {
			t.Errorf("visit %d: %+v, the file has %d leftovers", i, v, f.drops.leftovers)
		}
	}
	if v := n.visit(n.now, &task{f, drop, to}); v.drops {
		t.Errorf("after the last one: %+v", v)
	}
	f.drops.passes = maxDrops - 1
	n.visit(n.now, &task{f, drop, &share{fresh: fresh{bytes: 2, misplaced: 2}}})
	if f.drops.passes != 0 || !f.rest.until.Equal(n.now.Add(minRest)) {
		t.Errorf("after %d drops the file rests until %v", maxDrops, f.rest.until)
	}
}

// TestDispatchBudget verifies that passes begin with as many new files as the policy allows. The others wait
// for their turn.
func TestDispatchBudget(t *testing.T) {
	n := newNodeTest(t)
	n.budgets.files.set(n.now, 4)
	n.writes(n.watches(0), "one", "a", 20)
	began := 0
	for range 10 {
		n.acts()
		for _, pass := range n.passes.busy {
			began += len(pass.files)
			n.passes.exit(pass.passKey)
		}
	}
	if began == 0 || began > 8 {
		t.Errorf("%d of 20 files were begun with at 4 a second", began)
	}
	waiting := 0
	for _, f := range n.ledger.files {
		if f.state.State() == filestate.Waiting {
			waiting++
		}
	}
	if waiting != 20-began {
		t.Errorf("%d files wait, %d were begun with", waiting, began)
	}
	n.now = n.now.Add(time.Second)
	if got := n.acts()["one"]; got == 0 {
		t.Error("none begins a second later")
	}
}

// TestDispatchStops verifies that a pass ends if its file needs other work, and continues if it needs more of
// the same.
func TestDispatchStops(t *testing.T) {
	n := newNodeTest(t)
	n.domains.cgroups.(*modelTree).paths = map[uint64]string{5: "kubepods/podone/a"} // its writer runs
	fs := n.watches(0)
	n.writes(fs, "one", "a", 1)
	n.acts()
	pass := n.passes.visiting[n.last]
	if pass == nil {
		t.Fatal("no pass began")
	}
	f := n.ledger.files[n.last]
	to := &f.shares[0]
	to.fresh.bytes = 4096
	n.dispatch(n.now, []task{{f, move, to}})
	if len(pass.stop) != 0 {
		t.Error("the pass got a signal to stop for more work of the same kind")
	}
	n.dispatch(n.now, []task{{f, move, &share{account: "one"}}}) // nothing was written
	if len(pass.stop) != 0 {
		t.Error("the pass got a signal to stop although nothing was written")
	}
	n.dispatch(n.now, []task{{f, drop, to}})
	if len(pass.stop) != 1 {
		t.Error("the pass got no signal to stop, although its file needs to be dropped")
	}
	// Another file of the pod on that filesystem waits for the pass, and ends it.
	<-pass.stop
	other := &file{Inode: writeback.Inode{Dev: fs.dev, Number: 99}, fs: fs}
	n.dispatch(n.now, []task{{other, move, &share{account: "one", fresh: fresh{bytes: 1}}}})
	if len(pass.stop) != 1 || n.passes.visiting[other.Inode] != nil {
		t.Error("the pass got no signal to stop, although another file waits, or a second pass began")
	}
}
