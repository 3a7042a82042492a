package weights

import (
	"cmp"
	"iter"
	"maps"
	"slices"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/health"
)

// maxShares is the largest number of rows that a report has of containers and pods with a weight. There is one
// for each container and disk, so tenants decide on their number.
const maxShares = 4000

// effects has the effects of weights on disks.
type effects map[blkio.Dev]effect

// rows returns all that the report could have of a demand, in no order.
func (e effects) rows(d *Demand) iter.Seq[health.Share] {
	return func(yield func(health.Share) bool) {
		for i := range d.Weighted {
			w := &d.Weighted[i]
			if w.NoDisk != "" && !yield(w.idle()) {
				return
			}
			for _, disk := range w.Disks {
				s := health.Share{Namespace: w.Namespace, Pod: w.Pod, Container: w.Container, Disk: disk.Name, Weight: w.Weights.On(disk.Dev)}
				on := e[disk.Dev]
				due, reason := on.of(w.Cgroup)
				if s.Reason = reason; due != nil {
					s.Share = due.Fraction
					if due.Factor != 1 {
						s.Scaled = float64(s.Weight) * due.Factor
					}
				}
				s.Chosen = s.Reason != "" && on.chosen
				if !yield(s) {
					return
				}
			}
		}
	}
}

// idle returns the row of a weight that applies to no disk.
func (w *Weighted) idle() health.Share {
	return health.Share{Namespace: w.Namespace, Pod: w.Pod, Container: w.Container, Weight: w.Weights.Default, Reason: w.NoDisk}
}

// shares returns at most maxShares rows, and the number of those left out. Weights without an effect come
// first. If there are too many, each namespace gets the same number of rows, as far as it has them. So
// containers of one tenant do not hide those of another one.
func (e effects) shares(d *Demand) (out []health.Share, leftOut int) {
	counts := [2]map[string]int{{}, {}} // by namespace: with a problem, and without
	total := 0
	for s := range e.rows(d) {
		counts[kind(&s)][s.Namespace]++
		total++
	}
	if total > maxShares { // each report leaves out the same ones
		d = &Demand{Weighted: slices.SortedFunc(slices.Values(d.Weighted), Weighted.compare)}
	}
	room := maxShares
	for k := range counts {
		room -= divide(counts[k], room)
	}
	for s := range e.rows(d) {
		if left := counts[kind(&s)]; left[s.Namespace] > 0 {
			left[s.Namespace]--
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b health.Share) int {
		return cmp.Or(
			cmp.Compare(kind(&a), kind(&b)),
			cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.Container, b.Container), cmp.Compare(a.Disk, b.Disk),
		)
	})
	return out, total - len(out)
}

func (w Weighted) compare(other Weighted) int {
	return cmp.Or(
		cmp.Compare(w.Namespace, other.Namespace), cmp.Compare(w.Pod, other.Pod), cmp.Compare(w.Container, other.Container), cmp.Compare(w.Cgroup, other.Cgroup),
	)
}

// kind is 0 for a weight without an effect that the operator has not chosen, and otherwise 1.
func kind(s *health.Share) int {
	if s.Reason != "" && !s.Chosen {
		return 0
	}
	return 1
}

// divide lowers the counts, the largest ones first, until their sum is at most room. It returns
// the sum.
func divide(counts map[string]int, room int) (sum int) {
	names := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[a], counts[b]), cmp.Compare(a, b))
	})
	for i, name := range names { // the smallest first, because the others get the rows that it does not need
		counts[name] = min(counts[name], (room-sum)/(len(names)-i))
		sum += counts[name]
	}
	return sum
}
