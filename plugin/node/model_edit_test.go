package node

import (
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/nri-blkio/nri-blkio/plugin/podfacts"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// modelFacts are the facts about a pod by which the plugin decides.
type modelFacts struct {
	annotations map[string]string // those of this domain count
	tier        string            // a label of the pod; "" for none
	namespace   policy.NamespaceLabels
	volumes     *policy.Volumes
}

func (f modelFacts) equal(o modelFacts) bool {
	return maps.Equal(f.annotations, o.annotations) && f.tier == o.tier && f.namespace.Equal(o.namespace) && f.volumes.Equal(o.volumes)
}

// withoutVolumes returns the facts as if the volumes were not known.
func (f modelFacts) withoutVolumes() modelFacts {
	f.volumes = nil
	return f
}

// modelDocument has what the API server knew about a pod at some time. It has all annotations and labels.
type modelDocument struct {
	annotations map[string]string // of this domain
	tier        string            // a label of the pod; "" for none
	team        string            // a label of its namespace; "" for none
	claim       string            // the limits of its claim, see modelVolumesOf
}

func modelLabels(key, value string) map[string]string {
	if value == "" {
		return map[string]string{}
	}
	return map[string]string{key: value}
}

// namespace returns the labels of the namespace by which a policy selects.
func (d modelDocument) namespace(pol *policy.Policy) policy.NamespaceLabels {
	return policy.KnownLabels(modelLabels("team", d.team), pol.NamespaceKeys())
}

// modelEdits are the annotations, labels and limits of the claim of a pod at the API server. They are guarded by modelRuntime.mu.
type modelEdits struct {
	annotations map[string]string
	tier        string
	claim       string // its limits, see modelVolumesOf
	claimed     bool   // they were not empty at some time
	// documents are those that the plugin was sent, the newest last. hasDocument is true while it has the newest one.
	documents   []modelDocument
	hasDocument bool
	edited      bool // the annotations or the label are not those of the pod's creation
	unsettled   bool // the plugin may be about to decide by other facts
}

// document is the newest one.
func (e *modelEdits) document() modelDocument { return e.documents[len(e.documents)-1] }

// ownOf returns the annotations of this domain, as a document has them.
func ownOf(annotations map[string]string) map[string]string {
	out := map[string]string{}
	maps.Copy(out, annotations)
	maps.DeleteFunc(out, func(key, _ string) bool { return !annotation.IsKey(key) })
	return out
}

// edit edits a pod: its label, or its annotations to others, to invalid ones, or to none. Or the plugin loses the document.
func (r *modelRuntime) edit(p *modelPod, rng *rand.Rand) {
	annotations, tier := newModelSpec(p.slot, rng).annotations, p.tier
	switch rng.IntN(15) {
	case 0:
		annotations = map[string]string{}
	case 1:
		annotations[[]string{bareLimits, limitsKey + "containers", limitsKey + "container.b", limitsKey + "pod-total"}[rng.IntN(4)]] = []string{"rootfs wpbs=1Mi", "/data wbps=1", "* wbps"}[rng.IntN(3)]
	case 2:
		r.note("%s: document lost", p.name)
		r.forgetDocument(p)
		return
	case 3, 4, 5:
		annotations, tier = p.annotations, []string{"", "a", "b", "c"}[rng.IntN(4)]
	case 6, 7, 8, 9, 10, 11:
		r.editClaim(p, rng)
		return
	}
	r.note("%s: edited to tier %q, %v", p.name, tier, annotations)
	r.tell(func() {
		p.annotations, p.tier, p.edited = annotations, tier, true
		r.write(p, false)
	}, p)
}

// editNamespace changes the label of the namespace, which the documents of all pods have.
func (r *modelRuntime) editNamespace(rng *rand.Rand) {
	team := []string{"", "red", "blue"}[rng.IntN(3)]
	r.note("the namespace has the team %q", team)
	r.mu.Lock()
	pods := slices.DeleteFunc(slices.Clone(r.pods), func(p *modelPod) bool { return p == nil || !p.hasDocument })
	r.mu.Unlock()
	r.tell(func() {
		r.team = team
		for _, p := range pods {
			if p.hasDocument {
				r.write(p, false)
			}
		}
	}, pods...)
}

// write writes the next document of a pod. onlyClaims is true if nothing but the limits of claims has changed. The caller holds mu.
func (r *modelRuntime) write(p *modelPod, onlyClaims bool) {
	p.unsettled, p.hasDocument = true, true
	edited := !onlyClaims && (len(p.documents) == 0 || !maps.Equal(p.document().annotations, ownOf(p.annotations)))
	p.documents = append(p.documents, modelDocument{ownOf(p.annotations), p.tier, r.team, p.claim})
	for _, sb := range p.sandboxes {
		for _, c := range sb.containers {
			c.granted = nil                                      // the policy may observe the pod for a moment
			if edited || !onlyClaims && !heedsClaims(r.policy) { // "max" in an annotation stands before the limit of a claim
				c.claimed = nil
			}
		}
	}
}

func (r *modelRuntime) forgetDocument(p *modelPod) {
	r.tell(func() { p.hasDocument, p.unsettled = false, true }, p)
}

// tell changes documents of pods and has the plugin read them. Of each pod it reads one at a time.
func (r *modelRuntime) tell(change func(), pods ...*modelPod) {
	r.telling <- struct{}{}
	defer func() { <-r.telling }()
	r.mu.Lock()
	change()
	n := r.plugin
	live := make([]*podfacts.Facts, len(pods))
	for i, p := range pods {
		if p.hasDocument {
			live[i] = p.live()
		}
	}
	r.mu.Unlock()
	for i, p := range pods {
		n.SetLive(p.uid, live[i])
	}
}

func (p *modelPod) live() *podfacts.Facts {
	d := p.document()
	out := &podfacts.Facts{
		Namespace: "ns", Name: p.name, Annotations: d.annotations, Owner: p.owner,
		Labels: modelLabels("tier", d.tier), NamespaceLabels: modelLabels("team", d.team),
	}
	if d.claim == unknownClaims {
		out.Omitted = map[string]string{podfacts.PartVolumes: "129 of them"}
	} else {
		out.Volumes = modelVolumes(d.claim)
	}
	return out
}

// tellAll has a new plugin read all documents. The caller holds mu.
func (r *modelRuntime) tellAll(n *Node) {
	for _, p := range r.pods {
		if p != nil && p.hasDocument {
			n.SetLive(p.uid, p.live())
		}
	}
}

// factsIn returns the facts by which the plugin decides about a sandbox.
func (r *modelRuntime) factsIn(p *modelPod, sb *modelSandbox) modelFacts {
	out := modelFacts{annotations: sb.reported, tier: sb.tier}
	switch {
	case sb.asked != nil:
		out = *sb.asked
	case p.hasDocument:
		d := p.document()
		out = modelFacts{annotations: d.annotations, tier: d.tier, volumes: modelVolumesOf(d.claim)}
	}
	if p.hasDocument {
		out.namespace = p.document().namespace(r.policy)
	}
	return out
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

// runsInSeveral reports whether containers run in several sandboxes. The limit of the pod as a whole covers the disks of those of the
// newest one, and a restarted plugin does not know which one that is. The kubelet ends the containers of a sandbox before.
func (p *modelPod) runsInSeveral() bool {
	n := 0
	for _, sb := range p.sandboxes {
		if slices.ContainsFunc(sb.containers, func(c *modelContainer) bool { return c.state == modelRunning }) {
			n++
		}
	}
	return n > 1
}

// keepsTotal reports whether the limit of a pod as a whole may be one that former annotations granted: those in force
// reject it, and a restarted plugin does not know that the record is by others.
func (r *modelRuntime) keepsTotal(p *modelPod, running []*modelContainer) bool {
	if !p.edited {
		return false
	}
	var facts []policy.Container
	for _, c := range running {
		facts = append(facts, r.facts(p, c))
	}
	total, err := r.ruled(p).Total(facts)
	return err != nil || len(total.Errors) > 0
}

// settle notes by which facts the plugin decides. These are the newest ones, unless they would reject a container that it
// knows. Then annotations or labels are others that the pod has or had.
func (r *modelRuntime) settle(p *modelPod, known modelKnown, report func(string, ...any)) {
	p.unsettled = false
	for _, sb := range p.sandboxes {
		asked, isKnown := known.requests[sb.id]
		reported := modelFacts{annotations: ownOf(sb.reported), tier: sb.tier}
		if !isKnown { // whether the document counts depends on the containers that it has when it becomes known
			sb.asked = nil
			p.unsettled = p.unsettled || p.mayInherit() || p.hasDocument && (!reported.equal(modelFacts{annotations: p.document().annotations, tier: p.document().tier}) || modelVolumesOf(p.document().claim).HasLimits())
			continue
		}
		if sb.asked == nil || !asked.equal(*sb.asked) {
			for _, c := range sb.containers {
				c.granted = nil
				isSame := sb.asked != nil && maps.Equal(asked.annotations, sb.asked.annotations)
				if !isSame || !heedsClaims(r.policy) && !asked.withoutVolumes().equal(sb.asked.withoutVolumes()) {
					c.claimed = nil
				}
			}
		}
		sb.asked = &asked
		isKnownToHave := func(c *modelContainer) bool { _, has := known.containers[c.id]; return has }
		if !slices.ContainsFunc(sb.containers, isKnownToHave) && !maps.Equal(asked.annotations, reported.annotations) {
			p.unsettled = true // they may reject the next container, which may be the first one
		}
		if !maps.Equal(asked.annotations, reported.annotations) && !slices.ContainsFunc(p.documents, func(d modelDocument) bool { return maps.Equal(d.annotations, asked.annotations) }) {
			report("%s: sandbox %s has the annotations %v, which it never had", p.name, sb.id, asked.annotations)
		}
		if asked.tier != sb.tier && !slices.ContainsFunc(p.documents, func(d modelDocument) bool { return d.tier == asked.tier }) {
			report("%s: sandbox %s has the tier %q, which it never had", p.name, sb.id, asked.tier)
		}
		if asked.volumes != nil && !slices.ContainsFunc(p.documents, func(d modelDocument) bool { return modelVolumesOf(d.claim).Equal(asked.volumes) }) {
			report("%s: sandbox %s has volumes that it never had", p.name, sb.id)
		}
		if p.hasDocument {
			r.settleDocument(p, sb, known, report)
		}
	}
}

// settleDocument compares the facts by which the plugin decides about a sandbox with the document of its pod.
func (r *modelRuntime) settleDocument(p *modelPod, sb *modelSandbox, known modelKnown, report func(string, ...any)) {
	d, asked := p.document(), *sb.asked
	if want := d.namespace(r.policy); want != nil && !want.Equal(asked.namespace) {
		report("%s: sandbox %s has the labels %v of its namespace, want %v", p.name, sb.id, asked.namespace, want)
	}
	if next, volumes := asked, modelVolumesOf(d.claim); d.tier != asked.tier || !volumes.Equal(asked.volumes) {
		p.unsettled, next.tier, next.volumes = true, d.tier, volumes
		// A late container is granted less than the model knows, so each request asks for more.
		if r.policy.BudgetFor("ns") == nil || !known.late[p.uid] && !r.rejects(p, sb, next) {
			report("%s: sandbox %s has the tier %q, and nothing rejects %q with limits %q of its claim: %v", p.name, sb.id, asked.tier, d.tier, d.claim, known.rejected[sb.id])
		}
	}
	if next := asked; !maps.Equal(d.annotations, asked.annotations) {
		p.unsettled, next.annotations = true, d.annotations
		isLive := func(c *modelContainer) bool { _, has := known.containers[c.id]; return has && c.state != modelExited }
		// Without a live container, an edit of annotations waits for one.
		if slices.ContainsFunc(sb.containers, isLive) && !known.late[p.uid] && !r.rejects(p, sb, next) {
			report("%s: sandbox %s has the annotations %v, and nothing rejects %v: %v", p.name, sb.id, asked.annotations, d.annotations, known.rejected[sb.id])
		}
	}
}

// rejects reports whether other facts about a pod reject one of its containers.
func (r *modelRuntime) rejects(p *modelPod, sb *modelSandbox, next modelFacts) bool {
	by := r.ruledBy(p, next)
	for _, err := range by.Check() {
		if refusesEdit(by, err) {
			return true
		}
	}
	for _, c := range sb.containers {
		if c.state == modelExited {
			continue
		}
		facts := r.facts(p, c)
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
