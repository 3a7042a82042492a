package node

import "testing"

// TestLabelsBudget verifies that changed labels cannot take more than the budget of the namespace has, nor by a restart of the
// plugin.
func TestLabelsBudget(t *testing.T) {
	const pol = tenantBudget + `rules:
- {name: batch, match: {podSelector: {matchLabels: {tier: batch}}}, class: bronze}
- {name: gold, match: {podSelector: {matchLabels: {tier: gold}}}, class: silver}
`
	b := newBudgetNode(t, pol)
	var sandboxes []*Sandbox
	var containers []*Container
	for _, name := range []string{"1", "2", "3", "4", "5", "6", "7"} {
		sb := tenant(name, "")
		sb.Labels = map[string]string{"tier": "batch"}
		c := member(sb, "a")
		b.run(sb, c)
		c.State = Running
		sandboxes, containers = append(sandboxes, sb), append(containers, c)
	}
	label := func(tier string) {
		for _, sb := range sandboxes {
			b.SetLive(sb.UID, &Live{Namespace: sb.Namespace, Name: sb.Name, Labels: map[string]string{"tier": tier}})
		}
	}
	want := func(when string) {
		t.Helper()
		b.pass(t.Context())
		if got := b.Budgets(); len(got) != 1 || got[0].Granted != 200*mi { // 20 Mi of four pods, 40 Mi of three
			t.Errorf("%s: %+v", when, got)
		}
	}
	label("gold")
	want("changed")
	label("none")
	want("without a class")
	label("gold")
	b.restart(pol)
	label("gold")
	b.Synchronize(sandboxes, containers)
	want("restarted")
}
