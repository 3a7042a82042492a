package repair

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// testBudget has 100 a second.
func testBudget() (*budget, time.Time) {
	now := time.Unix(1000, 0)
	b := newBudget(time.Second)
	b.set(now, 100)
	return b, now
}

func near(a, b float64) bool { return math.Abs(a-b) < 1e-6*max(1, math.Abs(a), math.Abs(b)) }

// greedy spends all that an account may.
func greedy(b *budget, now time.Time, a account) float64 {
	n := b.allowance(now, a)
	b.spend(now, a, n)
	return n
}

// TestBudgetAlone verifies that a single account can spend the whole rate, and the savings of one account.
func TestBudgetAlone(t *testing.T) {
	b, now := testBudget()
	if got := greedy(b, now, "evil"); !near(got, 100) {
		t.Errorf("at once: %v", got)
	}
	sum := 0.0
	for range 1000 {
		now = now.Add(10 * time.Millisecond)
		sum += greedy(b, now, "evil")
	}
	if !near(sum, 1000) {
		t.Errorf("in ten seconds: %v", sum)
	}
}

// TestBudgetReserve verifies that an account that has spent all it can, or more, delays no other.
func TestBudgetReserve(t *testing.T) {
	b, now := testBudget()
	for range 500 {
		greedy(b, now, "evil")
		now = now.Add(time.Millisecond)
	}
	if got := b.allowance(now, "victim"); got < 49 {
		t.Errorf("beside one that spends all: %v", got)
	}
	b.spend(now, "evil", 40) // as only CPU time is: that is known afterwards
	if got := b.allowance(now, "victim"); got < 49 {
		t.Errorf("beside one in debt: %v", got)
	}
	if got := b.allowance(now.Add(time.Second), "evil"); got > 61 {
		t.Errorf("an account in debt may spend %v after a second, want at most 61", got)
	}
}

// TestBudgetShares verifies that the accounts that spend get equal parts of the rate.
func TestBudgetShares(t *testing.T) {
	b, now := testBudget()
	accounts := []account{"a", "b", "c", "d"}
	got := map[account]float64{}
	for step := range 2000 {
		now = now.Add(10 * time.Millisecond)
		for _, a := range accounts {
			n := greedy(b, now, a)
			if step >= 1000 {
				got[a] += n
			}
		}
	}
	for _, a := range accounts {
		if got[a] < 240 {
			t.Errorf("%s got %v of 1000 in ten seconds", a, got[a])
		}
	}
}

// TestBudgetBounds verifies that accounts that spend no more than their allowances together spend at most the
// rate and the savings. Accounts that spend nothing are not kept.
func TestBudgetBounds(t *testing.T) {
	b, now := testBudget()
	random := rand.New(rand.NewPCG(1, 2))
	began, sum := now, 0.0
	for range 20000 {
		now = now.Add(time.Duration(random.Int64N(int64(20 * time.Millisecond))))
		a := account(fmt.Sprint(random.IntN(50)))
		n := b.allowance(now, a) * random.Float64()
		b.spend(now, a, n)
		if sum += n; sum > 100*(2+now.Sub(began).Seconds())+1e-6 {
			t.Fatalf("%v after %v", sum, now.Sub(began))
		}
		if b.level < -1e-6 {
			t.Fatalf("level %v", b.level)
		}
	}
	b.allowance(now.Add(maxSpent*time.Second), "x")
	if len(b.spent) > 0 {
		t.Errorf("remembered: %v", b.spent)
	}
}

// TestBudgetReady verifies that an account with a share smaller than an amount can spend that amount after some
// time.
func TestBudgetReady(t *testing.T) {
	b, now := testBudget()
	for i := range 50 {
		b.spend(now, account(fmt.Sprint(i)), 1)
	}
	if !b.ready(now.Add(500*time.Millisecond), "new", 64) {
		t.Error("an account with a small share is never ready")
	}
	empty := newBudget(time.Second)
	empty.set(now, 0)
	if empty.ready(now, "a", 1) || empty.allowance(now, "a") != 0 {
		t.Error("an empty budget allows an account to spend")
	}
}
