package policy

import (
	"slices"
	"strings"
	"testing"
)

// TestWarnings verifies that a budget behind one for all namespaces is found, and a list of handlers without
// that of pods without a RuntimeClass. TestUnreached is about rules.
func TestWarnings(t *testing.T) {
	const (
		limits   = ", limits: ['* wbps=1Gi']}"
		system   = `a budget of the policy rejects containers without a limit in kube-system and nri-blkio (put first: {namespaces: [kube-system, nri-blkio], limits: ["* wbps=max"]})`
		bounds   = "bounds.max of the policy bounds only what annotations request: without a rule with a class, pods without annotations have no limit"
		handlers = `hostKernelHandlers of the policy lacks "": pods without a RuntimeClass count as pods on another kernel, so they get no class and count for no budget`
	)
	for text, want := range map[string][]string{
		"": nil,
		"budgets: [{namespaces: ['*']" + limits + ", {namespaces: [kube-system]" + limits + "]":                          {"budgets[1] of the policy and those after it are never reached: budgets[0] matches all namespaces", system},
		"budgets: [{namespaces: [a]" + limits + ", {namespaces: [b, '*']" + limits + ", {namespaces: [c]" + limits + "]": {"budgets[2] of the policy and those after it are never reached: budgets[1] matches all namespaces", system},
		"budgets: [{namespaces: [a, 'b*']" + limits + ", {namespaces: ['*']" + limits + "]":                              {system},
		"budgets: [{namespaces: [kube-system]" + limits + "]":                                                            {strings.ReplaceAll(strings.Replace(system, " and nri-blkio", "", 1), ", nri-blkio]", "]")},
		"budgets: [{namespaces: [kube-*, nri-blkio], limits: ['* wbps=max']}, {namespaces: ['*']" + limits + "]":         nil,
		"classes: {a: {weight: 1}}\nrules: [{name: a, class: a}]\nbudgets: [{namespaces: ['*']" + limits + "]":           nil,
		"bounds: {max: ['* wbps=1Gi']}":                                            {bounds},
		"rules: [{name: a, bounds: {max: ['* wbps=1Gi']}}]":                        {bounds},
		"bounds: {max: ['* wbps=1Gi']}\nclasses: {a: {weight: 1}}":                 {bounds},
		"bounds: {weight: {max: 50}, min: ['* wbps=1Mi']}":                         nil,
		"bounds: {max: ['* wbps=1Gi']}\nbudgets: [{namespaces: [t]" + limits + "]": nil,
		"hostKernelHandlers: [myrunc]":                                             {handlers},
		"hostKernelHandlers: []":                                                   {handlers},
		"hostKernelHandlers: ['', myrunc]":                                         nil,
		"rules: [{name: a}, {name: b}]\nhostKernelHandlers: [runc]":                {"rule b of the policy and those after it are never reached: rule a matches all pods", handlers},
	} {
		if got := parsed(t, text).Warnings(); !slices.Equal(got, want) {
			t.Errorf("%s:\n got %q\nwant %q", text, got, want)
		}
	}
	if got := Default().Warnings(); len(got) > 0 {
		t.Errorf("the built-in policy: %q", got)
	}
}

// TestJoinable verifies that a rule is found which tenants can join by labels of pods, to leave the stricter rule of their
// namespaces.
func TestJoinable(t *testing.T) {
	const class = "reserve: {system: 10%}\nclasses: {c: {weight: 1}, g: {guarantee: 5%}}\n"
	for rules, isJoinable := range map[string]bool{
		"{name: a, match: {podSelector: {matchLabels: {a: b}}}}, {name: t, match: {namespaces: ['t-*']}, class: c, bounds: {max: ['* wbps=1Mi']}}":                                true,
		"{name: a, match: {podSelector: {matchLabels: {a: b}}}, bounds: {max: ['* wbps=2Mi']}}, {name: t, match: {namespaces: ['t-*']}, class: c, bounds: {max: ['* wbps=1Mi']}}": true,
		"{name: a, match: {podSelector: {matchLabels: {a: b}}}, bounds: {max: ['* wbps=1Mi']}}, {name: t, match: {namespaces: ['t-*']}, class: c, bounds: {max: ['* wbps=1Mi']}}": false,
		"{name: a, match: {podSelector: {matchLabels: {a: b}}}, annotations: ignore}, {name: t, match: {namespaces: ['t-*']}, class: c, bounds: {max: ['* wbps=1Mi']}}":           false,
		"{name: a, match: {podSelector: {matchLabels: {a: b}}}}, {name: t, match: {namespaceSelector: {}}, class: c, annotations: reject}":                                        true,
		"{name: a, match: {podSelector: {matchLabels: {a: b}}}, bounds: {weight: {max: 200}}}, {name: t, match: {namespaces: ['t-*']}, class: c}":                                 true,
		"{name: a, match: {podSelector: {matchLabels: {a: b}}}}, {name: t, match: {namespaces: ['t-*']}, class: c}":                                                               false,
		"{name: a, match: {podSelector: {matchLabels: {a: b}}}, class: g}, {name: t, match: {namespaces: ['t-*']}, class: c}":                                                     true,
		"{name: a, match: {namespaces: ['t-*'], podSelector: {matchLabels: {a: b}}}, class: g}, {name: t, match: {namespaces: ['t-*']}, class: g}":                                false,
		"{name: a, match: {podSelector: {matchLabels: {a: b}}}}, {name: t, class: c, bounds: {max: ['* wbps=1Mi']}}":                                                              false,
		"{name: a, match: {namespaces: ['s'], podSelector: {matchLabels: {a: b}}}}, {name: t, match: {namespaces: ['t-*']}, class: c, bounds: {max: ['* wbps=1Mi']}}":             false,
		"{name: a, match: {namespaces: ['t-*'], podSelector: {matchLabels: {a: b}}}}, {name: t, match: {namespaces: ['t-*']}, class: c, bounds: {max: ['* wbps=1Mi']}}":           true,
		"{name: a, match: {namespaceSelector: {}, podSelector: {matchLabels: {a: b}}}}, {name: t, match: {namespaces: ['t-*']}, class: c, bounds: {max: ['* wbps=1Mi']}}":         false,
		"{name: t, match: {namespaces: ['t-*']}, class: c, bounds: {max: ['* wbps=1Mi']}}, {name: a, match: {podSelector: {matchLabels: {a: b}}}}":                                false,
	} {
		var want []string
		if isJoinable {
			want = []string{"rule a of the policy allows more than rule t after it: the author of a pod can join it by labels (match trusted namespaces in it)"}
		}
		if got := parsed(t, class+"rules: ["+rules+"]").Warnings(); !slices.Equal(got, want) {
			t.Errorf("%s:\n got %q\nwant %q", rules, got, want)
		}
	}
}

// TestJoinableGuarantee verifies that a rule is found by which labels alone give a guarantee in any namespace, also without a later rule.
func TestJoinableGuarantee(t *testing.T) {
	const class = "reserve: {system: 10%}\nclasses: {c: {weight: 1}, g: {guarantee: 5%}}\n"
	for rule, isJoinable := range map[string]bool{
		"{name: a, match: {podSelector: {matchLabels: {a: b}}}, class: g}":                        true,
		"{name: a, match: {namespaces: ['*'], podSelector: {matchLabels: {a: b}}}, class: g}":     true,
		"{name: a, match: {podSelector: {matchLabels: {a: b}}}, class: c}":                        false,
		"{name: a, match: {namespaces: [prod], podSelector: {matchLabels: {a: b}}}, class: g}":    false,
		"{name: a, match: {namespaceSelector: {}, podSelector: {matchLabels: {a: b}}}, class: g}": false,
		"{name: a, class: g}": false,
	} {
		var want []string
		if isJoinable {
			want = []string{"rule a of the policy gives the guarantee of class g in each namespace: the author of a pod can join it by labels (match trusted namespaces in it)"}
		}
		if got := parsed(t, class+"rules: ["+rule+"]").Warnings(); !slices.Equal(got, want) {
			t.Errorf("%s:\n got %q\nwant %q", rule, got, want)
		}
	}
}
