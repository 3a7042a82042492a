package check

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/manifest"
	"github.com/nri-blkio/nri-blkio/policy"
)

const budgetHead = "apiVersion: blkio.noderesource.dev/v1alpha1\nkind: NodePolicy\nbudgets: [{namespaces: ['tenant-*'], limits: ['* wbps=100Mi']}]\n"

// TestBudget verifies that a manifest that exceeds the budget of its namespace is an error, and that another one gets
// a note.
func TestBudget(t *testing.T) {
	const more = "wbps=60Mi on disk sda exceeds the budget of namespace tenant-a: 60Mi of 100Mi are granted to other containers of the pod (write at most 40Mi)"
	const half = "wbps=60Mi is 15360 operations/s of 4K, 3840 of 16K, 960 of 64K or 60 of 1M"
	const none = `wbps of * needs a limit: disk sda has none, and namespace tenant-a has a budget (write for example "* wbps=12800Ki")`
	for name, tt := range map[string]struct {
		policy, namespace      string
		annotations            map[string]string
		errors, effects, notes []string
	}{
		"another namespace": {namespace: "web"},
		"room for one of two": {
			annotations: map[string]string{limitsOf + "containers": "* wbps=60Mi"},
			errors:      []string{"nri-blkio: " + limitsOf + "containers: " + more},
			effects:     []string{"container b is not created"},
			notes:       []string{half, "wbps=60Mi on sda counts for the budget of namespace tenant-a: 100Mi for all of its pods on the node"},
		},
		"observed": {
			policy: "mode: observe\n", annotations: map[string]string{limitsOf + "containers": "* wbps=60Mi"},
			errors:  []string{"nri-blkio: " + limitsOf + "containers: " + more},
			effects: []string{"container b would not be created in mode enforce", "nothing is written: the node's policy has mode observe"},
			notes:   []string{half},
		},
		"ignored": {
			policy: "onError: {invalid: ignore}\n", annotations: map[string]string{limitsOf + "containers": "* wbps=60Mi"},
			errors:  []string{"nri-blkio: " + limitsOf + "containers: " + more},
			effects: []string{"container b starts although it exceeds the budget, as onError of the node's policy has it"},
			notes:   []string{half},
		},
		"no limit": {
			errors:  []string{"nri-blkio: " + limitsOf + "containers: " + none},
			effects: []string{"container a is not created", "container b is not created"},
		},
		"the pod as a whole": {
			annotations: map[string]string{limitsOf + "pod-total": "* wbps=60Mi"},
			notes:       []string{half, "wbps=60Mi on sda counts for the budget of namespace tenant-a: 100Mi for all of its pods on the node"},
		},
	} {
		c, m := testChecker(), podOf(tt.annotations, "a", "b")
		m.Namespace = "tenant-a"
		if tt.namespace != "" {
			m.Namespace = tt.namespace
		}
		p, err := policy.ParseFile([]byte(budgetHead + tt.policy))
		if err != nil {
			t.Fatal(err)
		}
		c.Policy = p
		r := c.Pod(t.Context(), m)
		if diff := cmp.Diff(tt.errors, r.Errors) + cmp.Diff(tt.effects, r.Effects) + cmp.Diff(tt.notes, r.Notes); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
}

// TestBudgetOfInit verifies that an init container that has ended leaves its room to the next container, and that a
// sidecar does not.
func TestBudgetOfInit(t *testing.T) {
	p, err := policy.ParseFile([]byte(budgetHead))
	if err != nil {
		t.Fatal(err)
	}
	for role, want := range map[manifest.Role][]string{manifest.Init: nil, manifest.Sidecar: {"container b is not created"}} {
		c, m := testChecker(), podOf(map[string]string{limitsOf + "containers": "* wbps=60Mi"}, "a", "b")
		c.Policy, m.Namespace, m.Containers[0].Role = p, "tenant-a", role
		if got := c.Pod(t.Context(), m).Effects; !slices.Equal(got, want) {
			t.Errorf("role %v: %q, want %q", role, got, want)
		}
	}
}

// logical has each disk as a logical volume of sdb.
type logical struct{ numbered }

func (logical) Physical(blkio.Dev) ([]blkio.Disk, error) {
	return []blkio.Disk{{Dev: blkio.Dev{Major: 8, Minor: 16}, Name: "sdb"}}, nil
}

// TestBudgetOfLogicalVolume verifies that limits count on the physical disk below a logical volume.
func TestBudgetOfLogicalVolume(t *testing.T) {
	const more = "wbps=60Mi on disk sdb exceeds the budget of namespace tenant-a: 60Mi of 100Mi are granted to other containers of the pod (write at most 40Mi)"
	c, m := testChecker(), podOf(map[string]string{limitsOf + "containers": "* wbps=60Mi"}, "a", "b")
	c.Node.Storage, m.Namespace = logical{}, "tenant-a"
	p, err := policy.ParseFile([]byte(budgetHead))
	if err != nil {
		t.Fatal(err)
	}
	c.Policy = p
	got := c.Pod(t.Context(), m)
	if want := []string{"nri-blkio: " + limitsOf + "containers: " + more}; !slices.Equal(got.Errors, want) {
		t.Errorf("errors %q, want %q", got.Errors, want)
	}
	if want := "wbps=60Mi on sdb counts for the budget of namespace tenant-a: 100Mi for all of its pods on the node"; !slices.Contains(got.Notes, want) {
		t.Errorf("notes %q", got.Notes)
	}
}
