package policy

import (
	"math/rand/v2"
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// granted returns what a share is granted at an address of a physical disk.
func (s *Share) granted(at blkio.Address) blkio.Amount { return s.grantedIn(s.Portions(), at) }

// TestShare verifies the portions of random shares on stacks of devices: at each physical disk, the sum over the devices above it of the
// smaller of the limit of the pod and of the sum of the limits of its containers. A pod with an undecided container is granted the
// limit of the pod, and all if some device has none.
func TestShare(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	dev := func(n int) blkio.Dev { return blkio.Dev{Major: 8, Minor: uint32(n)} }
	for range 3000 {
		var s Share
		below, sums, bounds := map[blkio.Dev][]blkio.Disk{}, map[int]blkio.Amount{}, map[int]blkio.Amount{}
		for range rng.IntN(4) { // containers, each with stacks of its own
			stack := map[blkio.Dev][]blkio.Disk{}
			for n := 3; n < 6; n++ {
				if disks := below[dev(n)]; disks != nil {
					stack[dev(n)] = disks
				} else if rng.IntN(3) > 0 {
					for i := range 3 {
						if rng.IntN(2) == 0 {
							stack[dev(n)] = append(stack[dev(n)], blkio.Disk{Dev: dev(i)})
						}
					}
					below[dev(n)] = stack[dev(n)]
				}
			}
			s.AddStack(stack)
			for range rng.IntN(4) {
				n, amount := rng.IntN(6), blkio.Amount(rng.IntN(100))
				if rng.IntN(9) == 0 {
					amount = blkio.Max
				}
				sums[n] = Plus(sums[n], amount)
				s.Add(blkio.Address{Key: blkio.Wbps, Dev: dev(n)}, amount, &Desired{})
			}
		}
		for range rng.IntN(3) {
			n := rng.IntN(6)
			bounds[n] = blkio.Amount(rng.IntN(100))
			s.Bind(blkio.Address{Key: blkio.Wbps, Dev: dev(n)}, bounds[n])
		}
		s.Undecided = rng.IntN(3) == 0
		for i := range 6 {
			want, isKnown := blkio.Amount(0), !s.Undecided
			for n := range 6 {
				_, isUsed := sums[n]
				bound, isBound := bounds[n]
				isAbove := n == i
				if disks := below[dev(n)]; len(disks) > 0 {
					isAbove = false
					for _, d := range disks {
						isAbove = isAbove || d.Dev == dev(i)
					}
				}
				switch {
				case !isAbove, !isUsed && !isBound:
				case s.Undecided && isBound:
					want, isKnown = Plus(want, bound), true
				case s.Undecided:
					want = blkio.Max
				case isBound:
					want = Plus(want, min(sums[n], bound))
				default:
					want = Plus(want, sums[n])
				}
			}
			if !isKnown {
				want = blkio.Max
			}
			if got := s.granted(blkio.Address{Key: blkio.Wbps, Dev: dev(i)}); got != want {
				t.Fatalf("disk %d of %+v: granted %v, want %v", i, s, got, want)
			}
		}
	}
}

// TestShareKeepsStacks verifies that a share changes no map of a container, because snapshots of containers have it as well.
func TestShareKeepsStacks(t *testing.T) {
	one, two := map[blkio.Dev][]blkio.Disk{sda.Dev: {sdb}}, map[blkio.Dev][]blkio.Disk{sdc.Dev: {sdb}}
	var s Share
	s.AddStack(one)
	before := s
	s.AddStack(two)
	next := s.with(&Desired{Extent: Extent{Lowest: map[blkio.Dev][]blkio.Disk{{Major: 9}: {sdb}}}}, nil, nil)
	if len(one) != 1 || len(two) != 1 || len(before.lowest) != 1 || len(s.lowest) != 2 || len(next.lowest) != 3 {
		t.Errorf("%v %v %v %v %v", one, two, before.lowest, s.lowest, next.lowest)
	}
}
