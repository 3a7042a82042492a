package annotation

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestTargets verifies which targets a value covers, and the union of two values.
func TestTargets(t *testing.T) {
	one := Targets{Paths: []string{"/a", "/c"}, Volumes: []string{"v"}}
	two := Targets{Paths: []string{"/b", "/c"}, Widest: Star, Weights: true}
	want := Targets{Paths: []string{"/a", "/b", "/c"}, Volumes: []string{"v"}, Widest: Star, Weights: true}
	if diff := cmp.Diff(want, one.And(two)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"/a", "/c"}, one.Paths); diff != "" {
		t.Errorf("changed: %s", diff)
	}
	for _, tt := range []struct {
		name   string
		a, b   Targets
		covers bool
	}{
		{"nothing", Targets{}, Targets{}, true},
		{"a part", want, one, true},
		{"all", want, want, true},
		{"more", one, want, false},
		{"another path", one, Targets{Paths: []string{"/b"}}, false},
		{"a volume", two, Targets{Volumes: []string{"v"}}, false},
		{"*", one, Targets{Widest: Star}, false},
		{"rootfs", one, Targets{Widest: Rootfs}, false},
		{"a weight", one, Targets{Weights: true}, false},
		{"disks by name", two, Targets{Disks: true}, false},
	} {
		if got := tt.a.Covers(tt.b); got != tt.covers {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
	var none *List
	if diff := cmp.Diff(Targets{}, none.Targets()); diff != "" || new(Request).Targets().HasStar() {
		t.Error(diff)
	}
}

// TestAnd verifies that both together cover each, in either order, and nothing that neither has.
func TestAnd(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	some := func() Targets {
		var out Targets
		for range random.IntN(4) {
			out.Paths, out.Volumes = append(out.Paths, fmt.Sprint("/", random.IntN(4))), append(out.Volumes, fmt.Sprint(random.IntN(4)))
		}
		out.Widest, out.Weights, out.Disks = Width(random.IntN(3)), random.IntN(2) > 0, random.IntN(2) > 0
		out.tidy()
		return out
	}
	for range 1000 {
		a, b, c := some(), some(), some()
		both := a.And(b)
		if !both.Covers(a) || !both.Covers(b) || !slices.IsSorted(both.Paths) || !slices.IsSorted(both.Volumes) {
			t.Errorf("%+v and %+v: %+v", a, b, both)
		}
		if d := cmp.Diff(both, b.And(a)); d != "" {
			t.Errorf("%+v and %+v: %s", a, b, d)
		}
		if c.Covers(a) && c.Covers(b) != c.Covers(both) {
			t.Errorf("%+v covers %+v: %t, and %+v: %t", c, b, c.Covers(b), both, c.Covers(both))
		}
		if both.HasStar() && !both.HasRootfs() || both.HasStar() != (a.HasStar() || b.HasStar()) {
			t.Errorf("%+v", both)
		}
	}
}
