package repair

import (
	"sync"
	"time"

	"github.com/nri-blkio/nri-blkio/policy"
)

// account is a user of the budgets and the ledger: the UID of a pod or, outside of pods, the cgroup of a unit
// of the node. The accounts share both equally.
type account string

// budget is an amount that flows in at a steady rate. A part of it can be saved. All accounts may spend one
// half of the savings. The other half is a reserve, and each spending account has an equal share of it that no
// other can spend. A spent share fills up again in the time for which the budget saves. So an account that
// spends all it can delays no other one, and an account that spends alone has the whole rate. A budget is safe
// for concurrent use.
type budget struct {
	mu    sync.Mutex // guards all below
	rate  float64    // a second
	saved time.Duration
	level float64 // of both halves
	at    time.Time
	// spent is the part of its share that an account has spent. It is more than 1 if the
	// account is in debt. Accounts with 0 are left out.
	spent map[account]float64
}

// maxSpent is the largest debt of an account, in shares.
const maxSpent = 6

// newBudget returns a budget that has nothing until it is set.
func newBudget(saved time.Duration) *budget {
	return &budget{saved: saved, spent: map[account]float64{}}
}

// set sets the amount that comes in each second. The first call fills the budget.
func (b *budget) set(now time.Time, rate float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.flow(now)
	if b.rate == 0 {
		b.level = 2 * rate * b.saved.Seconds()
	}
	b.rate = rate
	b.level = min(b.level, 2*b.half())
}

func (b *budget) half() float64 { return b.rate * b.saved.Seconds() }

// share returns the share of an account of the reserve. mu is held.
func (b *budget) share(a account) float64 {
	n := len(b.spent)
	if _, there := b.spent[a]; !there {
		n++
	}
	return b.half() / float64(n)
}

// flow adds the amount that came in since the last call. mu is held.
func (b *budget) flow(now time.Time) {
	since := now.Sub(b.at)
	if since <= 0 {
		return
	}
	b.at = now
	b.level = min(b.level+b.rate*since.Seconds(), 2*b.half())
	for a := range b.spent {
		if b.spent[a] -= since.Seconds() / b.saved.Seconds(); b.spent[a] <= 0 {
			delete(b.spent, a)
		}
	}
}

// allowance returns the amount that an account may spend now.
func (b *budget) allowance(now time.Time, a account) float64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.left(now, a)
}

// left is allowance with mu held.
func (b *budget) left(now time.Time, a account) float64 {
	b.flow(now)
	own := (1 - b.spent[a]) * b.share(a)
	return max(0, b.level-b.half(), min(b.level, own))
}

// ready reports whether an account may spend an amount now. For an amount that is more
// than the account can save up by itself, half of that is enough.
func (b *budget) ready(now time.Time, a account, amount float64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	left := b.left(now, a)
	return left > 0 && left >= min(amount, b.share(a)/2)
}

// spend takes an amount, which should be allowed. The part of it that exceeds the
// account's share and the common half is a debt of the account.
func (b *budget) spend(now time.Time, a account, amount float64) {
	if amount <= 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.flow(now)
	share := b.share(a)
	if share == 0 {
		return
	}
	own := min(amount, max(0, (1-b.spent[a])*share))
	borrowed := min(amount-own, max(0, b.level-b.half()))
	debt := amount - own - borrowed
	b.level -= amount
	b.spent[a] = min(b.spent[a]+(own+debt)/share, maxSpent)
}

// budgets has the budgets of the policy: files that repairs begin with, bytes written out early, and seconds of
// a CPU.
type budgets struct{ files, early, cpu *budget }

// Unused amounts are saved up for these times, because a file has to move at once, and then there is no work
// for a long time.
const (
	saved    = time.Second
	cpuSaved = 10 * time.Second
)

func (b *budgets) set(now time.Time, p *policy.Budget) {
	b.files.set(now, float64(p.FilesPerSecond))
	b.early.set(now, float64(p.ExtraBps))
	b.cpu.set(now, float64(p.CPU)/100)
}
