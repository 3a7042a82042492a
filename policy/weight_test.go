package policy

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

const keyWeight = "weight.blkio.noderesource.dev/"

// TestWeightBound: a pod cannot take a share from others unless the policy allows it.
func TestWeightBound(t *testing.T) {
	refused := func(scope, value, most string) string {
		return "nri-blkio: " + keyWeight + scope + `: "` + value + `": the weight is too large (write at most ` + most + ", bounds.weight.max of the node policy)"
	}
	for _, tt := range []struct {
		policy, scope, value string
		want                 blkio.Amount
		err                  string
	}{
		{"", "container.db", "100", 100, ""},
		{"", "container.db", "1", 1, ""},
		{"", "container.db", "101", 0, refused("container.db", "101", "100")},
		{"", "containers", "10000", 0, refused("containers", "10000", "100")},
		{"", "pod-total", "100", 100, ""},
		{"", "pod-total", "10000", 0, refused("pod-total", "10000", "100")},
		{"bounds: {weight: {max: 50}}", "containers", "51", 0, refused("containers", "51", "50")},
		{"bounds: {weight: {max: 10000}}", "pod-total", "10000", 10000, ""},
	} {
		p, err := ParseFile([]byte(fileHead + tt.policy))
		if err != nil {
			t.Fatal(err)
		}
		r := annotation.Parse(map[string]string{keyWeight + tt.scope: tt.value})
		decide := func() (Desired, error) { return p.Container(r, db()) }
		if tt.scope == "pod-total" {
			decide = func() (Desired, error) { return p.PodTotal(r, []Container{db()}) }
			if _, err := p.Container(r, db()); (err != nil) != (tt.err != "") {
				t.Errorf("%s %s: a container with it: %v", tt.scope, tt.value, err)
			}
		}
		d, err := decide()
		got := ""
		if err != nil {
			got = err.Error()
		}
		if diff := cmp.Diff(tt.err, got); diff != "" || amount(d, blkio.Weight) != tt.want {
			t.Errorf("%q, %s %s: weight %d, want %d, -want +got:\n%s", tt.policy, tt.scope, tt.value, amount(d, blkio.Weight), tt.want, diff)
		}
		if errs := p.Check(r); (len(errs) > 0) != (tt.err != "") {
			t.Errorf("%s %s: without a container: %v", tt.scope, tt.value, errs)
		}
	}
}

// A weight that is refused leaves that of the wider scope.
func TestWeightBoundBestEffort(t *testing.T) {
	r := annotation.Parse(map[string]string{keyWeight + "container.db": "500", keyWeight + "containers": "50"})
	d, err := Default().Container(r, db())
	if err == nil || amount(d, blkio.Weight) != 50 {
		t.Errorf("weight %d, %v, want 50 beside an error", amount(d, blkio.Weight), err)
	}
}

func TestMemoryBoundsDirty(t *testing.T) {
	const gi = 1 << 30
	for _, tt := range []struct {
		name        string
		limit, node uint64
		want        bool
	}{
		{"no limit", NoMemory, 8 * gi, false},
		{"half", 4 * gi, 8 * gi, true},
		{"more than half", 4*gi + 1, 8 * gi, false},
		{"64Ti on any node", 64 << 40, 8 * gi, false},
		{"node unknown", 64 << 40, 0, true},
		{"node unknown, no limit", NoMemory, 0, false},
	} {
		if got := MemoryBoundsDirty(tt.limit, tt.node); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}
