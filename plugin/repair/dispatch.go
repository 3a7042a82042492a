package repair

import (
	"errors"
	"math"
	"slices"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio/writeback"
)

// dispatch has passes made over the files of each account on each filesystem, where
// none is under way. Of each the writers take turns: one with many files keeps no other
// waiting.
func (r *Repairer) dispatch(now time.Time, tasks []task) {
	todo := map[passKey][]task{}
	for _, t := range tasks {
		key := passKey{t.fs.dev, t.to.account}
		pass := r.passes.visiting[t.Inode]
		if pass == nil {
			pass = r.passes.busy[key]
		}
		switch {
		case r.watch.filesystems[key.dev] == nil || t.to.fresh == 0:
		case pass == nil:
			todo[key] = append(todo[key], t)
		case !pass.does(&t):
			signal(pass.leave)
		}
	}
	for key, of := range todo {
		if r.budgets.early.ready(now, key.account, slice) && r.budgets.cpu.allowance(now, key.account) > 0 && r.passes.mayPass(key.account) {
			r.begin(now, key, of)
		}
	}
}

// begin has a pass made over files of one account on one filesystem.
func (r *Repairer) begin(now time.Time, key passKey, tasks []task) {
	var visits []visit
	for _, t := range takeTurns(tasks, func(t *task) domain { return t.to.domain }) {
		if len(visits) == maxVisits {
			break
		}
		if t.work == move && t.state != StateRepairing {
			if !r.budgets.files.ready(now, key.account, 1) {
				continue
			}
			r.budgets.files.spend(now, key.account, 1)
		}
		r.ledger.begin(now, &t)
		visits = append(visits, r.visit(now, &t))
	}
	if len(visits) == 0 {
		return
	}
	pass := newUnderway(now, key, r.watch.filesystems[key.dev], visits)
	r.passes.enter(pass)
	w := &worker{
		tools: r.passes.tools, budgets: r.budgets, fs: pass.fs, account: key.account,
		dirtied: pass.dirtied, leave: pass.leave, alive: pass.alive,
	}
	go func() { r.passes.ended <- r.passes.run(w, visits) }()
}

// takeTurns puts the first one of each group first, then the second ones, and so on.
func takeTurns[T any, G comparable](all []T, group func(*T) G) []T {
	turn := map[G]int{}
	turns := make([]int, len(all))
	order := make([]int, len(all))
	for i := range all {
		g := group(&all[i])
		turns[i], order[i] = turn[g], i
		turn[g]++
	}
	slices.SortStableFunc(order, func(a, b int) int { return turns[a] - turns[b] })
	out := make([]T, len(all))
	for i, k := range order {
		out[i] = all[k]
	}
	return out
}

// maxOffset leaves room for what is looked at behind it.
const maxOffset = math.MaxInt64 - 2*around

// visit is what is to be done now about a task, by what was written since the last
// time.
func (r *Repairer) visit(now time.Time, t *task) visit {
	v := visit{
		Inode: t.Inode, work: t.work, ownerID: t.ownerID,
		first: int64(min(t.to.first, t.to.last, maxOffset)), last: int64(min(t.to.last, maxOffset)), fresh: t.to.fresh,
		drops: t.to.drifts(), dropAt: t.dropAt,
	}
	if t.work == drop && t.leftovers > 0 {
		t.leftovers--
		t.leftoversAt = now.Add(leftoverEvery)
		v.first, v.last, v.drops = int64(min(t.to.low, maxOffset)), int64(min(t.to.high, maxOffset)), true
	}
	switch {
	case !v.drops:
	case t.drops%mappedEvery == 0: // it may be mapped
		v.writers = r.domains.pathsOf(t.to.writers)
	}
	if v.drops {
		t.drops++
	}
	if t.work == drop && t.leftovers == 0 && t.drops >= maxDrops {
		t.restFrom(now) // others keep them
		t.drops = 0
	}
	for i := range t.shares {
		t.shares[i].fresh, t.shares[i].freshWrong = 0, 0
	}
	return v
}

// note takes what came of a pass.
func (r *Repairer) note(now time.Time, p passed) {
	r.passes.exit(passKey{p.fs.dev, p.account})
	r.metrics.cpu.Add(int64(p.cpu))
	r.problems.complain("pass "+p.fs.dev.String(), "Files of "+p.fs.mountpoint+" cannot be moved", p.err)
	r.domains.moment()
	for i := range p.outcomes {
		r.noteFile(now, p.fs, &p.outcomes[i])
	}
	for _, in := range p.skipped {
		if f := r.ledger.files[in]; f != nil {
			r.ledger.touched[f] = true
		}
	}
	r.problems.complain("mappings", "Mapped files cannot be moved", r.passes.tools.procs.access())
}

func (r *Repairer) noteFile(now time.Time, fs *filesystem, o *outcome) {
	r.metrics.early.Add(o.written)
	f := r.ledger.files[o.Inode]
	switch {
	case f == nil:
	case errors.Is(o.err, writeback.ErrNoFile):
		r.ledger.remove(f)
	case o.err != nil:
		f.fail(now, o.err.Error())
		r.metrics.failed.Add(1)
		r.problems.failures.Do(func() {
			r.problems.log.WithError(o.err).Warn("Moving a file failed (status lists all; logged once a minute)")
		})
	case o.owner != 0:
		r.ledger.touched[f], f.dropAt = true, o.dropAt
		f.owner, f.ownerID, f.path = r.domains.of(o.owner, fs), o.owner, o.path
	}
}
