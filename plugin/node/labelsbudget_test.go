package node

import (
	"strings"
	"testing"
)

// TestDifferences verifies that an error names what was edited.
func TestDifferences(t *testing.T) {
	former := newRequest(FactsOf("prod", map[string]string{"tier": "a"}, "", ""), annotationsOf(limitsKey+"containers", "x"))
	long := newRequest(former.facts, annotationsOf(limitsKey+"containers", strings.Repeat("x", 40<<10)))
	other, labels, claims := annotationsOf(limitsKey+"containers", "y"), map[string]string{"tier": "b"}, claimsOf("wbps=1Mi")
	for _, tt := range []struct {
		next, former *request
		want         string
	}{
		{former.with(other), former, "annotations"},
		{former.withLabels(labels), former, "labels"},
		{former.withLabels(labels).with(other), former, "annotations and labels"},
		{former.with(other).withLabels(labels), former, "annotations and labels"},
		{long.withLabels(labels), long, "labels"},
		{former.changed(former.facts.Labels, claims), former, "limits of a claim"},
		{long.changed(long.facts.Labels, claims), long, "limits of a claim"},
		{former.changed(labels, claims), former, "labels and limits of a claim"},
		{former.changed(former.facts.Labels, claims).with(other), former, "annotations and limits of a claim"},
		{long.with(other), long, "annotations"},
	} {
		if got := tt.next.differences(tt.former).String(); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}

// TestLabelsMeetReload verifies that labels do not count at once in a namespace that has a budget by the policy in force, although
// the containers are still decided by the former policy.
func TestLabelsMeetReload(t *testing.T) {
	const classes = `rules:
- {name: gold, match: {podSelector: {matchLabels: {tier: gold}}}, class: silver}
- {name: batch, match: {podSelector: {matchLabels: {tier: batch}}}, class: bronze}
`
	b := newBudgetNode(t, classes)
	sb := tenant("1", "")
	sb.Labels = map[string]string{"tier": "batch"}
	b.run(sb, member(sb, "a"))
	b.Reload(rules(t, strings.Replace(tenantBudget, "200Mi", "30Mi", 1)+classes))
	b.SetLive(sb.UID, &Live{Namespace: sb.Namespace, Name: sb.Name, Labels: map[string]string{"tier": "gold"}})
	b.pass(t.Context())
	if got := b.Budgets(); len(got) != 1 || got[0].Granted > 30*mi {
		t.Errorf("%+v", got)
	}
}
