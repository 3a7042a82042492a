package node

import (
	"testing"

	"github.com/nri-blkio/nri-blkio/policy"
)

// budgets changes a policy to one with a budget for pods such as the agreement's.
func budgets(limits, more string) func(p *policy.Policy) {
	return func(p *policy.Policy) {
		changed, err := policy.ParseFile([]byte("apiVersion: blkio.noderesource.dev/v1alpha1\nkind: NodePolicy\n" +
			"classes: {one: {limits: ['* wbps=6Mi']}}\nbudgets: [{namespaces: [prod], limits: ['" + limits + "']}]\n" + more))
		if err != nil {
			panic(err)
		}
		*p = *changed
	}
}

// TestCheckAgreesOnBudgets verifies that check rejects the same containers of a manifest as run, if their
// namespace has no other pods: those that exceed its budget.
func TestCheckAgreesOnBudgets(t *testing.T) {
	all := []string{"a", "b", "init", "proxy"}
	for _, tt := range []agreementTest{
		{name: "room", annotations: keys("limits/containers", "* wbps=6Mi"), change: budgets("* wbps=18Mi", ""), pod: []string{"io.max 254:0 wbps=18874368", "io.max 254:16 wbps=18874368"}},
		{name: "room for three, of which one has ended", annotations: keys("limits/containers", "* wbps=6Mi"), change: budgets("* wbps=17Mi", ""), refused: []string{"b"}},
		{name: "too large", annotations: keys("limits/container.a", "* wbps=30Mi", "limits/containers", "* wbps=1Mi"), change: budgets("* wbps=17Mi", ""), refused: []string{"a"}},
		{name: "no limit", change: budgets("* wbps=17Mi", ""), refused: all},
		{name: "a limit for one disk", annotations: keys("limits/containers", "/data wbps=1Mi"), change: budgets("* wbps=17Mi", ""), refused: all},
		{name: "reads of what is read-only", annotations: keys("limits/containers", "/data rbps=1Mi; rootfs rbps=1Mi"), change: budgets("* rbps=17Mi", "")},
		{name: "the pod as a whole", annotations: keys("limits/pod-total", "* wbps=17Mi"), change: budgets("* wbps=17Mi", ""), pod: []string{"io.max 254:0 wbps=17825792", "io.max 254:16 wbps=17825792"}},
		{name: "the pod as a whole is too large", annotations: keys("limits/pod-total", "* wbps=18Mi"), change: budgets("* wbps=17Mi", ""), refused: all},
		{name: "the sum reaches the pod as a whole", annotations: keys("limits/containers", "* wbps=10Mi", "limits/pod-total", "* wbps=18Mi"), change: budgets("* wbps=17Mi", ""), refused: []string{"a", "b"}},
		{name: "a class", change: budgets("* wbps=12Mi", "rules: [{name: r, class: one}]"), refused: []string{"b"}},
		{name: "ignored", annotations: keys("limits/containers", "* wbps=10Mi"), change: budgets("* wbps=17Mi", "onError: {invalid: ignore}")},
		{
			name: "another error first", annotations: keys("limits/container.a", "/mem wbps=1Mi", "limits/containers", "* wbps=18Mi"),
			change: budgets("* wbps=17Mi", ""), refused: all,
		},
	} {
		t.Run(tt.name, tt.run)
	}
}
