package node

import (
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/plugin/podfacts"
)

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
	b.SetLive(sb.UID, &podfacts.Facts{Namespace: sb.Namespace, Name: sb.Name, Annotations: map[string]string{}, Labels: map[string]string{"tier": "gold"}})
	b.pass(t.Context())
	if got := b.Budgets(); len(got) != 1 || got[0].Granted > 30*mi {
		t.Errorf("%+v", got)
	}
}
