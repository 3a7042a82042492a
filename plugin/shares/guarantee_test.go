package shares

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// guaranteed gives pods a guarantee beside a reserve of 10 %.
func guaranteed(share blkio.Percent, pods []Cgroup) []Cgroup {
	for i := range pods {
		pods[i].Budget.Guarantee, pods[i].Budget.Reserve = share, 1000
	}
	return pods
}

// ofClass makes pods those of a class with a guarantee.
func ofClass(class string, share blkio.Percent, pods []Cgroup) []Cgroup {
	for i := range pods {
		pods[i].Path, pods[i].Budget = "of"+pods[i].Path, Budget{Class: class, Guarantee: share, Reserve: 1000}
		pods[i].Children[0].Path = "of" + pods[i].Children[0].Path
	}
	return pods
}

// TestGuarantees covers the shares of what the reserve leaves, in the kernel's arithmetic with the integers that are written.
func TestGuarantees(t *testing.T) {
	join := func(parts ...[]Cgroup) Cgroup {
		var all []Cgroup
		for _, part := range parts {
			all = append(all, part...)
		}
		return group("pods", all...)
	}
	for _, tt := range []struct {
		name string
		root Cgroup
		want map[string]float64
	}{
		{"one container beside ten", join(guaranteed(3600, tenant("a", 0, 1, 100)), tenant("b", 10000, 10, 100)), map[string]float64{"a": 0.4, "b": 0.6}},
		{"a class beside a namespace of its name", join(ofClass("a", 3600, tenant("a", 0, 1, 100)), tenant("a", 10000, 10, 100)), map[string]float64{"class/a": 0.4, "a": 0.6}},
		{"one container beside a thousand", join(guaranteed(3600, tenant("a", 0, 1, 100)), tenant("b", 0, 1000, 100)), map[string]float64{"a": 0.4, "b": 0.6}},
		{"a small weight beside a large one", join(guaranteed(4500, tenant("a", 0, 3, 1)), tenant("b", 10000, 1, 10000)), map[string]float64{"a": 0.5, "b": 0.5}},
		{"more than is guaranteed", join(guaranteed(900, tenant("a", 0, 3, 100)), tenant("b", 10000, 1, 100)), map[string]float64{"a": 0.75, "b": 0.25}},
		{"alone", join(guaranteed(900, tenant("a", 0, 3, 100))), map[string]float64{"a": 1}},
		{
			"two that need it, and one that does not", join(guaranteed(900, tenant("a", 0, 1, 1)), guaranteed(3600, tenant("b", 0, 1, 1)), guaranteed(900, tenant("c", 0, 4, 100)), tenant("d", 10000, 1, 100)),
			map[string]float64{"a": 0.1, "b": 0.4, "c": 0.4, "d": 0.1},
		},
		{ // c alone has more than a fifth, but less once a and b have what is theirs
			"one that needs it because of another", join(guaranteed(5400, tenant("a", 0, 1, 1)), guaranteed(1800, tenant("c", 0, 1, 30)), tenant("d", 10000, 1, 100)),
			map[string]float64{"a": 0.6, "c": 0.2, "d": 0.2},
		},
		{"the guarantee holds above the largest sum", join(guaranteed(3600, tenant("a", 50, 1, 100)), tenant("b", 10000, 10, 100)), map[string]float64{"a": 0.4, "b": 0.6}},
		{"the largest sum holds above the guarantee", join(guaranteed(900, tenant("a", 100, 9, 100)), tenant("b", 10000, 1, 100)), map[string]float64{"a": 0.5, "b": 0.5}},
		{
			"in another QoS class", group("pods", append(guaranteed(3600, tenant("a", 0, 2, 100)), group("slice", tenant("b", 10000, 20, 100)...))...),
			map[string]float64{"a": 0.4, "b": 0.6},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, _ := kernelShares(tt.root)
			delete(got, "")
			if diff := cmp.Diff(tt.want, got, cmpopts.EquateApprox(0.011, 0)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestGuaranteeOfIdle verifies that an idle pod has the weight with which its namespace has the guarantee from its first operation on,
// and that an idle namespace takes nothing from the others.
func TestGuaranteeOfIdle(t *testing.T) {
	root := group("pods", append(guaranteed(3600, []Cgroup{bound("a", 0, group("p", container("p/c", 100, false)))}), tenant("b", 10000, 10, 90)...)...)
	all, used := distribute(blkio.MaxWeight, root)
	if weights := weightsOf(all); weights["p"] != 600 || weights["b0"] != 90 {
		t.Errorf("weights %v, want 600 for p beside ten of 90", weights)
	}
	if all[0].Fraction != 0.4 || all[2].Fraction != 0.1 || len(used) != 1 {
		t.Errorf("shares %+v, used %+v", all, used)
	}
}

// TestGranted verifies which part of the disk is reported, with what is outside pods.
func TestGranted(t *testing.T) {
	_, used := distribute(blkio.MaxWeight, group("pods", append(guaranteed(3600, tenant("a", 0, 1, 100)), tenant("b", 0, 10, 100)...)...))
	if got := used[0]; math.Abs(got.Granted-0.36) > 1e-3 || got.Sum != 100 || math.Abs(got.Factor()-20./3) > 1e-9 {
		t.Errorf("%+v, factor %f", got, got.Factor())
	}
	_, used = distribute(blkio.MaxWeight, group("pods", guaranteed(3600, tenant("a", 0, 1, 100))...))
	if got := used[0]; math.Abs(got.Granted-0.9) > 1e-9 || got.Factor() != 1 {
		t.Errorf("alone: %+v, factor %f", got, got.Factor())
	}
}

// TestGrantedByWholeNumbers verifies that a guarantee that bfq's range of weights does not keep is known to be not kept: none is below 1,
// beside a hundred that should have less. io.cost's range keeps it.
func TestGrantedByWholeNumbers(t *testing.T) {
	pods := append(guaranteed(8000, tenant("a", 0, 1, 100)), append(tenant("b", 0, 100, 1), tenant("c", 0, 1, 10000)...)...)
	for most, want := range map[float64]float64{ofBFQ(nil, nil).most: 0.735, blkio.MaxWeight: 0.79} {
		_, used := distribute(most, group("pods", pods...))
		if u := used[0]; math.Abs(u.Granted-want) > 0.005 || u.IsKept() != (want == 0.79) {
			t.Errorf("weights up to %.0f: %+v, want %f", most, u, want)
		}
	}
}

// TestGuaranteeProperties verifies for random pods that each namespace and class has its guarantee, that what the kernel gives
// them is what is reported, and that all others have a weight. Only groups that would have less than their guarantee change their proportion to
// others. A class and a namespace of one name are two groups.
func TestGuaranteeProperties(t *testing.T) {
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 0))
	for range 500 {
		root, _ := randomTree(rnd)
		root.Children = busy(root.Children)
		reserve := 1 + rnd.Uint32N(1800)
		groups := []Budget{{}, {Namespace: "a"}, {Namespace: "b"}, {Class: "a"}}
		for i := range groups[1:] {
			groups[i+1].Guarantee, groups[i+1].Reserve = blkio.Percent(1+rnd.Uint32N(2400)), blkio.Percent(reserve)
		}
		sums := map[string]float64{}
		for pod := range podsOf(&root) {
			name := ""
			if pod.Budget = groups[rnd.IntN(len(groups))]; pod.Budget != (Budget{}) {
				name = groupOf(&pod.Budget)
			}
			for _, c := range pod.Children {
				if c.Active {
					sums[name] += float64(c.Weight)
				}
			}
		}
		_, used := distribute(blkio.MaxWeight, root)
		byNamespace, _ := kernelShares(root)
		factors := map[string]float64{"": 1}
		for _, u := range used {
			name := groupOf(&u.Budget)
			factors[name] = u.Factor()
			part := u.part()
			if got := byNamespace[name]; u.Sum > 0 && got < 0.97*part-0.01 {
				t.Errorf("seed %d: %s has %f, and %f is guaranteed: %+v", seed, name, got, part, u)
			}
			if u.Factor() < 1-1e-9 || math.Abs(u.Granted-byNamespace[name]*u.beyondReserve()) > 1e-9 {
				t.Errorf("seed %d: %+v, and the kernel gives it %f of what pods have", seed, u, byNamespace[name])
			}
		}
		total := 0.0
		for name, sum := range sums {
			total += sum * factors[name]
		}
		for name, sum := range sums {
			if want := sum * factors[name] / max(total, 1); math.Abs(byNamespace[name]-want) > 0.03*want+0.01 {
				t.Errorf("seed %d: namespace %q has %f, want %f", seed, name, byNamespace[name], want)
			}
		}
		if t.Failed() {
			return
		}
	}
}

// TestGrantedAtMostAll verifies that no more than a disk is granted if cgroups above a pod are not known to use the disk yet.
func TestGrantedAtMostAll(t *testing.T) {
	gold := Cgroup{Path: "gold", Weight: 10000, Active: true, Budget: Budget{Namespace: "gold", Guarantee: 3600, Reserve: 1000}}
	idle := func(path string, children ...Cgroup) Cgroup { return Cgroup{Path: path, Children: children} }
	for name, roots := range map[string][]Cgroup{
		"a QoS class": {group("pods", Cgroup{Path: "other", Weight: 100, Active: true}, idle("slice", gold))},
		"all roots":   {idle("pods", gold), idle("more")},
	} {
		if _, used := distribute(blkio.MaxWeight, roots...); len(used) != 1 || used[0].Granted > 0.9 || !used[0].IsKept() {
			t.Errorf("%s: %+v", name, used)
		}
	}
}

// TestSplit verifies that a guarantee is known to be of no effect while pods below two roots are active: these divide the disk evenly.
func TestSplit(t *testing.T) {
	for _, isActive := range []bool{true, false} {
		first, second := group("pods", guaranteed(3600, tenant("a", 0, 1, 100))...), group("more", container("c", 100, isActive))
		if _, used := distribute(blkio.MaxWeight, first, second); len(used) != 1 || used[0].IsSplit != isActive {
			t.Errorf("the other root is active: %t: %+v", isActive, used)
		}
	}
}

// TestKeeperUnkept verifies that the use of a guarantee is reported on disks without io.cost, also on a kernel without weights, and
// that cgroups outside pods which squeeze the pods are reported.
func TestKeeperUnkept(t *testing.T) {
	k := threePods(t)
	gold := Budget{Namespace: "gold", Guarantee: 3000, Reserve: 1000}
	k.budgets = map[string]Budget{podA: gold, podC: {Namespace: "t", Weight: 140}}
	k.pass()
	k.use(vda, a, c)
	r, err := k.tryPass()
	if want := []BudgetUse{{Budget: gold, Pods: 1}}; err != nil || !cmp.Equal(want, r.Used[vda]) {
		t.Errorf("without io.cost: %+v, %v", r.Used, err)
	}
	for share, want := range map[blkio.Percent]bool{1000: false, 50: true} {
		k.reserve = share
		k.use(vda, a, c)
		if r, err = k.tryPass(vda); err != nil || r.Squeezed[vda] != want {
			t.Errorf("a reserve of %s: squeezed %v, %v", share, r.Squeezed, err)
		}
	}
	if u := r.Used[vda]; len(u) != 2 || u[0].Granted == 0 {
		t.Errorf("with io.cost: %s", fmt.Sprint(u))
	}
}
