package shares

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
)

func container(path string, weight uint32, active bool) Cgroup {
	return Cgroup{Path: path, Weight: weight, Active: active}
}

// group is a cgroup whose weight follows from its children.
func group(path string, children ...Cgroup) Cgroup {
	c := Cgroup{Path: path, Children: children}
	for i := range children {
		c.Active = c.Active || children[i].Active
	}
	return c
}

func sharesOf(root Cgroup) []Share {
	out, _ := distribute(blkio.MaxWeight, root)
	return out
}

func weightsOf(shares []Share) map[string]uint32 {
	out := map[string]uint32{}
	for _, s := range shares {
		out[s.Path] = s.Weight
	}
	return out
}

func TestDistribute(t *testing.T) {
	for _, tt := range []struct {
		name string
		root Cgroup
		want map[string]uint32
	}{
		{name: "nothing below", root: group("pods"), want: map[string]uint32{}},
		{
			name: "the sum of the active",
			root: group("pods", group("pods/slice", group("p", container("a", 200, true), container("b", 300, true), container("c", 500, false)))),
			want: map[string]uint32{"pods/slice": 500, "p": 500, "a": 200, "b": 300, "c": 500},
		},
		{
			name: "idle pods add nothing to the slice of a busy one",
			root: group("pods",
				group("slice", group("p", container("a", 200, true)), group("q", container("b", 900, false)), group("r", container("c", 900, false))),
				group("s", container("d", 100, true))),
			want: map[string]uint32{"slice": 200, "p": 200, "a": 200, "q": 900, "b": 900, "r": 900, "c": 900, "s": 100, "d": 100},
		},
		{
			name: "a slice without an active pod has the weight of the largest, which may begin",
			root: group("pods", group("slice", group("p", container("a", 200, false)), group("q", container("b", 300, false)))),
			want: map[string]uint32{"slice": 300, "p": 200, "a": 200, "q": 300, "b": 300},
		},
		{
			name: "a weight of the pod replaces the sum",
			root: group("pods", Cgroup{Path: "p", Weight: 50, Active: true, Children: []Cgroup{container("a", 1000, true)}}, group("q", container("b", 100, true))),
			want: map[string]uint32{"p": 50, "a": 1000, "q": 100, "b": 100},
		},
		{
			name: "siblings above the kernel's largest are scaled alike",
			root: group("pods",
				group("p", container("a", 10000, true), container("b", 10000, true)),
				group("q", container("c", 5000, true)),
				group("r", container("d", 1, true))),
			want: map[string]uint32{"p": 10000, "a": 10000, "b": 10000, "q": 2500, "c": 5000, "r": 1, "d": 1},
		},
		{
			name: "a pod whose containers are not there yet",
			root: group("pods", group("p"), group("q", container("a", 300, true))),
			want: map[string]uint32{"p": 100, "q": 300, "a": 300},
		},
		{
			name: "a pod that has its cgroup's own I/O only",
			root: group("pods", Cgroup{Path: "p", Active: true, Children: []Cgroup{container("a", 300, false)}}, group("q", container("b", 100, true))),
			want: map[string]uint32{"p": 300, "a": 300, "q": 100, "b": 100},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, weightsOf(sharesOf(tt.root))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestFraction(t *testing.T) {
	root := group("pods",
		group("slice", group("p", container("a", 200, true), container("idle", 200, false))),
		group("q", container("b", 300, true)), group("r", container("c", 500, false)))
	got := map[string]float64{}
	for _, s := range sharesOf(root) {
		got[s.Path] = math.Round(s.Fraction*1000) / 1000
	}
	want := map[string]float64{"slice": 0.4, "p": 0.4, "a": 0.4, "idle": 0.2, "q": 0.6, "b": 0.6, "r": 0.5, "c": 0.5}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestFlat verifies, for random trees, that an active container gets its weight divided by the weights of all
// active ones. It uses the kernel's arithmetic with the integers that are written.
func TestFlat(t *testing.T) {
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 0))
	for range 500 {
		root, total := randomTree(rnd)
		weights := weightsOf(sharesOf(root))
		fractions := map[string]float64{}
		for _, s := range sharesOf(root) {
			fractions[s.Path] = s.Fraction
		}
		eachActive(root, 1, weights, func(c Cgroup, fraction float64) {
			want := float64(c.Weight) / float64(total)
			if math.Abs(fractions[c.Path]-fraction) > 1e-9 {
				t.Errorf("seed %d: %s has a fraction of %f, and the kernel gives it %f", seed, c.Path, fractions[c.Path], fraction)
			}
			// Scaling rounds to a whole weight at each of three levels.
			if math.Abs(fraction/want-1) > 0.02 {
				t.Errorf("seed %d: the kernel gives %s %f, want %f", seed, c.Path, fraction, want)
			}
		})
		if t.Failed() {
			return
		}
	}
}

// randomTree returns slices, pods and containers, and the sum of the weights of the active ones. Weights differ
// by a factor of 20 at most, so that rounding does not hide an error.
func randomTree(rnd *rand.Rand) (root Cgroup, total uint64) {
	name := func(parent string, i int) string { return parent + "/" + string(rune('a'+i)) }
	pod := func(path string) Cgroup {
		var children []Cgroup
		for i := range 1 + rnd.IntN(4) {
			c := container(name(path, i), 500+rnd.Uint32N(9501), rnd.IntN(2) == 0)
			if c.Active {
				total += uint64(c.Weight)
			}
			children = append(children, c)
		}
		return group(path, children...)
	}
	var top []Cgroup
	for i := range 5 {
		path := name("pods", i)
		if i > 1 {
			top = append(top, pod(path))
			continue
		}
		var pods []Cgroup
		for j := range rnd.IntN(6) {
			pods = append(pods, pod(name(path, j)))
		}
		top = append(top, group(path, pods...))
	}
	return group("pods", top...), total
}

// eachActive calls fn for each active container with the share that io.cost gives it. At each level that is its
// weight divided by those of its active siblings (current_hweight in block/blk-iocost.c).
func eachActive(c Cgroup, fraction float64, weights map[string]uint32, fn func(Cgroup, float64)) {
	if len(c.Children) == 0 && c.Active {
		fn(c, fraction)
	}
	var sum float64
	for i := range c.Children {
		if c.Children[i].Active {
			sum += float64(weights[c.Children[i].Path])
		}
	}
	for i := range c.Children {
		if child := c.Children[i]; child.Active {
			eachActive(child, fraction*float64(weights[child.Path])/sum, weights, fn)
		}
	}
}
