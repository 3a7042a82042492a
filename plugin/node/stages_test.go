package node

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// TestStages verifies what docs/how-to/enable-in-stages.md says of a pod whose request is out of bounds. In mode
// observe it starts, is reported and has no limit. Once a rule enforces, its running container gets the class of the
// rule, and a further container is rejected. Back in mode observe the limit is removed.
func TestStages(t *testing.T) {
	const staged = `mode: observe
rules:
- {name: first, match: {namespaces: [%s]}, mode: enforce, class: silver, bounds: {max: ["* wbps=100Mi"]}}
- {name: teams, match: {namespaces: [prod]}, class: silver, bounds: {max: ["* wbps=100Mi"]}}
`
	observed, enforced := fmt.Sprintf(staged, "other"), fmt.Sprintf(staged, "prod")
	h, _ := tree(t, podCgroup, cgroupOf("import"), cgroupOf("more"))
	n := newNode(t, h)
	sb := sandbox(map[string]string{limitsKey + "containers": "* wbps=500Mi"})
	want := func(when string, rate blkio.Amount, isObserved bool, states [4]int) {
		t.Helper()
		n.pass(t.Context())
		if got := wbps(t, n, cgroupOf("import")); got != rate {
			t.Errorf("%s: io.max has wbps=%v, want %v", when, got, rate)
		}
		if r := recordOf(t, n, cgroupOf("import")); r.Observed != isObserved || len(r.Settings) != 1 || !strings.Contains(r.Error, "above the bound") {
			t.Errorf("%s: record %+v", when, r)
		}
		if got := n.census().states; got != states {
			t.Errorf("%s: states %v, want %v", when, got, states)
		}
	}

	n.policy.Store(rules(t, observed))
	if _, err := n.create(t.Context(), sb, ctr("import"), false); err != nil {
		t.Fatal(err)
	}
	start(t, n, sb, "import")
	want("observe", blkio.Max, true, [...]int{0, 0, 1, 0})
	n.Reload(rules(t, enforced))
	want("enforce", 40<<20, false, [...]int{0, 0, 1, 0})
	if _, err := n.create(t.Context(), sb, ctr("more"), false); err == nil || !strings.Contains(err.Error(), "bounds.max of rule first") {
		t.Errorf("a further container: %v, want a rejection", err)
	}
	n.Reload(rules(t, observed))
	want("back", blkio.Max, true, [...]int{0, 0, 1, 0})
	if got := wbps(t, n, podCgroup); got != blkio.Max {
		t.Errorf("the backstop is left: wbps=%v", got)
	}
	if _, err := n.create(t.Context(), sb, ctr("more"), false); err != nil {
		t.Errorf("a further container: %v", err)
	}
}
