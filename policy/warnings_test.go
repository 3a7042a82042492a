package policy

import (
	"slices"
	"testing"
)

// TestWarnings verifies that a budget behind one for all namespaces is found, and a list of handlers without
// that of pods without a RuntimeClass. TestUnreached is about rules.
func TestWarnings(t *testing.T) {
	const (
		limits   = ", limits: ['* wbps=1Gi']}"
		handlers = `hostKernelHandlers of the policy lacks "": pods without a RuntimeClass count as pods on another kernel, so they get no class and count for no budget`
	)
	for text, want := range map[string][]string{
		"": nil,
		"budgets: [{namespaces: ['*']" + limits + ", {namespaces: [kube-system]" + limits + "]":                          {"budgets[1] of the policy and those after it are never reached: budgets[0] matches all namespaces"},
		"budgets: [{namespaces: [a]" + limits + ", {namespaces: [b, '*']" + limits + ", {namespaces: [c]" + limits + "]": {"budgets[2] of the policy and those after it are never reached: budgets[1] matches all namespaces"},
		"budgets: [{namespaces: [a, 'b*']" + limits + ", {namespaces: ['*']" + limits + "]":                              nil,
		"hostKernelHandlers: [myrunc]":                              {handlers},
		"hostKernelHandlers: []":                                    {handlers},
		"hostKernelHandlers: ['', myrunc]":                          nil,
		"rules: [{name: a}, {name: b}]\nhostKernelHandlers: [runc]": {"rule b of the policy and those after it are never reached: rule a matches all pods", handlers},
	} {
		if got := parsed(t, text).Warnings(); !slices.Equal(got, want) {
			t.Errorf("%s:\n got %q\nwant %q", text, got, want)
		}
	}
	if got := Default().Warnings(); len(got) > 0 {
		t.Errorf("the built-in policy: %q", got)
	}
}
