package node

import (
	"fmt"
	"slices"
	"time"
)

// modelKnown is the plugin's state, as far as the model has an opinion of it.
type modelKnown struct {
	sandboxes  []string
	containers map[string]bool       // whether it runs, by ID
	bystanding map[string]bool       // containers of pods of no concern
	left       []string              // data that ended containers left
	written    int                   // cgroups of pods that have left
	requests   map[string]modelFacts // the facts by which it decides, by sandbox
	rejected   map[string]error      // why it rejects others, by sandbox
	late       map[string]bool       // pods with a live container for which the budget had no room, by their UID
}

// leaves notes what a plugin at rest should not have.
func (k *modelKnown) leaves(what string, count int) {
	if count != 0 {
		k.left = append(k.left, fmt.Sprintf("%d %s", count, what))
	}
}

// known reads the plugin's state. Only this function of the model does that.
func (n *Node) known() modelKnown {
	out := modelKnown{containers: map[string]bool{}, bystanding: map[string]bool{}, requests: map[string]modelFacts{}, rejected: map[string]error{}, late: map[string]bool{}}
	s := n.state.Lock()
	defer n.state.Unlock()
	for id, pod := range s.pods {
		out.sandboxes = append(out.sandboxes, id)
		if !pod.group.in(s).isConcerned() {
			for _, c := range pod.containers {
				out.bystanding[c.id] = true
			}
			continue
		}
		now := pod.request.now.Load()
		out.requests[id] = modelFacts{now.Annotations, now.Labels["tier"], now.NamespaceLabels, now.Volumes}
		out.rejected[id] = pod.edit.err
		for _, c := range pod.containers {
			out.containers[c.id] = c.mayRun()
			out.late[pod.uid] = out.late[pod.uid] || c.isLive() && c.isLate()
		}
	}
	slices.Sort(out.sandboxes)
	out.written = len(s.written)
	hasLate := false // the budget is asked again about these pods, later
	for _, g := range s.groups {
		out.leaves("pods without a sandbox", max(0, 1-len(g.pods)))
		for id := range g.drain.Open() {
			if !out.containers[id] && !out.bystanding[id] {
				out.leaves("container not written out: "+id, 1)
			}
		}
		if g.token.IsHeld() {
			out.leaves("writers of a pod", 1)
		}
		if hasLate = hasLate || g.hasLate(); g.retry.pause > 0 && !g.hasLate() {
			out.leaves("retries of a pod", 1)
		}
		if g.isPlanned(n.policy.Load(), n.layers.Current()) && (!s.isSteady(g) || !g.isResolved(g.plan.policy, g.plan.layers) || !slices.Equal(g.covering(), g.plan.covering)) {
			out.leaves("groups that a pass only compares, although more is to be done", 1)
		}
		unseen := g.unseen(time.Now())
		out.leaves(fmt.Sprint("notices of these kinds that no look has found: ", unseen), len(unseen))
	}
	for _, ns := range s.namespaces {
		if len(ns.pods) == 0 {
			out.leaves("namespaces without a pod", 1)
		}
	}
	if next, waits := s.queue.Next(); waits && (!hasLate || !next.After(time.Now())) {
		out.leaves("turns of pods", 1)
	}
	out.leaves("events that no phase allows for", s.unexpected)
	out.leaves("calls of the runtime", n.inFlight.calls.Count())
	out.leaves("calls of the reconciler", n.inFlight.passes.Count())
	out.leaves("pods being tidied up", len(n.exits.tidier.Turn))
	syncs, waiting := n.exits.writeout.Syncs.Pending()
	out.leaves("syncs under way, or waited for", syncs+waiting)
	return out
}

// unseen returns the kinds of the notices that another look at a group would find, or not find any more, although none is due.
func (g *group) unseen(now time.Time) (kinds []int) {
	if !now.Before(g.told.Next) {
		return nil
	}
	listed := map[noticeKey]bool{}
	for _, x := range g.notices() {
		if listed[x.Key] = true; g.told.Known[x.Key].Since.IsZero() || x.Value != g.told.Known[x.Key].Value && x.Patience == 0 {
			kinds = append(kinds, int(x.Key.kind))
		}
	}
	for key := range g.told.Known {
		if !listed[key] {
			kinds = append(kinds, int(key.kind))
		}
	}
	return kinds
}
