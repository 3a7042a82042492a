package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// Warnings returns likely mistakes of a valid policy: rules and budgets that are never reached, a list of handlers
// without that of most pods, and what bounds tenants less, or system pods more, than it seems.
func (p *Policy) Warnings() (out []string) {
	if i := slices.IndexFunc(p.Rules, func(r Rule) bool { return r.Match.isForAll() }); i >= 0 && i < len(p.Rules)-1 {
		out = append(out, "rule "+p.Rules[i+1].Name+" of the policy and those after it are never reached: rule "+p.Rules[i].Name+" matches all pods")
	}
	isForAll := func(b NamespaceBudget) bool { return slices.Contains(b.Namespaces, "*") }
	if i := slices.IndexFunc(p.Budgets, isForAll); i >= 0 && i < len(p.Budgets)-1 {
		out = append(out, fmt.Sprintf("budgets[%d] of the policy and those after it are never reached: budgets[%d] matches all namespaces", i+1, i))
	}
	if !slices.Contains(p.HostKernelHandlers, "") {
		out = append(out, `hostKernelHandlers of the policy lacks "": `+
			"pods without a RuntimeClass count as pods on another kernel, so they get no class and count for no budget")
	}
	if p.hasBounds() && !p.ConcernsUnannotated() {
		out = append(out, "bounds.max of the policy bounds only what annotations request: without a rule with a class, pods without annotations have no limit")
	}
	return append(append(out, p.budgetsOfSystem()...), p.joinable()...)
}

// hasBounds reports whether the policy or a rule has a largest rate.
func (p *Policy) hasBounds() bool {
	return !p.Bounds.Max.IsZero() || slices.ContainsFunc(p.Rules, func(r Rule) bool { return !r.Bounds.Max.IsZero() })
}

// budgetsOfSystem warns of budgets that reject the pods of the cluster and of the plugin: those have no limits.
func (p *Policy) budgetsOfSystem() []string {
	namespaces := slices.DeleteFunc([]string{"kube-system", "nri-blkio"}, func(name string) bool {
		return p.BudgetFor(name) == nil || p.ruleFor(&PodFacts{Namespace: name}).class() != nil
	})
	if len(namespaces) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("a budget of the policy rejects containers without a limit in %s (put first: {namespaces: [%s], limits: [\"* wbps=max\"]})",
		strings.Join(namespaces, " and "), strings.Join(namespaces, ", "))}
}

// joinable warns of rules that the author of a pod can join by its labels, to leave a later rule that bounds the pods
// of a namespace more, or to have a guarantee in any namespace.
func (p *Policy) joinable() (out []string) {
	for i := range p.Rules {
		r := &p.Rules[i]
		if m := &r.Match; m.Selector == nil || m.Selector.Empty() || m.NamespaceSelector != nil {
			continue
		}
		later := p.Rules[i+1:]
		if at := slices.IndexFunc(later, func(o Rule) bool { return r.Match.reaches(&o.Match) && p.allowsMore(r, &o) }); at >= 0 {
			out = append(out, "rule "+r.Name+" of the policy allows more than rule "+later[at].Name+
				" after it: the author of a pod can join it by labels (match trusted namespaces in it)")
		} else if c := r.Class; c != nil && c.guarantee != 0 && isEach(r.Match.Namespaces) {
			out = append(out, "rule "+r.Name+" of the policy gives the guarantee of class "+c.Name+
				" in each namespace: the author of a pod can join it by labels (match trusted namespaces in it)")
		}
	}
	return out
}

// isEach reports whether a rule with these namespaces is for all.
func isEach(names []string) bool { return len(names) == 0 || slices.Contains(names, "*") }

// reaches reports whether a rule for some labels of pods also holds in namespaces that a later rule selects.
func (m *PodMatch) reaches(later *PodMatch) bool {
	if isEach(later.Namespaces) && later.NamespaceSelector == nil {
		return false // the later rule is not about namespaces
	}
	return isEach(m.Namespaces) || slices.ContainsFunc(m.Namespaces, func(name string) bool { return slices.Contains(later.Namespaces, name) })
}

// allowsMore reports whether a rule has a guarantee, or allows an annotation, that another one does not.
func (p *Policy) allowsMore(r, than *Rule) bool {
	if c := r.Class; c != nil && c.guarantee != 0 && c != than.Class {
		return true
	}
	if !r.allowsAnnotations() || !than.allowsAnnotations() {
		return r.allowsAnnotations()
	}
	for k := range blkio.NumLimits {
		most, bound := cmp.Or(r.Bounds.Max[k], p.Bounds.Max[k]), cmp.Or(than.Bounds.Max[k], p.Bounds.Max[k])
		if bound != blkio.Unset && (most == blkio.Unset || most > bound) {
			return true
		}
	}
	return cmp.Or(r.Bounds.MaxWeight, p.Bounds.MaxWeight) > cmp.Or(than.Bounds.MaxWeight, p.Bounds.MaxWeight)
}
