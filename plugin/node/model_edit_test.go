package node

import (
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// modelEdits are the annotations of a pod at the API server. They are guarded by modelRuntime.mu.
type modelEdits struct {
	annotations map[string]string
	// documents are those that the plugin was sent, the newest last. hasDocument is true while it has the newest one.
	documents   []map[string]string
	hasDocument bool
	edited      bool // the annotations are not those of the pod's creation
	unsettled   bool // the plugin may be about to decide by other annotations
}

// document is the newest one.
func (e *modelEdits) document() map[string]string { return e.documents[len(e.documents)-1] }

// ownOf returns the annotations of this domain, as a document has them.
func ownOf(annotations map[string]string) map[string]string {
	out := maps.Clone(annotations)
	maps.DeleteFunc(out, func(key, _ string) bool { return !annotation.IsKey(key) })
	return out
}

// edit edits the annotations of a pod: to others, to invalid ones, or to none. Or the plugin loses the document.
func (r *modelRuntime) edit(p *modelPod, rng *rand.Rand) {
	next := newModelSpec(p.slot, rng).annotations
	switch rng.IntN(6) {
	case 0:
		next = map[string]string{}
	case 1:
		next[limitsKey+[]string{"containers", "container.b", "pod-total"}[rng.IntN(3)]] = []string{"rootfs wpbs=1Mi", "/data wbps=1", "* wbps"}[rng.IntN(3)]
	case 2:
		r.note("%s: document lost", p.name)
		r.forgetDocument(p)
		return
	}
	runs := len(r.in(p.current(), modelRunning)) > 0
	r.mu.Lock()
	p.begun = p.begun && runs // its containers may have begun while it was a bystander
	p.annotations, p.edited, p.unsettled, p.hasDocument = next, true, true, true
	p.documents = append(p.documents, ownOf(next))
	n := r.plugin
	live := p.live()
	r.mu.Unlock()
	r.note("%s: edited to %v", p.name, live.Annotations)
	n.SetLive(p.uid, live)
}

func (p *modelPod) live() *Live {
	return &Live{Namespace: "ns", Name: p.name, Annotations: p.document()}
}

func (r *modelRuntime) forgetDocument(p *modelPod) {
	r.mu.Lock()
	n := r.plugin
	p.hasDocument = false
	r.mu.Unlock()
	n.SetLive(p.uid, nil)
}

// tellAll has a new plugin read all documents. The caller holds mu.
func (r *modelRuntime) tellAll(n *Node) {
	for _, p := range r.pods {
		if p != nil && p.hasDocument {
			n.SetLive(p.uid, p.live())
		}
	}
}

// askedIn returns the annotations by which the plugin decides about a sandbox.
func (p *modelPod) askedIn(sb *modelSandbox) map[string]string {
	switch {
	case sb.asked != nil:
		return sb.asked
	case p.hasDocument:
		return p.document()
	}
	return sb.reported
}

// counting returns the sandbox whose annotations count for the pod as a whole: the newest one in which a container runs.
func (p *modelPod) counting() *modelSandbox {
	for _, sb := range slices.Backward(p.sandboxes) {
		if slices.ContainsFunc(sb.containers, func(c *modelContainer) bool { return c.state == modelRunning }) {
			return sb
		}
	}
	return p.current()
}

// isOutdated reports whether a sandbox of an edited pod has a later one. A restarted plugin does not know which one is
// newer, and has the edit of one of them. The kubelet ends the containers of a sandbox before it makes the next one.
func (p *modelPod) isOutdated(sb *modelSandbox) bool { return p.edited && sb != p.current() }

// isMixed reports whether a container runs in a sandbox that isOutdated.
func (p *modelPod) isMixed() bool {
	return slices.ContainsFunc(p.sandboxes, func(sb *modelSandbox) bool {
		return p.isOutdated(sb) && slices.ContainsFunc(sb.containers, func(c *modelContainer) bool { return c.state == modelRunning })
	})
}

// keepsTotal reports whether the limit of a pod as a whole may be one that former annotations granted: those in force
// reject it, and a restarted plugin does not know that the record is by others.
func (r *modelRuntime) keepsTotal(p *modelPod, running []*modelContainer) bool {
	if !p.edited {
		return false
	}
	var facts []policy.Container
	for _, c := range running {
		facts = append(facts, p.spec.facts(c.name, c.data))
	}
	total, err := r.ruled(p).Total(facts)
	return err != nil || len(total.Errors) > 0
}

// settle notes by which annotations the plugin decides. These are the newest ones, unless they would reject a container
// that it knows. Then they are others that the pod has or had.
func (r *modelRuntime) settle(p *modelPod, known modelKnown, report func(string, ...any)) {
	p.unsettled = false
	for _, sb := range p.sandboxes {
		asked, isKnown := known.requests[sb.id]
		if !isKnown { // whether the document counts depends on the containers that it has when it becomes known
			sb.asked = nil
			p.unsettled = p.unsettled || p.hasDocument && !maps.Equal(p.document(), ownOf(sb.reported))
			continue
		}
		if !maps.Equal(asked, sb.asked) {
			for _, c := range sb.containers {
				c.granted = nil
			}
		}
		sb.asked = asked
		isKnownToHave := func(c *modelContainer) bool { _, has := known.containers[c.id]; return has }
		if !slices.ContainsFunc(sb.containers, isKnownToHave) && !maps.Equal(asked, ownOf(sb.reported)) {
			p.unsettled = true // they may reject the next container, which may be the first one
		}
		isAsked := func(a map[string]string) bool { return maps.Equal(a, asked) }
		if !isAsked(ownOf(sb.reported)) && !slices.ContainsFunc(p.documents, isAsked) {
			report("%s: sandbox %s has the annotations %v, which it never had", p.name, sb.id, asked)
		}
		if p.hasDocument && !isAsked(p.document()) {
			p.unsettled = true
			if !r.rejects(p, sb) {
				report("%s: sandbox %s has the annotations %v, and nothing rejects %v: %v", p.name, sb.id, asked, p.document(), known.rejected[sb.id])
			}
		}
	}
}

// rejects reports whether the newest annotations of a pod reject one of its containers.
func (r *modelRuntime) rejects(p *modelPod, sb *modelSandbox) bool {
	by := r.ruledBy(p, p.document())
	for _, err := range by.Check() {
		if refusesEdit(by, err) {
			return true
		}
	}
	for _, c := range sb.containers {
		if c.state == modelExited {
			continue
		}
		facts := p.spec.facts(c.name, c.data)
		d, err := by.Container(facts)
		total, totalErr := by.Total([]policy.Container{facts})
		for _, e := range append(d.Errors, total.Errors...) {
			if refusesEdit(by, e) {
				return true
			}
		}
		if refusesEdit(by, err) || refusesEdit(by, totalErr) || r.asksMore(p, sb, facts, by) {
			return true
		}
	}
	return false
}
