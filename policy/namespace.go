package policy

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Labels of a namespace by which rules select are kept in the records of pods, because a restarted plugin may not get them again.

// NamespaceLabels are the known labels of a namespace, by their keys. The value is nil for a label that the namespace does not
// have. A label whose key is missing is unknown.
type NamespaceLabels map[string]*string

// MaxNamespaceLabels is the most that the labels by which the rules of a policy select namespaces may need, in bytes of JSON.
const MaxNamespaceLabels = 2 << 10

// KnownLabels returns those labels of a namespace that have these keys. all has all labels of the namespace, and is nil while
// they are unknown. keys is nil if no rule selects namespaces, see Policy.NamespaceKeys.
func KnownLabels(all map[string]string, keys []string) NamespaceLabels {
	if all == nil || keys == nil {
		return nil
	}
	out := NamespaceLabels{}
	for _, key := range keys {
		out[key] = nil
		if value, found := all[key]; found {
			out[key] = &value
		}
	}
	return out
}

// Equal reports whether the same labels are known, with the same values.
func (l NamespaceLabels) Equal(o NamespaceLabels) bool {
	isSame := func(a, b *string) bool { return a == b || a != nil && b != nil && *a == *b }
	return (l == nil) == (o == nil) && maps.EqualFunc(l, o, isSame)
}

// Know reports whether all labels with these keys are known.
func (l NamespaceLabels) Know(keys []string) bool {
	return keys == nil || l != nil && !slices.ContainsFunc(keys, func(key string) bool { _, known := l[key]; return !known })
}

// selectsNamespace reports whether the labels of a namespace are selected. It returns unknown if some are needed that are not
// known: the rule must not apply to other namespaces until they are, also if the selector asks for their absence.
func (m *PodMatch) selectsNamespace(known NamespaceLabels) (selected, unknown bool) {
	if m.NamespaceSelector == nil {
		return true, false
	}
	if known == nil {
		return false, true
	}
	needed, _ := m.NamespaceSelector.Requirements()
	for i := range needed {
		value, isKnown := known[needed[i].Key()]
		one := labels.Set{}
		if value != nil {
			one[needed[i].Key()] = *value
		}
		switch {
		case !isKnown:
			unknown = true
		case !needed[i].Matches(one):
			return false, false
		}
	}
	return !unknown, unknown
}

// LacksNamespaceLabels reports whether another rule may match a pod once the labels of its namespace are known.
func (p *Policy) LacksNamespaceLabels(pod *PodFacts) bool {
	for i := range p.Rules {
		m := &p.Rules[i].Match
		if !m.selectsPod(pod) {
			continue
		}
		if selected, unknown := m.selectsNamespace(pod.NamespaceLabels); selected || unknown {
			return unknown
		}
	}
	return false
}

// longestLabelValue is the longest value of a label of Kubernetes, in bytes.
const longestLabelValue = 63

// NamespaceKeys returns the keys of the labels by which rules select namespaces, sorted, and nil if no rule does.
func (p *Policy) NamespaceKeys() []string {
	return p.keysOf(func(m *PodMatch) labels.Selector { return m.NamespaceSelector })
}

// PodKeys returns the keys of the labels by which rules select pods, sorted, and nil if no rule does.
func (p *Policy) PodKeys() []string {
	return p.keysOf(func(m *PodMatch) labels.Selector { return m.Selector })
}

// keysOf returns the keys of the labels by which a selector of the rules selects.
func (p *Policy) keysOf(selectorOf func(*PodMatch) labels.Selector) (keys []string) {
	for i := range p.Rules {
		selector := selectorOf(&p.Rules[i].Match)
		if selector == nil {
			continue
		}
		if keys == nil {
			keys = []string{}
		}
		needed, _ := selector.Requirements()
		for k := range needed {
			keys = append(keys, needed[k].Key())
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// checkNamespaceKeys checks that the labels by which rules select namespaces have room in a record.
func (v *validator) checkNamespaceKeys(p *Policy) {
	keys, size := p.NamespaceKeys(), 0
	for _, key := range keys {
		size += len(key) + longestLabelValue + len(`"":"",`)
	}
	if size > MaxNamespaceLabels {
		v.errs = append(v.errs, field.Invalid(field.NewPath("rules"), field.OmitValueType{},
			fmt.Sprintf("too many labels in namespaceSelector: %d keys need %d bytes in a record (maximum %d)", len(keys), size, MaxNamespaceLabels)))
	}
}
