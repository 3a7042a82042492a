package repair

import (
	"errors"
	"math"
	"slices"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio/writeback"
)

// dispatch has passes made over the files of each filesystem where none is under
// way. Of each the writers take turns: one with many files keeps no other waiting.
func (r *Repairer) dispatch(now time.Time, tasks []task) {
	allowance := r.early.TokensAt(now)
	if allowance < 1 {
		return
	}
	byFS := map[*filesystem][]task{}
	for _, t := range tasks {
		fs, pass := r.watched[t.fs.dev], r.busy[t.fs.dev]
		switch {
		case fs == nil || t.to.fresh == 0:
		case pass == nil:
			byFS[fs] = append(byFS[fs], t)
		case !pass.does(&t):
			signal(pass.leave)
		}
	}
	for fs, of := range byFS {
		var visits []visit
		for _, t := range takeTurns(of) {
			if len(visits) == maxVisits {
				break
			}
			if t.work == move && t.state != StateRepairing && !r.files.AllowN(now, 1) {
				continue
			}
			r.ledger.begin(now, &t)
			visits = append(visits, r.visit(now, &t))
		}
		if len(visits) == 0 {
			continue
		}
		pass := newUnderway(now, visits)
		r.busy[fs.dev] = pass
		w := worker{
			reader: r.reader, fs: fs, hostRoot: r.hostRoot, procs: r.procs,
			dirtied: pass.dirtied, leave: pass.leave, alive: pass.alive,
		}
		part := uint64(allowance) / uint64(len(byFS))
		go func() { r.passes <- w.pass(visits, part) }()
	}
}

// takeTurns puts the first task of each writer first, then the second ones, and so on.
func takeTurns(tasks []task) []task {
	turn := map[domain]int{}
	turns := make([]int, len(tasks))
	order := make([]int, len(tasks))
	for i, t := range tasks {
		turns[i], order[i] = turn[t.to.domain], i
		turn[t.to.domain]++
	}
	slices.SortStableFunc(order, func(a, b int) int { return turns[a] - turns[b] })
	out := make([]task, len(tasks))
	for i, k := range order {
		out[i] = tasks[k]
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
		drops: t.to.drifts(),
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
	delete(r.busy, p.fs.dev)
	r.complain("hangs "+p.fs.dev.String(), "Files of "+p.fs.mountpoint+" are not given to who writes them", nil)
	r.counts.cpu.Add(int64(p.cpu))
	share := time.Duration(r.policy.Load().Writeback.Budget.CPU)
	r.cpuFree = later(r.cpuFree, now.Add(-cpuSaved)).Add(p.cpu * 100 / share)
	r.complain("pass "+p.fs.dev.String(), "Files of "+p.fs.mountpoint+" cannot be given to who writes them", p.err)
	r.domains.moment()
	for i := range p.outcomes {
		r.noteFile(now, p.fs, &p.outcomes[i])
	}
	r.complain("mappings", "Files that are mapped cannot be given to who writes them", r.procs.access())
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func (r *Repairer) noteFile(now time.Time, fs *filesystem, o *outcome) {
	r.counts.early.Add(o.written)
	for left := int(o.written); left > 0; left -= r.early.Burst() { // into debt, if need be
		r.early.ReserveN(now, min(left, r.early.Burst()))
	}
	f := r.ledger.files[o.Inode]
	switch {
	case f == nil:
	case errors.Is(o.err, writeback.ErrNoFile):
		r.ledger.remove(f)
	case o.err != nil:
		f.fail(now, o.err.Error())
		r.counts.failed.Add(1)
		r.failures.Do(func() {
			r.log.WithError(o.err).Warn("Files cannot be given to who writes them; status tells of each, others are not logged for a minute")
		})
	case o.owner != 0:
		r.ledger.touched[f] = true
		f.owner, f.ownerID, f.path = r.domains.of(o.owner, fs), o.owner, o.path
	}
}
