package shares

import (
	"cmp"
	"maps"
	"slices"

	"github.com/nri-blkio/nri-blkio/policy"
)

// Budget bounds the sum of the weights of a group of pods. The zero value bounds nothing.
type Budget = policy.WeightBudget

// BudgetUse is the use of a budget on one disk.
type BudgetUse struct {
	Budget
	Sum  float64 // of the weights of the active pods, as if there were no budget
	Pods int     // that are active
	// Least is the sum of weights at which the pods have what is guaranteed, beside the other active pods. Granted is the part of the
	// disk that they have at least by the whole numbers of the kernel. Both are 0 without a guarantee.
	Least, Granted float64
	// IsSplit is true if pods below several roots are active. All roots have the same weight, so no guarantee holds across them.
	IsSplit bool
}

// beyondReserve returns the part of a disk that pods have.
func (u *BudgetUse) beyondReserve() float64 { return 1 - float64(u.Reserve)/(100*100) }

// part returns the part of what pods have of a disk that is guaranteed.
func (u *BudgetUse) part() float64 { return float64(u.Guarantee) / float64(100*100-u.Reserve) }

func (u *BudgetUse) compare(other *BudgetUse) int {
	return cmp.Or(cmp.Compare(u.Class, other.Class), cmp.Compare(u.Namespace, other.Namespace), cmp.Compare(u.Weight, other.Weight))
}

// IsKept reports whether the pods have what is guaranteed, but for 2 % of it: weights are whole numbers.
func (u *BudgetUse) IsKept() bool { return u.Granted >= 0.98*float64(u.Guarantee)/(100*100) }

// Factor returns the factor by which the budget scales the weights of the active pods: 1 while their sum is within its bounds.
func (u *BudgetUse) Factor() float64 { return u.beside(0) }

// beside returns the factor for a pod with a weight that is not part of the sum yet.
func (u *BudgetUse) beside(weight float64) float64 {
	return max(u.within(u.Sum+weight), u.Least) / (u.Sum + weight)
}

// within returns a sum of weights, or the largest one.
func (u *BudgetUse) within(sum float64) float64 {
	if u.Weight == 0 {
		return sum
	}
	return min(sum, float64(u.Weight))
}

// uses has the use of each budget on one disk.
type uses map[Budget]*BudgetUse

// usesOf returns the use of budgets by the pods below some cgroups.
func usesOf(roots []Cgroup) uses {
	out := uses{}
	for i := range roots {
		out.add(&roots[i])
	}
	all, active := 0.0, 0
	for i := range roots {
		if roots[i].Active || len(roots) == 1 {
			all += out.sum(&roots[i])
			active++
		}
	}
	out.guarantee(all)
	for _, of := range out {
		of.IsSplit = of.Guarantee != 0 && active > 1
	}
	return out
}

// guarantee computes the sums that guarantees need, from the sum of all weights.
func (u uses) guarantee(all float64) {
	var guaranteed []*BudgetUse
	for _, of := range u {
		if of.Guarantee != 0 {
			guaranteed = append(guaranteed, of)
		}
	}
	perPart := func(of *BudgetUse) float64 { return of.within(of.Sum) / of.part() }
	slices.SortFunc(guaranteed, func(a, b *BudgetUse) int {
		return cmp.Or(cmp.Compare(perPart(a), perPart(b)), a.compare(b))
	})
	// The sum of one that has less than its part is raised. That makes the parts of the others smaller, so those that lack most are first.
	free, left := all, 1.0
	for _, of := range guaranteed {
		if of.Pods > 0 && perPart(of) < free/left {
			free, left = free-of.within(of.Sum), left-of.part()
		}
	}
	all = free / left
	for _, of := range guaranteed {
		of.Least = of.part() * all
		if now := of.within(of.Sum); now >= of.Least || of.Pods == 0 { // beside the others alone
			of.Least = of.part() * (all - now) / (1 - of.part())
		}
	}
}

func (u uses) add(c *Cgroup) {
	if c.Budget == (Budget{}) {
		for i := range c.Children {
			u.add(&c.Children[i])
		}
		return
	}
	if of := u.of(c.Budget); c.Active {
		of.Sum += u.sum(c)
		of.Pods++
	}
}

func (u uses) of(b Budget) *BudgetUse {
	if u[b] == nil {
		u[b] = &BudgetUse{Budget: b}
	}
	return u[b]
}

// factor returns the factor by which the budget of a pod scales a weight of the pod; 1 for other cgroups. An idle pod has the factor
// that would hold if it became active.
func (u uses) factor(c *Cgroup, weight float64) float64 {
	of := u[c.Budget]
	switch {
	case of == nil:
		return 1
	case c.Active:
		return of.Factor()
	}
	return of.beside(weight)
}

// sorted returns the uses by active pods, by class and namespace.
func (u uses) sorted() (out []BudgetUse) {
	for _, of := range slices.SortedFunc(maps.Values(u), (*BudgetUse).compare) {
		if of.Pods > 0 {
			out = append(out, *of)
		}
	}
	return out
}
