package policy

import (
	"cmp"
	"maps"
	"slices"

	"github.com/nri-blkio/nri-blkio/policy/annotation"
	"github.com/nri-blkio/nri-blkio/policy/quote"
	"github.com/nri-blkio/nri-blkio/policy/spelling"
)

// PodFacts has the facts about a pod that a policy depends on. The runtime reports labels as they were when the sandbox was made. Only the
// API server, or a manifest, has their current values, the volumes whose names the runtime does not see, and the labels of
// the namespace.
type PodFacts struct {
	Namespace string
	Labels    map[string]string
	QOS       QOS      // "" if it is unknown
	Handler   string   // runtime handler of the pod's RuntimeClass
	Volumes   *Volumes // nil while they are unknown
	// NamespaceLabels are those labels of its namespace that are known. It is nil while none is.
	NamespaceLabels NamespaceLabels
}

// Pod is a policy for one pod: the requests of the pod's annotations, and of the rule that matches the pod. It
// does not change.
type Pod struct {
	policy  *Policy
	rule    *Rule               // nil if none matches
	budget  *NamespaceBudget    // with limits; nil if none matches
	request *annotation.Request // the annotations that count
	dropped
	origin
	choices map[*annotation.Scope]choice // of the scopes with a class; nil for none
	targets annotation.Targets
}

// dropped has what the rule does not allow.
type dropped struct {
	// refused are the errors of annotations that the rule rejects. ignored is true if the rule
	// ignores annotations that the pod has, and ignoresClaims if it ignores limits of its claims.
	refused                []*annotation.Error
	ignored, ignoresClaims bool
}

// origin is where a pod is, what runs it, and its volumes.
type origin struct {
	namespace, handler string
	// isForeign is true if the pod's runtime handler is not known to share the host's kernel.
	isForeign    bool
	volumes      *Volumes
	weightBudget WeightBudget
}

// choice is the class that an annotation chooses, or the reason why it cannot.
type choice struct {
	class *Class // nil without a choice, and with an error
	err   *annotation.Error
}

// What is known of a pod without annotations, and of its volumes before they are known.
var (
	noRequest      = &annotation.Request{}
	unknownVolumes = &Volumes{unknown: "the volumes of the pod are not known yet"}
)

// ForPod returns the policy for a pod with these annotations, nil for none. Without facts no rule matches.
func (p *Policy) ForPod(facts *PodFacts, r *annotation.Request) *Pod {
	out := &Pod{policy: p, request: cmp.Or(r, noRequest)}
	out.volumes = unknownVolumes
	if facts != nil {
		out.rule, out.handler, out.isForeign = p.ruleFor(facts), facts.Handler, p.isForeign(facts.Handler)
		out.budget, out.namespace, out.volumes = p.BudgetFor(facts.Namespace), facts.Namespace, cmp.Or(facts.Volumes, out.volumes)
		out.weightBudget = p.weightBudget(out.rule.class(), facts.Namespace)
	}
	out.allow()
	if out.budget != nil {
		out.targets = out.budget.list.Targets()
	}
	out.targets = out.targets.And(out.request.Targets())
	out.choose()
	out.targets = out.targets.And(out.volumes.targets(out.targets.Volumes))
	return out
}

func (p *Pod) allow() {
	if p.AllowsAnnotations() {
		return
	}
	if p.volumes.HasLimits() {
		p.volumes, p.ignoresClaims = p.volumes.withoutLimits(), true
	}
	if p.request.Empty() {
		return
	}
	if p.ignored = p.rule.Annotations == IgnoreAnnotations; !p.ignored {
		for _, key := range p.request.Keys() {
			p.refused = append(p.refused, annotation.New(annotation.Identity{From: annotation.Origin{Annotation: key}, Reason: annotation.NotAllowed}, &annotation.Problem{
				Cause: p.rule.title + " of the node policy does not allow annotations", Hint: "remove the annotation",
			}))
		}
	}
	p.request = noRequest
}

func (p *Pod) refusedTotal() (errs []*annotation.Error) {
	for _, e := range p.refused {
		if _, scope := annotation.CutKey(e.From.Annotation); scope == annotation.ScopeTotal {
			errs = append(errs, e)
		}
	}
	return errs
}

// choose finds the classes that the annotations choose, and adds the targets of all classes that
// apply to containers of the pod.
func (p *Pod) choose() {
	var classes []*Class // each once
	var targets []annotation.Targets
	add := func(c *Class) {
		if c != nil && !slices.Contains(classes, c) {
			classes, targets = append(classes, c), append(targets, c.targets)
		}
	}
	add(p.rule.class())
	for _, q := range p.request.Scopes() {
		if q.Class == nil {
			continue
		}
		if p.choices == nil {
			p.choices = map[*annotation.Scope]choice{}
		}
		p.choices[q] = p.choiceOf(q.Class)
		add(p.choices[q].class)
	}
	p.targets = p.targets.And(targets...)
}

func (p *Pod) choiceOf(c *annotation.Class) choice {
	class := p.policy.Classes[c.Name]
	if class == nil {
		hint := spelling.Hint(c.Name, slices.Sorted(maps.Keys(p.policy.Classes))...)
		if hint == "" {
			hint = "ask the operators of the cluster for the classes of their node policy"
		}
		return choice{err: c.ErrorOf(annotation.UnknownClass, &annotation.Problem{Cause: "unknown class", Hint: hint})}
	}
	if problem := p.checkClass(class); problem != nil {
		return choice{err: c.ErrorOf(annotation.OutOfBounds, problem)}
	}
	return choice{class: class}
}

// classOf returns the class of a container, and the source of its values; nil without a class.
func (p *Pod) classOf(container string) (*Class, Source) {
	for _, c := range p.choicesFor(container) {
		if c := c.class; c != nil {
			return c, Source{Kind: FromClass, Name: c.Name}
		}
	}
	if c := p.rule.class(); c != nil {
		return c, p.rule.source
	}
	return nil, Source{}
}

// choicesFor returns the classes that are chosen for a container, by precedence.
func (p *Pod) choicesFor(container string) [2]choice {
	if p.choices == nil {
		return [2]choice{}
	}
	return [...]choice{p.choices[p.request.Named(container)], p.choices[p.request.Each()]}
}

// choiceErrors returns the errors of the classes that are chosen for a container.
func (p *Pod) choiceErrors(container string) (errs []*annotation.Error) {
	for _, c := range p.choicesFor(container) {
		if c.err != nil {
			errs = append(errs, c.err)
		}
	}
	return errs
}

// Of returns the policy from which p was made. It returns nil for nil.
func (p *Pod) Of() *Policy {
	if p == nil {
		return nil
	}
	return p.policy
}

// Mode returns the mode for the pod: that of its rule or, if that has none, of the policy.
func (p *Pod) Mode() Mode {
	if p.rule != nil && p.rule.Mode != "" {
		return p.rule.Mode
	}
	return p.policy.Mode
}

// Rule returns the name of the rule that matches the pod, or "".
func (p *Pod) Rule() string {
	if p.rule == nil {
		return ""
	}
	return p.rule.Name
}

// Namespace returns the namespace of the pod.
func (p *Pod) Namespace() string { return p.namespace }

// AllowsAnnotations reports whether annotations count for the pod.
func (p *Pod) AllowsAnnotations() bool { return p.rule.allowsAnnotations() }

// KnowsVolumes reports whether the volumes of the pod are known.
func (p *Pod) KnowsVolumes() bool { return p.volumes.Known() }

// MissesClaims reports whether limits of claims would count, and the volumes are unknown.
func (p *Pod) MissesClaims() bool { return !p.volumes.Known() && p.AllowsAnnotations() }

// Request returns the annotations that count. They are empty if the rule does not allow them.
func (p *Pod) Request() *annotation.Request { return p.request }

// Targets returns the targets that can have a limit or a weight. Its lists must not be changed.
func (p *Pod) Targets() annotation.Targets { return p.targets }

// StarOf reports whether a "*" applies to the container with this name. A new source of "*"
// must be added here: undeclared disks are searched for in these containers only.
func (p *Pod) StarOf(container string) bool {
	if p.isForeign || !p.targets.HasStar() {
		return false
	}
	if p.request.StarOf(container) {
		return true
	}
	c, _ := p.classOf(container)
	return c != nil && c.limits.HasStar()
}

// IsEmpty reports whether nothing is asked for the pod, and there is nothing to report.
func (p *Pod) IsEmpty() bool {
	return p.request.Empty() && p.rule.class() == nil && len(p.refused) == 0 && !p.ignored && p.budget == nil && !p.volumes.HasLimits() && !p.ignoresClaims &&
		p.request.OfClaim() == nil
}

// Action returns the action for an error, as Policy.Action.
func (p *Pod) Action(err error) Action { return p.policy.Action(err) }

// checkRuntime returns an error if annotations ask for something under a runtime handler that is
// not known to share the host's kernel. In a virtual machine, device numbers have another meaning.
func (p *Pod) checkRuntime() error {
	if !p.isForeign || p.request.Empty() {
		return nil
	}
	return annotation.New(annotation.Identity{From: annotation.Origin{Annotation: p.request.First()}, Reason: annotation.ForeignHandler}, &annotation.Problem{
		Cause: p.foreignCause(), Hint: "remove the annotation, or add the handler to hostKernelHandlers",
	})
}

// HasClaimLimits reports whether claims of the pod have limits that the rule does not ignore.
func (p *Pod) HasClaimLimits() bool { return p.volumes.HasLimits() }

// Refusal returns an error about the pod as a whole. It names the first annotation, or what else has a limit for the pod.
func (p *Pod) Refusal(reason annotation.Reason, problem *annotation.Problem) *annotation.Error {
	of := annotation.Identity{Reason: reason}
	switch {
	case !p.request.Empty():
		of.From.Annotation = p.request.First()
	case p.rule.class() != nil:
		of.From = p.rule.origin()
	case p.budget != nil:
		of.From.Field = "budgets"
	case p.HasClaimLimits():
		of.From.Field = "claims"
	default:
		of.From.Field = "pod"
	}
	return annotation.New(of, problem)
}

func (p *Pod) foreignCause() string {
	return "the runtime handler " + quote.Text(p.handler) + " is not in hostKernelHandlers of the node policy: its device numbers may differ from the node's"
}

// First returns the first error that the policy rejects or, if it rejects none, the first of all. It returns nil if all are nil.
func (p *Pod) First(errs ...error) error {
	for _, err := range errs {
		if err != nil && p.Action(err) == Reject {
			return err
		}
	}
	return cmp.Or(errs...)
}

// Refuses reports whether an error of a decision rejects the creation of the container.
func (p *Pod) Refuses(err error) bool {
	return err != nil && p.Mode() != ModeObserve && p.Action(err) == Reject
}
