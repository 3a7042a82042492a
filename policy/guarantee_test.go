package policy

import (
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// These guarantee parts of disks to namespaces, and to a class as well.
const guarantees = `
reserve: {system: 10%}
budgets:
- {namespaces: [gold, silver], guarantee: 12.5%}
- {namespaces: [db], guarantee: 30%, weight: 500, limits: ["* wbps=1Gi"]}
- {namespaces: ["*"], weight: 100}
`

const guaranteesOfClasses = guarantees + `
classes: {fast: {guarantee: 25%}, slow: {weight: 10}}
rules:
- {name: fast, match: {namespaces: [gold, db]}, class: fast}
- {name: slow, match: {namespaces: [silver]}, class: slow}
`

// TestGuarantee verifies what a policy guarantees to a pod.
func TestGuarantee(t *testing.T) {
	for _, tt := range []struct {
		text, namespace string
		want            WeightBudget
	}{
		{guarantees, "gold", WeightBudget{Guarantee: 1250, Reserve: 1000}},
		{guarantees, "silver", WeightBudget{Guarantee: 1250, Reserve: 1000}},
		{guarantees, "db", WeightBudget{Weight: 500, Guarantee: 3000, Reserve: 1000}},
		{guarantees, "web", WeightBudget{Weight: 100}},
		{guarantees + "rules: [{name: staged, match: {namespaces: [gold]}, mode: observe}]", "gold", WeightBudget{}},
		{guarantees + "mode: observe", "gold", WeightBudget{}},
		{guarantees + "mode: observe\nrules: [{name: first, match: {namespaces: [db]}, mode: enforce}]", "db", WeightBudget{Weight: 500}},
		{guaranteesOfClasses, "gold", WeightBudget{Class: "fast", Guarantee: 2500, Reserve: 1000}},
		{guaranteesOfClasses, "db", WeightBudget{Class: "fast", Guarantee: 2500, Reserve: 1000}},
		{guaranteesOfClasses, "silver", WeightBudget{Guarantee: 1250, Reserve: 1000}},
		{guaranteesOfClasses, "web", WeightBudget{Weight: 100}},
		{guaranteesOfClasses + "- {name: staged, match: {namespaces: [web]}, class: fast, mode: observe}", "web", WeightBudget{}},
		{strings.Replace(guaranteesOfClasses, "class: fast}", "class: fast, mode: enforce}", 1) + "mode: observe", "db", WeightBudget{Weight: 500}},
	} {
		pod := parsed(t, tt.text).ForPod(&PodFacts{Namespace: tt.namespace}, annotation.Parse(nil))
		if tt.want != (WeightBudget{}) && tt.want.Class == "" {
			tt.want.Namespace = tt.namespace
		}
		if got := pod.WeightBudget(); got != tt.want {
			t.Errorf("%s in %s: %+v, want %+v", tt.namespace, tt.text, got, tt.want)
		}
	}
}

// TestPromised verifies what a policy says that it guarantees, and can still promise.
func TestPromised(t *testing.T) {
	p := parsed(t, guarantees)
	const promised = "of each disk with io.cost 55% is guaranteed and 10% is reserved; 25% can still be guaranteed"
	if got := p.Promised(); got != promised || !p.BoundsWeights() {
		t.Errorf("%q, want %q", got, promised)
	}
	if got := parsed(t, guaranteesOfClasses).Promised(); got != "of each disk with io.cost 80% is guaranteed and 10% is reserved; 0% can still be guaranteed" {
		t.Errorf("with a class: %q", got)
	}
	if p := parsed(t, "reserve: {system: 10%}\nclasses: {fast: {guarantee: 25%}}"); !p.BoundsWeights() {
		t.Error("the guarantee of a class needs no io.cost")
	}
	if got := parsed(t, guarantees+"mode: observe").Promised(); !strings.HasSuffix(got, "; mode: observe keeps nothing of it") {
		t.Error(got)
	}
	const staged = guarantees + `
classes: {fast: {guarantee: 5%}, lost: {guarantee: 5%}, slow: {guarantee: 5%}}
rules:
- {name: some, match: {namespaces: [db], qos: [BestEffort]}, mode: observe}
- {name: fast, match: {namespaces: [gold]}, class: fast, mode: observe}
- {name: slow, class: slow}
`
	if got := parsed(t, staged).Promised(); !strings.HasSuffix(got, "10% can still be guaranteed; nothing is kept for class fast, class lost, namespace gold: no rule for their pods enforces") {
		t.Errorf("with rules that do not enforce: %q", got)
	}
	const partly = guarantees + `
rules:
- {name: db, match: {namespaces: [gold], podSelector: {matchLabels: {app: db}}}}
- {name: others, match: {namespaces: [gold]}, mode: observe}
`
	if got := parsed(t, partly).Promised(); got != promised {
		t.Errorf("with a rule for some pods: %q, want %q", got, promised)
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
	checkFileErrors(t, []struct{ text, want string }{
		{fileHead + "classes:\n  fast: {guarantee: 30%}", `line 4: classes.fast.guarantee: Invalid value: "30%": a guarantee needs a reserve`},
		{fileHead + "classes:\n  fast: {guarantee: 0%}", `line 4: classes.fast.guarantee: Invalid value: "0%": must be above 0%`},
		{fileHead + "classes:\n  fast: {}", `line 4: classes.fast: Required value: a class has limits, a weight, or a guarantee`},
		{
			fileHead + "reserve: {system: 10%}\nclasses:\n  a: {guarantee: 50%}\n  b: {guarantee: 30.01%}",
			`line 6: classes.b.guarantee: Invalid value: "30.01%": 90.01% of a disk would be guaranteed or reserved: at most 90% can be`,
		},
		{head + "{namespaces: [b], guarantee: 20%}\nclasses:\n  a: {guarantee: 40%}", `line 6: budgets[1].guarantee: Invalid value: "20%": 100% of a disk`},
	})
}

// TestGuaranteeIsGivenByRules verifies that no annotation can choose a class with a guarantee, unless the pod has it by its rule, and that a
// pod which chooses another class for its containers stays in the group of its rule.
func TestGuaranteeIsGivenByRules(t *testing.T) {
	p := parsed(t, `
reserve: {system: 10%}
classes: {fast: {guarantee: 25%}, batch: {weight: 10}}
rules: [{name: fast, match: {namespaces: [gold]}, class: fast}]
`)
	for _, tt := range []struct {
		namespace, class string
		want             WeightBudget
		isRefused        bool
	}{
		{"gold", "fast", WeightBudget{Class: "fast", Guarantee: 2500, Reserve: 1000}, false},
		{"gold", "batch", WeightBudget{Class: "fast", Guarantee: 2500, Reserve: 1000}, false},
		{"web", "fast", WeightBudget{}, true},
		{"web", "batch", WeightBudget{}, false},
	} {
		for _, scope := range []string{"containers", "container.c"} {
			pod := p.ForPod(&PodFacts{Namespace: tt.namespace}, annotation.Parse(map[string]string{"class.blkio.noderesource.dev/" + scope: tt.class}))
			errs := pod.choiceErrors("c")
			if (len(errs) > 0) != tt.isRefused || tt.isRefused && !strings.Contains(errs[0].Error(), "only a rule of the node policy gives this one") {
				t.Errorf("%s of %s chooses %s: %v", scope, tt.namespace, tt.class, errs)
			}
			if got := pod.WeightBudget(); got != tt.want {
				t.Errorf("%s of %s chooses %s: %+v, want %+v", scope, tt.namespace, tt.class, got, tt.want)
			}
		}
	}
}
