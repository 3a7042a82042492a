package shares

import (
	"cmp"
	"maps"
	"slices"
)

// Budget bounds the sum of the weights of pods: of all pods of a namespace. The zero value bounds nothing.
type Budget struct {
	Namespace string
	Weight    uint32
}

// BudgetUse is the use of a budget on one disk.
type BudgetUse struct {
	Budget
	Sum  float64 // of the weights of the active pods, as if there were no budget
	Pods int     // that are active
}

// Factor returns the factor by which the budget scales the weights of the active pods: 1 while their sum is within it.
func (u *BudgetUse) Factor() float64 { return u.beside(0) }

// beside returns the factor for a pod with a weight that is not part of the sum yet.
func (u *BudgetUse) beside(weight float64) float64 {
	most := float64(u.Weight)
	return most / max(most, u.Sum+weight)
}

// uses has the use of each budget on one disk.
type uses map[Budget]*BudgetUse

// usesOf returns the use of budgets by the pods below some cgroups.
func usesOf(roots []Cgroup) uses {
	out := uses{}
	for i := range roots {
		out.add(&roots[i])
	}
	return out
}

func (u uses) add(c *Cgroup) {
	if c.Budget == (Budget{}) {
		for i := range c.Children {
			u.add(&c.Children[i])
		}
		return
	}
	if u[c.Budget] == nil {
		u[c.Budget] = &BudgetUse{Budget: c.Budget}
	}
	if c.Active {
		u[c.Budget].Sum += u.sum(c)
		u[c.Budget].Pods++
	}
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

// sorted returns the uses by active pods, by namespace.
func (u uses) sorted() (out []BudgetUse) {
	for _, of := range slices.SortedFunc(maps.Values(u), func(a, b *BudgetUse) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Weight, b.Weight))
	}) {
		if of.Pods > 0 {
			out = append(out, *of)
		}
	}
	return out
}
