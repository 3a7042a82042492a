package node

import (
	"maps"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/budget"
)

// modelBudget is a budget for the namespace of all pods. Few of them fit into it.
const modelBudget = "budgets: [{namespaces: [ns], limits: ['* wbps=8Mi']}]\n"

// checkBudget compares the sums that the plugin reports with those of the model. It compares nothing if a sum
// depends on earlier events.
func (r *modelRuntime) checkBudget(known modelKnown, report func(string, ...any)) {
	b := r.policy.BudgetFor("ns")
	want, got := map[blkio.Address]blkio.Amount{}, map[blkio.Address]blkio.Amount{}
	for _, u := range r.plugin.Budgets() {
		if u.Undecided > 0 {
			return
		}
		got[blkio.Address{Key: u.Key, Dev: u.Disk.Dev}] = u.Granted
	}
	for _, p := range r.pods {
		if p != nil && b != nil && (known.late[p.uid] || !r.addGranted(p, b, known, want)) {
			return
		}
	}
	if !maps.Equal(want, got) {
		report("the pods of the namespace are granted %v, want %v", got, want)
	}
}

// checkSums verifies that the sums that the plugin keeps, and its indexes, are those of its pods. No wrong one may be left behind.
func (r *modelRuntime) checkSums() {
	if err := r.now().checkSums(); err != nil {
		r.t.Error(err)
	}
}

// asksMore reports whether a budget may have no room for what a container is granted by a request, because its sandbox is
// granted less by the request that counts, or that is not known.
func (r *modelRuntime) asksMore(p *modelPod, sb *modelSandbox, facts policy.Container, by *policy.Pod) bool {
	b := by.Budget()
	if b == nil {
		return false
	}
	now := r.ruledBy(p, *sb.asked)
	former, _ := now.Container(facts)
	next, _ := by.Container(facts)
	formerTotal, _ := now.Total([]policy.Container{facts})
	nextTotal, _ := by.Total([]policy.Container{facts})
	if r.raised() || len(former.Claims)+len(next.Claims) > 0 || !now.KnowsVolumes() || !by.KnowsVolumes() {
		return true // what was granted before may stay
	}
	if former.Ignored || len(former.Errors)+len(formerTotal.Errors) > 0 {
		return true
	}
	if p.spec.moves && len(formerTotal.Settings) > 0 {
		return true // the limit of the pod on the disk of its former data ends with the edit, as if it were lifted
	}
	more, before := false, map[blkio.Address]blkio.Amount{}
	former.Charges(b, func(at blkio.Address, amount blkio.Amount) { before[at] = amount })
	next.Charges(b, func(at blkio.Address, amount blkio.Amount) { more = more || amount > before[at] })
	for _, s := range formerTotal.Settings {
		now, found := nextTotal.Settings.Get(s.Address)
		more = more || !found || now.Amount > s.Amount
	}
	return more
}

// addGranted adds what a pod is granted. It returns false if that depends on earlier events: limits of a former
// policy, a sandbox that was replaced before its containers ended, or a created container that the plugin has
// forgotten because its pod has no cgroup yet.
func (r *modelRuntime) addGranted(p *modelPod, b *policy.NamespaceBudget, known modelKnown, sums map[blkio.Address]blkio.Amount) bool {
	own := map[blkio.Address]blkio.Amount{}
	var facts []policy.Container
	for _, sb := range p.sandboxes {
		for _, c := range sb.containers {
			if c.state == modelExited {
				continue
			}
			if c.state == modelCreated && c.below {
				return false // what was mounted since its creation is found at its start
			}
			d, _ := r.ruledIn(p, c.sandbox).Container(r.facts(p, c)) // what is lent to it counts for the lender
			if _, isKnown := known.containers[c.id]; !isKnown || r.raised() || r.keepsClaims(p, c) || d.Ignored || len(d.Errors) > 0 || sb != p.current() || p.past {
				return false
			}
			facts = append(facts, r.facts(p, c))
			d.Charges(b, func(at blkio.Address, amount blkio.Amount) { own[at] = budget.Plus(own[at], amount) })
		}
	}
	total, _ := r.ruled(p).Total(facts)
	for at, sum := range own {
		if s, found := total.Settings.Get(at); found {
			sum = min(sum, s.Amount)
		}
		sums[at] = budget.Plus(sums[at], sum)
	}
	return true
}
