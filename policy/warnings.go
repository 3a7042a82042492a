package policy

import (
	"fmt"
	"slices"
)

// Warnings returns likely mistakes of a valid policy: rules and budgets that are never reached, and a list of
// handlers without that of most pods.
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
	return out
}
