package shares

import (
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
)

// bound puts a pod under the budget of a namespace.
func bound(namespace string, weight uint32, pod Cgroup) Cgroup {
	pod.Budget = Budget{Namespace: namespace, Weight: weight}
	return pod
}

// tenant returns active pods with one container each, of a namespace with a budget.
func tenant(namespace string, budget uint32, pods int, weight uint32) (out []Cgroup) {
	for i := range pods {
		path := fmt.Sprint(namespace, i)
		out = append(out, bound(namespace, budget, group(path, container(path+"/c", weight, true))))
	}
	return out
}

// groupOf names the pods of a budget.
func groupOf(b *Budget) string {
	if b.Class != "" {
		return "class/" + b.Class
	}
	return b.Namespace
}

// kernelShares returns the part of the disk that each namespace gets by the weights that are written, "" for containers without a
// budget, and the part of each container.
func kernelShares(root Cgroup) (byNamespace, byContainer map[string]float64) {
	namespaces := map[string]string{}
	var note func(c Cgroup, namespace string)
	note = func(c Cgroup, namespace string) {
		if c.Budget != (Budget{}) {
			namespace = groupOf(&c.Budget)
		}
		namespaces[c.Path] = namespace
		for _, child := range c.Children {
			note(child, namespace)
		}
	}
	note(root, "")
	byNamespace, byContainer = map[string]float64{}, map[string]float64{}
	eachActive(root, 1, weightsOf(sharesOf(root)), func(c Cgroup, fraction float64) {
		byNamespace[namespaces[c.Path]] += fraction
		byContainer[c.Path] = fraction
	})
	return byNamespace, byContainer
}

// TestBudgets covers the shares of whole namespaces, in the kernel's arithmetic with the integers that are written.
func TestBudgets(t *testing.T) {
	slices := func(parts ...[]Cgroup) (root Cgroup) { // the first one is a QoS class, the others are beside it
		all := []Cgroup{group("slice", parts[0]...)}
		for _, part := range parts[1:] {
			all = append(all, part...)
		}
		return group("pods", all...)
	}
	for _, tt := range []struct {
		name string
		root Cgroup
		want map[string]float64
	}{
		{"100 pods beside one", group("pods", append(tenant("a", 100, 100, 100), tenant("b", 100, 1, 100)...)...), map[string]float64{"a": 0.5, "b": 0.5}},
		{"in two QoS classes", slices(tenant("a", 100, 100, 100), tenant("b", 100, 1, 100)), map[string]float64{"a": 0.5, "b": 0.5}},
		{"12 pods beside one", group("pods", append(tenant("a", 100, 12, 100), tenant("b", 100, 1, 100)...)...), map[string]float64{"a": 0.5, "b": 0.5}},
		{"1000 pods beside one", group("pods", append(tenant("a", 100, 1000, 100), tenant("b", 100, 1, 100)...)...), map[string]float64{"a": 0.5, "b": 0.5}},
		{"budgets of 300 and 100", group("pods", append(tenant("a", 300, 30, 100), tenant("b", 100, 7, 900)...)...), map[string]float64{"a": 0.75, "b": 0.25}},
		{"within the budgets", group("pods", append(tenant("a", 300, 3, 100), tenant("b", 10000, 1, 900)...)...), map[string]float64{"a": 0.25, "b": 0.75}},
		{
			"a namespace in both classes, beside a pod without a budget",
			slices(tenant("a", 200, 10, 100), append(tenant("a", 200, 10, 100), group("x", container("x/c", 200, true)))),
			map[string]float64{"a": 0.5, "": 0.5},
		},
		{
			"a pod with a weight as a whole",
			group("pods", bound("a", 100, Cgroup{Path: "p", Weight: 900, Active: true, Children: []Cgroup{container("p/c", 1, true)}}), group("x", container("x/c", 100, true))),
			map[string]float64{"a": 0.5, "": 0.5},
		},
		// What remains: the largest weight of siblings can be at most 10000 times the smallest.
		{"1000 pods beside the largest weight", group("pods", append(tenant("a", 100, 1000, 100), group("x", container("x/c", 10000, true)))...), map[string]float64{"a": 1000. / 11000, "": 10000. / 11000}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, _ := kernelShares(tt.root)
			if diff := cmp.Diff(tt.want, got, cmpopts.EquateApprox(0.011, 0)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestBudgetUse verifies that idle pods use nothing of a budget, what a pod would get that becomes active, and that a Factor holds
// for the containers as well.
func TestBudgetUse(t *testing.T) {
	root := group("pods",
		bound("a", 100, group("p", container("p/c", 300, true))), bound("a", 100, group("q", container("q/c", 100, false))),
		bound("b", 50, group("r", container("r/c", 50, true))), bound("c", 70, group("s", container("s/c", 100, false))), group("x", container("x/c", 60, true)))
	all, used := distribute(blkio.MaxWeight, root)
	want := []BudgetUse{{Budget: Budget{Namespace: "a", Weight: 100}, Sum: 300, Pods: 1}, {Budget: Budget{Namespace: "b", Weight: 50}, Sum: 50, Pods: 1}}
	if diff := cmp.Diff(want, used); diff != "" {
		t.Errorf("uses: -want +got:\n%s", diff)
	}
	factors := map[string]float64{}
	for _, s := range all {
		factors[s.Path] = math.Round(1000*s.Factor) / 1000
	}
	wantFactors := map[string]float64{"p": 0.333, "p/c": 0.333, "q": 0.25, "q/c": 0.25, "r": 1, "r/c": 1, "s": 0.7, "s/c": 0.7, "x": 1, "x/c": 1}
	if diff := cmp.Diff(wantFactors, factors); diff != "" {
		t.Errorf("factors: -want +got:\n%s", diff)
	}
	wantWeights := map[string]uint32{"p": 100, "p/c": 300, "q": 25, "q/c": 100, "r": 50, "r/c": 50, "s": 70, "s/c": 100, "x": 60, "x/c": 60}
	if diff := cmp.Diff(wantWeights, weightsOf(all)); diff != "" {
		t.Errorf("weights: -want +got:\n%s", diff)
	}
}

// TestBudgetsOfRoots verifies that a budget holds for the pods below all cgroups above pods.
func TestBudgetsOfRoots(t *testing.T) {
	one, other := group("pods", tenant("a", 100, 1, 100)...), group("more", tenant("a", 100, 3, 100)...)
	_, used := distribute(blkio.MaxWeight, one, other)
	if want := []BudgetUse{{Budget: Budget{Namespace: "a", Weight: 100}, Sum: 400, Pods: 4}}; !cmp.Equal(want, used) {
		t.Errorf("%+v, want %+v", used, want)
	}
}

// busy returns the cgroups without those that are idle, which have containers below: an idle pod with a large weight leaves less room
// for the precision of the others.
func busy(of []Cgroup) (out []Cgroup) {
	for _, c := range of {
		if len(c.Children) > 0 && len(c.Children[0].Children) > 0 {
			c.Children = busy(c.Children)
		}
		if c.Active {
			out = append(out, c)
		}
	}
	return out
}

// podsOf returns the pods of a random tree, also those below QoS classes.
func podsOf(root *Cgroup) iter.Seq[*Cgroup] {
	return func(yield func(*Cgroup) bool) {
		for i := range root.Children {
			pods := root.Children[i : i+1]
			if isClass := len(pods[0].Children[0].Children) > 0; isClass {
				pods = pods[0].Children
			}
			for k := range pods {
				if !yield(&pods[k]) {
					return
				}
			}
		}
	}
}

// TestBudgetProperties verifies for random pods that no namespace has more than its budget, that the weights within a budget keep
// their proportions, and that pods without a budget keep theirs.
func TestBudgetProperties(t *testing.T) {
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 0))
	for range 500 {
		root, _ := randomTree(rnd)
		root.Children = busy(root.Children)
		budgets := map[string]uint32{"a": 1 + rnd.Uint32N(200), "b": 1 + rnd.Uint32N(blkio.MaxWeight)}
		sums, pods := map[string]float64{}, 0.0 // of active containers
		for pod := range podsOf(&root) {
			name := []string{"", "a", "b"}[rnd.IntN(3)]
			if name != "" {
				pod.Budget = Budget{Namespace: name, Weight: budgets[name]}
			}
			pods++
			for _, c := range pod.Children {
				if c.Active {
					sums[name] += float64(c.Weight)
				}
			}
		}
		total := 0.0
		factor := map[string]float64{"": 1}
		for name, sum := range sums {
			if most := budgets[name]; most != 0 && sum > 0 {
				factor[name] = min(1, float64(most)/sum)
			}
			total += sum * factor[name]
		}
		byNamespace, byContainer := kernelShares(root)
		// A weight is rounded by at most one, of 10000 for its largest sibling.
		same := func(got, want, cgroups float64) bool { return math.Abs(got-want) <= 0.03*want+cgroups/blkio.MaxWeight }
		for name, sum := range sums {
			if got, want := byNamespace[name], sum*factor[name]/max(total, 1); !same(got, want, pods) {
				t.Errorf("seed %d: namespace %q gets %f, want %f", seed, name, got, want)
			}
		}
		for pod := range podsOf(&root) {
			for _, c := range pod.Children {
				if want := float64(c.Weight) * factor[pod.Budget.Namespace] / max(total, 1); c.Active && !same(byContainer[c.Path], want, 1) {
					t.Errorf("seed %d: %s gets %f, want %f", seed, c.Path, byContainer[c.Path], want)
				}
			}
		}
		for _, s := range sharesOf(root) {
			if s.Weight < blkio.MinWeight || s.Weight > blkio.MaxWeight {
				t.Errorf("seed %d: %s has a weight of %d", seed, s.Path, s.Weight)
			}
		}
		if t.Failed() {
			return
		}
	}
}

// TestKeeperBudgets verifies that the weights follow a budget at once: a new one, another one, and none. A weight that a pod was
// given as a whole is scaled as well.
func TestKeeperBudgets(t *testing.T) {
	k := threePods(t)
	k.given[podC] = blkio.Weights{Default: 300}
	k.put(podC+"/io.weight", "default 300\n")
	k.pass(vda)
	want := func(slice, podOfA, podOfB, podOfC string) {
		t.Helper()
		k.use(vda, a, b, c)
		k.pass(vda)
		all := map[string]string{burstable: "default 100, 254:0 " + slice, podA: "default 100, 254:0 " + podOfA, podB: "default 100, 254:0 " + podOfB, podC: "default 300"}
		if podOfC != "" {
			all[podC] += ", 254:0 " + podOfC
		}
		k.want(leaves(all))
	}
	want("1100", "200", "900", "")
	k.budgets = map[string]Budget{podA: {Namespace: "t", Weight: 140}, podB: {Namespace: "t", Weight: 140}, podC: {Namespace: "t", Weight: 140}}
	want("110", "20", "90", "30")
	k.budgets = map[string]Budget{podA: {Namespace: "t", Weight: 1400}, podB: {Namespace: "t", Weight: 1400}, podC: {Namespace: "t", Weight: 1400}}
	want("1100", "200", "900", "300")
	k.budgets = map[string]Budget{podC: {Namespace: "t", Weight: 100}}
	want("1100", "200", "900", "100")
	k.budgets = nil
	want("1100", "200", "900", "300")
	r, err := k.tryPass(vda)
	if err != nil || len(r.Used[vda]) != 0 {
		t.Errorf("uses %+v, %v", r.Used, err)
	}
}

// TestKeeperRestarts verifies that a new process leaves the weights under a budget as they are until it has seen which pods are active.
func TestKeeperRestarts(t *testing.T) {
	k := threePods(t)
	k.budgets = map[string]Budget{podA: {Namespace: "t", Weight: 140}, podB: {Namespace: "t", Weight: 140}, podC: {Namespace: "t", Weight: 140}}
	pass := func() {
		t.Helper()
		k.use(vda, a, b, c)
		k.pass(vda)
		k.want(leaves(map[string]string{
			burstable: "default 100, 254:0 110", podA: "default 100, 254:0 20", podB: "default 100, 254:0 90", podC: "default 100, 254:0 30",
		}))
	}
	k.pass(vda)
	k.want(leaves(nil))
	pass()
	k.keeper = NewKeeper(k.keeper.cgroups, cgroupfs.Cgroup.Write)
	pass()
	pass()
}

// TestKeeperReportsBudgets verifies that the use of budgets stays reported while nothing changes.
func TestKeeperReportsBudgets(t *testing.T) {
	k := threePods(t)
	k.budgets = map[string]Budget{podA: {Namespace: "t", Weight: 140}, podC: {Namespace: "t", Weight: 140}}
	k.pass(vda)
	for i := range 3 {
		k.use(vda, a, c)
		r, err := k.tryPass(vda)
		if want := []BudgetUse{{Budget: Budget{Namespace: "t", Weight: 140}, Sum: 500, Pods: 2}}; err != nil || !cmp.Equal(want, r.Used[vda]) {
			t.Errorf("pass %d: %+v, %v", i, r.Used, err)
		}
	}
}
