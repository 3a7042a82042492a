package node

import "testing"

// TestLabelsBudget shows that changed labels take more than the budget of the namespace has: nothing asks it.
func TestLabelsBudget(t *testing.T) {
	b := newBudgetNode(t, tenantBudget+`rules:
- {name: batch, match: {podSelector: {matchLabels: {tier: batch}}}, class: bronze}
- {name: gold, match: {podSelector: {matchLabels: {tier: gold}}}, class: silver}
`)
	for _, name := range []string{"1", "2", "3", "4", "5", "6", "7"} {
		sb := tenant(name, "")
		sb.Labels = map[string]string{"tier": "batch"}
		b.run(sb, member(sb, "a"))
	}
	for _, tier := range []string{"gold", "none"} {
		for _, name := range []string{"1", "2", "3", "4", "5", "6", "7"} {
			b.SetLive("u"+name, &Live{Namespace: "tenant-a", Name: name, Labels: map[string]string{"tier": tier}})
		}
		b.pass(t.Context())
		for _, u := range b.Budgets() {
			t.Logf("%s: %+v", tier, u)
		}
		if got := b.overBudget(); got > 0 {
			t.Errorf("tier=%s: %v namespaces are over their budget", tier, got)
		}
	}
}
