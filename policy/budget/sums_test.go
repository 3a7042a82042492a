package budget

import (
	"math/rand/v2"
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
)

// TestSum verifies that a sum returns to what it was when a pod is added and removed, also after it was too large or unlimited.
func TestSum(t *testing.T) {
	var s sum
	add := func(amount blkio.Amount) { s.add(&Portion{Granted: amount}) }
	remove := func(amount blkio.Amount) { s.remove(&Portion{Granted: amount}) }
	add(5)
	for _, more := range [][]blkio.Amount{{7}, {blkio.Max}, {blkio.Max - 1, blkio.Max - 2, 9}, {1 << 63, 1 << 63, blkio.Max}} {
		want := blkio.Amount(5)
		for _, amount := range more {
			add(amount)
			want = Plus(want, amount)
		}
		if got := s.granted(); got.Amount != want || got.Pods != 1+len(more) {
			t.Errorf("with %v: %+v, want %v", more, got, want)
		}
		for _, amount := range more {
			remove(amount)
		}
		if got := s.granted(); got != (Granted{Amount: 5, Pods: 1}) {
			t.Errorf("without %v: %+v", more, got)
		}
	}
}

// TestSums compares the sums of pods that change, come and go at random with those that are added up anew. Only pods that have changed
// are added up again.
func TestSums(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 0))
		b := &policy.NamespaceBudget{Limits: blkio.Limits{blkio.Wbps: 100}}
		shares, added := map[int]Share{}, 0
		shareOf := func(p int, _ *policy.NamespaceBudget) (Share, bool) {
			added++
			return shares[p], shares[p].Undecided
		}
		sums, _ := SumsFor[int](b, nil)
		for range 100 {
			pod := 1 + rng.IntN(5)
			if _, there := shares[pod]; there && rng.IntN(3) == 0 {
				delete(shares, pod)
				sums.Forget(pod)
			} else {
				share := Share{Undecided: rng.IntN(4) == 0}
				for range rng.IntN(3) {
					share.Add(wbpsOf(rng.IntN(2)), []blkio.Amount{3, 50, blkio.Max}[rng.IntN(3)], &policy.Desired{})
				}
				shares[pod] = share
				sums.Changed(pod)
			}
			if rng.IntN(3) > 0 {
				continue
			}
			changed := len(sums.stale)
			added = 0
			if sums.Update(0, shareOf); added != changed || len(sums.shares) != len(shares) {
				t.Fatalf("seed %d: %d pods added up, %d have changed; %d kept of %d", seed, added, changed, len(sums.shares), len(shares))
			}
			fresh, isNew := SumsFor(&policy.NamespaceBudget{Limits: blkio.Limits{blkio.Riops: 1}}, sums)
			if !isNew {
				t.Fatal("the sums of another key are used")
			}
			for p := range shares {
				fresh.Changed(p)
			}
			fresh.Update(0, shareOf)
			for n := range 2 {
				for except := range 6 {
					if got, want := sums.Without(except, wbpsOf(n)), fresh.Without(except, wbpsOf(n)); got != want {
						t.Fatalf("seed %d: without %d: %+v, want %+v", seed, except, got, want)
					}
				}
			}
			if sums.Undecided() != fresh.Undecided() {
				t.Fatalf("seed %d: %d undecided, want %d", seed, sums.Undecided(), fresh.Undecided())
			}
		}
	}
}
