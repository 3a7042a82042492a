package policy

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// QOS is the QoS class of a pod.
type QOS string

// The QoS classes.
const (
	Guaranteed QOS = "Guaranteed"
	Burstable  QOS = "Burstable"
	BestEffort QOS = "BestEffort"
)

// Annotations decides how a rule treats the annotations of its pods.
type Annotations string

// The values of Annotations.
const (
	AllowAnnotations  Annotations = "allow"
	IgnoreAnnotations Annotations = "ignore" // decide as if there were none, with a warning
	RejectAnnotations Annotations = "reject" // an invalid request
)

// Rule has the policy for the pods that it matches.
type Rule struct {
	Name        string
	Match       PodMatch
	Mode        Mode // "" for that of the policy
	Class       *Class
	Annotations Annotations
	Bounds      Bounds // the policy's hold where these state none

	source Source // of the values of Class
	title  string // the rule in messages
}

// PodMatch selects pods. A pod has to match each field that is set.
type PodMatch struct {
	Namespaces        []string // patterns of [path.Match]
	NamespaceSelector labels.Selector
	Selector          labels.Selector
	QOS               []QOS
}

func (m *PodMatch) selects(pod *PodFacts) bool {
	if !m.selectsPod(pod) {
		return false
	}
	selected, _ := m.selectsNamespace(pod.NamespaceLabels)
	return selected
}

func (m *PodMatch) selectsPod(pod *PodFacts) bool {
	return matchesAny(m.Namespaces, pod.Namespace) &&
		(len(m.QOS) == 0 || slices.Contains(m.QOS, pod.QOS)) &&
		(m.Selector == nil || m.Selector.Matches(labels.Set(pod.Labels)))
}

func (m *PodMatch) isForAll() bool {
	return (len(m.Namespaces) == 0 || slices.Contains(m.Namespaces, "*")) && m.isForAllOf()
}

// isForAllOf reports whether each pod of the namespaces is selected.
func (m *PodMatch) isForAllOf() bool {
	return len(m.QOS) == 0 && (m.Selector == nil || m.Selector.Empty()) && m.NamespaceSelector == nil
}

// ruleFor returns the first rule that matches a pod, or nil.
func (p *Policy) ruleFor(pod *PodFacts) *Rule {
	for i := range p.Rules {
		if p.Rules[i].Match.selects(pod) {
			return &p.Rules[i]
		}
	}
	return nil
}

// Concerns reports whether the policy has limits, a weight, or a budget for a pod without annotations, or the claims of the pod
// have limits that count.
func (p *Policy) Concerns(pod *PodFacts) bool {
	rule := p.ruleFor(pod)
	return rule.class() != nil || p.BudgetFor(pod.Namespace) != nil || pod.Volumes.HasLimits() && rule.allowsAnnotations()
}

// ConcernsUnannotated reports whether the policy can concern pods without annotations: some rule has a
// class, or some budget has limits.
func (p *Policy) ConcernsUnannotated() bool {
	return slices.ContainsFunc(p.Budgets, func(b NamespaceBudget) bool { return !b.Limits.IsZero() }) || slices.ContainsFunc(p.Rules, func(r Rule) bool { return r.Class != nil })
}

// Enforces reports whether limits of some pod are enforced.
func (p *Policy) Enforces() bool {
	return p.Mode == ModeEnforce || slices.ContainsFunc(p.Rules, func(r Rule) bool { return r.Mode == ModeEnforce })
}

// HasModes reports whether some rule has a mode of its own.
func (p *Policy) HasModes() bool {
	return slices.ContainsFunc(p.Rules, func(r Rule) bool { return r.Mode != "" })
}

// WithMode returns the policy with one mode for all pods.
func (p *Policy) WithMode(m Mode) *Policy {
	out := *p
	out.Mode, out.Rules = m, slices.Clone(p.Rules)
	for i := range out.Rules {
		out.Rules[i].Mode = ""
	}
	return &out
}

// allowsAnnotations reports whether annotations count for the pods of a rule, and limits of their claims. It returns true for
// nil.
func (r *Rule) allowsAnnotations() bool { return r == nil || r.Annotations == AllowAnnotations }

// class returns the class of a rule. It returns nil for nil.
func (r *Rule) class() *Class {
	if r == nil {
		return nil
	}
	return r.Class
}

func (r *Rule) origin() annotation.Origin { return annotation.Origin{Rule: r.Name} }

// ruleDocument is an element of rules in a policy file.
type ruleDocument struct {
	// It stands in `status`, `check` and errors. Values: a name like that of a class, other than `none`.
	Name string `json:"name"`
	// Which pods the rule is for: they have to match each field. Default: all pods.
	Match struct {
		// The namespace of the pod. Values: a list of patterns. Default: any.
		Namespaces []string `json:"namespaces"`
		// The current labels of the pod's namespace: [Rules by labels of namespaces]. `{}` matches if they are known. Default: any.
		NamespaceSelector *selectorDocument `json:"namespaceSelector"`
		// The labels of the pod, as at its creation or, with the [cluster part], the current ones. Default: any.
		PodSelector *selectorDocument `json:"podSelector"`
		// The QoS class of the pod. With `cgroupsPerQOS: false` of the kubelet no rule with `qos` matches. Default: any.
		QOS []QOS `json:"qos"`
	} `json:"match"`
	// The mode for these pods. A rule with `enforce` enforces also under `mode: observe`. Default: that of the policy.
	Mode *Mode `json:"mode"`
	// The class of each container of the pod, where its annotations state nothing.
	// Values: the name of a class, `none`. Default: `none`.
	Class *string `json:"class"`
	// `ignore`: annotations of this domain have no effect, with a warning. `reject`: they are an invalid request. Either
	// ignores limits of the pod's claims, with a warning.
	// Default: `allow`.
	Annotations *Annotations `json:"annotations"`
	// What the annotations of these pods may request: [Bounds]. Default: those of the policy.
	Bounds boundsDocument `json:"bounds"`
}

// selectorDocument is a label selector of Kubernetes.
type selectorDocument struct {
	// The labels to have, with their values. Default: none.
	MatchLabels map[string]string `json:"matchLabels"`
	// Further conditions. All have to hold. Default: none.
	MatchExpressions []requirementDocument `json:"matchExpressions"`
}

type requirementDocument struct {
	// The key of the label. Values: the key of a label. Default: required.
	Key string `json:"key"`
	// The condition for the label. Values: `In`, `NotIn`, `Exists`, `DoesNotExist`. Default: required.
	Operator string `json:"operator"`
	// The values for `In` and `NotIn`. Values: a list of values of labels. Default: none.
	Values []string `json:"values"`
}

func (d *ruleDocument) rule(v *validator, at *field.Path, p *Policy) Rule {
	match := at.Child("match")
	r := Rule{
		Name: d.Name, Match: PodMatch{Namespaces: d.Match.Namespaces, QOS: d.Match.QOS},
		Annotations: AllowAnnotations, title: "rule " + d.Name,
		Bounds: d.Bounds.bounds(v, at.Child("bounds"), &p.Bounds, &p.Floors),
	}
	switch {
	case d.Name == "":
		v.errs = append(v.errs, field.Required(at.Child("name"), "messages name the rule"))
	case d.Name == noRule || !annotation.IsLabel(d.Name):
		v.errs = append(v.errs, field.Invalid(at.Child("name"), d.Name, "must be at most 63 of a-z, 0-9 and -, not starting or ending with -, other than "+noRule))
	case v.ruleNames[d.Name]:
		v.errs = append(v.errs, field.Duplicate(at.Child("name"), d.Name))
	default:
		v.ruleNames[d.Name] = true
	}
	v.notEmpty(match.Child("namespaces"), d.Match.Namespaces != nil, len(d.Match.Namespaces))
	v.notEmpty(match.Child("qos"), d.Match.QOS != nil, len(d.Match.QOS))
	v.namespaces(match.Child("namespaces"), d.Match.Namespaces)
	for i, qos := range d.Match.QOS {
		oneOf(v, match.Child("qos").Index(i), qos, Guaranteed, Burstable, BestEffort)
	}
	if d.Match.NamespaceSelector != nil {
		r.Match.NamespaceSelector = d.Match.NamespaceSelector.selector(v, match.Child("namespaceSelector"))
	}
	if d.Match.PodSelector != nil {
		r.Match.Selector = d.Match.PodSelector.selector(v, match.Child("podSelector"))
	}
	if d.Mode != nil {
		r.Mode = oneOf(v, at.Child("mode"), *d.Mode, ModeEnforce, ModeObserve)
	}
	if d.Annotations != nil {
		r.Annotations = oneOf(v, at.Child("annotations"), *d.Annotations, AllowAnnotations, IgnoreAnnotations, RejectAnnotations)
	}
	if d.Class != nil {
		r.Class = v.classNamed(at.Child("class"), *d.Class, p.Classes)
	}
	if r.Class != nil {
		r.source = Source{Kind: FromRule, Name: ruleName(r.Name, r.Class.Name)}
	}
	return r
}

// noRule stands for no rule in tests of a policy. No rule has this name.
const noRule = "none"

// namespaces checks patterns for namespaces. One that matches no name would leave pods without a rule or a budget.
func (v *validator) namespaces(at *field.Path, patterns []string) {
	before := len(v.errs)
	if v.patterns(at, patterns); len(v.errs) > before {
		return
	}
	for i, pattern := range patterns {
		switch odd := strings.Trim(pattern, `abcdefghijklmnopqrstuvwxyz0123456789-*?[]^\`); {
		case pattern == "":
			v.errs = append(v.errs, field.Required(at.Index(i), "write * for any namespace"))
		case strings.ContainsAny(odd, ", {}"):
			v.errs = append(v.errs, field.Invalid(at.Index(i), pattern, "no namespace matches (write one element of the list for each pattern)"))
		case odd != "":
			v.errs = append(v.errs, field.Invalid(at.Index(i), pattern, "no namespace matches: names have a-z, 0-9 and - (write * for any characters, ? for one)"))
		}
	}
}

// notEmpty checks a list of a match: an empty one could mean all pods, or none.
func (v *validator) notEmpty(at *field.Path, isSet bool, length int) {
	if isSet && length == 0 {
		v.errs = append(v.errs, field.Required(at, "leave it out to match all pods"))
	}
}

func (d *selectorDocument) selector(v *validator, at *field.Path) labels.Selector {
	operators := map[string]selection.Operator{
		"In": selection.In, "NotIn": selection.NotIn, "Exists": selection.Exists, "DoesNotExist": selection.DoesNotExist,
	}
	out := labels.NewSelector()
	add := func(at *field.Path, key string, op selection.Operator, values []string) {
		r, err := labels.NewRequirement(key, op, values, field.WithPath(at))
		if err != nil {
			v.aggregate(at, err)
			return
		}
		out = out.Add(*r)
	}
	for _, key := range slices.Sorted(maps.Keys(d.MatchLabels)) { // the same errors each time
		add(at.Child("matchLabels"), key, selection.In, []string{d.MatchLabels[key]})
	}
	for i := range d.MatchExpressions {
		e, at := &d.MatchExpressions[i], at.Child("matchExpressions").Index(i)
		op, known := operators[e.Operator]
		if !known {
			v.errs = append(v.errs, field.NotSupported(at.Child("operator"), e.Operator, []string{"In", "NotIn", "Exists", "DoesNotExist"}))
			continue
		}
		add(at, e.Key, op, e.Values)
	}
	return out
}

func (v *validator) aggregate(at *field.Path, err error) {
	several, ok := errors.AsType[interface {
		error
		Errors() []error
	}](err)
	if !ok {
		v.errs = append(v.errs, field.Invalid(at, field.OmitValueType{}, err.Error()))
		return
	}
	for _, err := range several.Errors() {
		if one, ok := errors.AsType[*field.Error](err); ok {
			v.errs = append(v.errs, one)
		}
	}
}
