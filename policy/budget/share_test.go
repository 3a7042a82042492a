package budget

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
)

// granted returns what a share is granted at an address of a physical disk.
func (s *Share) granted(at blkio.Address) blkio.Amount {
	p, found := portionAt(s.Portions(), at)
	if !found && s.Undecided {
		return blkio.Max
	}
	return p.Granted
}

// shareModel has six devices, of which the last three may be on some of the first three. It has what a pod is granted on each.
type shareModel struct {
	below        map[int][]int
	sums, bounds map[int]blkio.Amount
	isUndecided  bool
}

func deviceOf(n int) blkio.Dev { return blkio.Dev{Major: 8, Minor: uint32(n)} }

func wbpsOf(n int) blkio.Address { return blkio.Address{Key: blkio.Wbps, Dev: deviceOf(n)} }

// isAbove reports whether a device counts on a disk.
func (m *shareModel) isAbove(device, disk int) bool {
	if len(m.below[device]) == 0 {
		return device == disk
	}
	return slices.Contains(m.below[device], disk)
}

// granted returns the sum over the devices above a disk of the smaller of the limit of the pod and of the sum of the limits of its
// containers. A pod with an undecided container is granted the limit of the pod, and all if some device, or each, has none.
func (m *shareModel) granted(disk int) (out blkio.Amount) {
	isBounded := false
	for n := range 6 {
		sum, isUsed := m.sums[n]
		bound, hasBound := m.bounds[n]
		if !m.isAbove(n, disk) || !isUsed && !hasBound {
			continue
		}
		if !hasBound {
			bound = blkio.Max
		}
		if isBounded = true; m.isUndecided {
			sum = bound
		}
		out = Plus(out, min(sum, bound))
	}
	if m.isUndecided && !isBounded {
		return blkio.Max
	}
	return out
}

// addContainer adds a container with stacks of its own to the model and to a share.
func (m *shareModel) addContainer(s *Share, rng *rand.Rand) {
	stack := map[blkio.Dev][]blkio.Disk{}
	for n := 3; n < 6; n++ {
		if _, known := m.below[n]; !known {
			for disk := range 3 {
				if rng.IntN(3) == 0 {
					m.below[n] = append(m.below[n], disk)
				}
			}
		}
		for _, disk := range m.below[n] {
			stack[deviceOf(n)] = append(stack[deviceOf(n)], blkio.Disk{Dev: deviceOf(disk)})
		}
	}
	s.AddStack(stack)
	for range rng.IntN(4) {
		n, amount := rng.IntN(6), blkio.Amount(rng.IntN(100))
		if rng.IntN(9) == 0 {
			amount = blkio.Max
		}
		m.sums[n] = Plus(m.sums[n], amount)
		s.Add(wbpsOf(n), amount, &policy.Desired{})
	}
}

// TestShare compares what random shares are granted on the disks below stacks of devices with a naive sum.
func TestShare(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		var s Share
		m := shareModel{map[int][]int{}, map[int]blkio.Amount{}, map[int]blkio.Amount{}, rng.IntN(3) == 0}
		for range rng.IntN(4) {
			m.addContainer(&s, rng)
		}
		for range rng.IntN(3) {
			n := rng.IntN(6)
			m.bounds[n] = blkio.Amount(rng.IntN(100))
			s.Bind(wbpsOf(n), m.bounds[n])
		}
		s.Undecided = m.isUndecided
		for disk := range 6 {
			if got, want := s.granted(wbpsOf(disk)), m.granted(disk); got != want {
				t.Fatalf("disk %d of %+v: granted %v, want %v", disk, m, got, want)
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
	next := s.with(&policy.Desired{Extent: policy.Extent{Lowest: map[blkio.Dev][]blkio.Disk{{Major: 9}: {sdb}}}}, nil, nil)
	if len(one) != 1 || len(two) != 1 || len(before.lowest) != 1 || len(s.lowest) != 2 || len(next.lowest) != 3 {
		t.Errorf("%v %v %v %v %v", one, two, before.lowest, s.lowest, next.lowest)
	}
}
