package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

const byNamespaceLabels = `
classes: {bronze: {limits: ["* wbps=20Mi"]}}
rules:
- {name: paying, match: {namespaceSelector: {matchLabels: {plan: gold}}}, class: none}
- {name: trial, match: {namespaces: ["t-*"], namespaceSelector: {matchExpressions: [{key: contract, operator: DoesNotExist}]}}, class: bronze}
`

// TestNamespaceSelector verifies that rules select pods by the labels of their namespaces, and match none while those are unknown by
// which they select.
func TestNamespaceSelector(t *testing.T) {
	p := parsed(t, byNamespaceLabels)
	if keys := p.NamespaceKeys(); !slices.Equal(keys, []string{"contract", "plan"}) {
		t.Errorf("the keys are %q", keys)
	}
	if keys := parsed(t, staged).NamespaceKeys(); keys != nil {
		t.Errorf("the keys of a policy without a selector are %q", keys)
	}
	all := func(labels map[string]string) NamespaceLabels { return KnownLabels(labels, p.NamespaceKeys()) }
	gold, none := "gold", ""
	for name, tt := range map[string]struct {
		namespace string
		labels    NamespaceLabels
		want      string
		lacks     bool
	}{
		"unknown":               {"t-1", nil, "", true},
		"unknown, no rule":      {"u", nil, "", true}, // the first rule has no pattern
		"no labels":             {"t-1", all(map[string]string{}), "trial", false},
		"a label":               {"t-1", all(map[string]string{"plan": "gold"}), "paying", false},
		"another value":         {"t-1", all(map[string]string{"plan": "tin"}), "trial", false},
		"a label of both":       {"t-1", all(map[string]string{"plan": "tin", "contract": ""}), "", false},
		"another namespace":     {"u", all(map[string]string{}), "", false},
		"partly known, matches": {"t-1", NamespaceLabels{"plan": &gold}, "paying", false},
		"partly known, lacks":   {"t-1", NamespaceLabels{"plan": nil}, "", true},
		"the other key":         {"t-1", NamespaceLabels{"contract": &none}, "", true},
	} {
		facts := PodFacts{Namespace: tt.namespace, Labels: map[string]string{"plan": "gold"}, NamespaceLabels: tt.labels}
		if got := p.ForPod(&facts, annotation.Parse(nil)).Rule(); got != tt.want || p.LacksNamespaceLabels(&facts) != tt.lacks {
			t.Errorf("%s: rule %q, want %q; lacks labels: %t", name, got, tt.want, !tt.lacks)
		}
	}
}

// TestEmptyNamespaceSelector verifies that an empty selector matches each pod whose namespace is known, so that no later rule is
// unreachable, and that no labels are lacking once an earlier rule decides.
func TestEmptyNamespaceSelector(t *testing.T) {
	p := parsed(t, "rules: [{name: early, match: {namespaces: [a]}}, {name: known, match: {namespaceSelector: {}}}, {name: late}]")
	if warning := p.Warnings(); len(warning) > 0 {
		t.Error(warning)
	}
	for _, tt := range []struct {
		namespace string
		labels    NamespaceLabels
		want      string
		lacks     bool
	}{
		{"a", nil, "early", false},
		{"b", nil, "late", true},
		{"b", KnownLabels(map[string]string{"x": "y"}, p.NamespaceKeys()), "known", false},
	} {
		facts := PodFacts{Namespace: tt.namespace, NamespaceLabels: tt.labels}
		if got := p.ForPod(&facts, annotation.Parse(nil)).Rule(); got != tt.want || p.LacksNamespaceLabels(&facts) != tt.lacks {
			t.Errorf("%+v: rule %q", tt, got)
		}
	}
}

// TestKnownLabels verifies that labels with the keys of rules are kept, also those that the namespace does not have.
func TestKnownLabels(t *testing.T) {
	keys := []string{"contract", "plan"}
	gold, other := "gold", "gold"
	known := KnownLabels(map[string]string{"plan": "gold", "team": "a"}, keys)
	if want := (NamespaceLabels{"contract": nil, "plan": &other}); !known.Equal(want) || !known.Know(keys) {
		t.Errorf("%v", known)
	}
	for name, labels := range map[string]NamespaceLabels{
		"unknown": nil, "less": {"plan": &gold}, "another key": {"contract": nil, "team": &gold}, "absent": {"contract": nil, "plan": nil}, "present": {"contract": &gold, "plan": &gold},
	} {
		if known.Equal(labels) || labels.Equal(known) {
			t.Errorf("%s: equal", name)
		}
	}
	if !NamespaceLabels(nil).Equal(nil) || NamespaceLabels(nil).Equal(NamespaceLabels{}) || NamespaceLabels(nil).Know([]string{}) || !NamespaceLabels(nil).Know(nil) {
		t.Error("unknown labels")
	}
	if KnownLabels(nil, keys) != nil || KnownLabels(map[string]string{}, nil) != nil || KnownLabels(map[string]string{}, []string{}) == nil {
		t.Error("nil labels or keys")
	}
}

// TestNamespaceKeysBound verifies that the labels by which rules select need a bounded size, each counted once.
func TestNamespaceKeysBound(t *testing.T) {
	selectors := func(keys int) string {
		var rules []string
		for i := range keys {
			for _, rule := range []string{"a", "b"} {
				rules = append(rules, fmt.Sprintf("{name: %s-%d, match: {namespaceSelector: {matchLabels: {key-%d: v}}}}", rule, i, i))
			}
		}
		return "rules: [" + strings.Join(rules, ", ") + "]"
	}
	parsed(t, selectors(25))
	_, err := ParseFile([]byte(fileHead + selectors(40)))
	if err == nil || !strings.Contains(err.Error(), "too many labels in namespaceSelector: 40 keys need 2990 bytes in a record (maximum 2048)") {
		t.Errorf("40 keys: %v", err)
	}
}
