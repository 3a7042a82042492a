package policy

import (
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// TestGuarantee verifies what a policy guarantees, and what of the disks it can still promise.
func TestGuarantee(t *testing.T) {
	const budgets = `
reserve: {system: 10%}
budgets:
- {namespaces: [gold, silver], guarantee: 12.5%}
- {namespaces: [db], guarantee: 30%, weight: 500, limits: ["* wbps=1Gi"]}
- {namespaces: ["*"], weight: 100}
`
	for _, tt := range []struct {
		text, namespace string
		want            WeightBudget
	}{
		{budgets, "gold", WeightBudget{Guarantee: 1250, Reserve: 1000}},
		{budgets, "silver", WeightBudget{Guarantee: 1250, Reserve: 1000}},
		{budgets, "db", WeightBudget{Most: 500, Guarantee: 3000, Reserve: 1000}},
		{budgets, "web", WeightBudget{Most: 100}},
		{budgets + "rules: [{name: staged, match: {namespaces: [gold]}, mode: observe}]", "gold", WeightBudget{}},
		{budgets + "mode: observe", "gold", WeightBudget{}},
		{budgets + "mode: observe\nrules: [{name: first, match: {namespaces: [db]}, mode: enforce}]", "db", WeightBudget{Most: 500}},
	} {
		pod := parsed(t, tt.text).ForPod(&PodFacts{Namespace: tt.namespace}, annotation.Parse(nil))
		if got := pod.WeightBudget(); got != tt.want {
			t.Errorf("%s in %s: %+v, want %+v", tt.namespace, tt.text, got, tt.want)
		}
	}
	p := parsed(t, budgets)
	const promised = "of each disk with io.cost 55% is guaranteed to namespaces and 10% is reserved; 25% can still be guaranteed"
	if got := p.Promised(); got != promised || !p.BoundsWeights() {
		t.Errorf("%q, want %q", got, promised)
	}
	if got := parsed(t, budgets+"mode: observe").Promised(); !strings.HasSuffix(got, "; mode: observe keeps nothing of it") {
		t.Error(got)
	}
	if got := parsed(t, "reserve: {system: 10%}\nbudgets: [{namespaces: [a], weight: 5}]").Promised(); got != "" {
		t.Errorf("without guarantees: %q", got)
	}
}

func TestGuaranteeFileErrors(t *testing.T) {
	const head = fileHead + "reserve: {system: 10%}\nbudgets:\n- {namespaces: [a], guarantee: 30%}\n- "
	checkFileErrors(t, []struct{ text, want string }{
		{fileHead + "budgets: [{namespaces: [a], guarantee: 30%}]", `line 3: budgets[0].guarantee: Invalid value: "30%": a guarantee needs a reserve`},
		{head + "{namespaces: [b], guarantee: 50.01%}", `line 6: budgets[1].guarantee: Invalid value: "50.01%": 90.01% of a disk would be guaranteed or reserved: at most 90% can be`},
		{head + "{namespaces: [b, c], guarantee: 25.01%}", `line 6: budgets[1].guarantee: Invalid value: "25.01%": 90.02% of a disk`},
		{head + "{namespaces: [b], guarantee: 0%}", `line 6: budgets[1].guarantee: Invalid value: "0%": must be above 0%`},
		{head + "{namespaces: [b], guarantee: 91%}", `line 6: budgets[1].guarantee: Invalid value: "91%": must be between 0% and 90%`},
		{head + "{namespaces: [b], guarantee: 30}", `line 6: budgets[1].guarantee: Invalid value: "30": must be a percentage, such as 30%`},
		{head + "{namespaces: [b], guarantee: 4294967296%}", "line 6: budgets[1].guarantee: Invalid value"},
		{head + "namespaces:\n  - b\n  - 'c-*'\n  guarantee: 3%", `line 8: budgets[1].namespaces[1]: Invalid value: "c-*": a guarantee needs names: a pattern can match any number of namespaces`},
		{head + "{namespaces: [a], guarantee: 3%}", `line 6: budgets[1].namespaces[0]: Invalid value: "a": an earlier budget matches the namespace, so it would have no guarantee (move this one up)`},
		{head + "{namespaces: ['b*'], weight: 5}\n- {namespaces: [bc], guarantee: 3%}", `line 7: budgets[2].namespaces[0]: Invalid value: "bc": an earlier budget`},
	})
	parsed(t, "reserve: {system: 10%}\nbudgets: [{namespaces: [a], guarantee: 80%}]")
}
