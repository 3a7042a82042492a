package policy

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// WeightBudget is what a policy makes of the weights of a group of pods on each disk. The zero value changes nothing.
type WeightBudget struct {
	Namespace string // whose pods are the group; "" for those of a class
	Class     string // whose pods are the group; "" for those of a namespace
	Weight    uint32 // the largest sum of weights; 0 for none
	// Guarantee is the least part of the disk; 0 for none. Reserve is the part that is kept from all pods.
	Guarantee, Reserve blkio.Percent
}

// weightBudget returns the budget of the weights of a pod, by the class of its rule and its namespace. A pod is in one group only, so
// the guarantee of the class comes first. Under mode: observe nothing is guaranteed, because the reserve is not in force.
func (p *Policy) weightBudget(c *Class, namespace string) WeightBudget {
	if c != nil && c.guarantee != 0 && p.Mode != ModeObserve {
		return WeightBudget{Class: c.Name, Guarantee: c.guarantee, Reserve: p.Reserve}
	}
	b := p.firstBudget(namespace)
	switch {
	case b != nil && b.Guarantee != 0 && p.Mode != ModeObserve:
		return WeightBudget{Namespace: namespace, Weight: b.Weight, Guarantee: b.Guarantee, Reserve: p.Reserve}
	case b != nil && b.Weight != 0:
		return WeightBudget{Namespace: namespace, Weight: b.Weight}
	}
	return WeightBudget{}
}

// Promised says how much of each disk is promised to namespaces and classes, and how much is left. It returns "" without guarantees.
func (p *Policy) Promised() string {
	sum := p.guaranteed()
	if sum == 0 {
		return ""
	}
	text := fmt.Sprintf("of each disk with io.cost %s is guaranteed and %s is reserved; %s can still be guaranteed",
		sum.Short(), p.Reserve.Short(), (mostPromised - sum - p.Reserve).Short())
	if p.Mode == ModeObserve {
		text += "; mode: observe keeps nothing of it"
	} else if staged := p.staged(); len(staged) > 0 {
		text += "; nothing is kept for " + strings.Join(staged, ", ") + ": no rule for their pods enforces"
	}
	return text
}

// staged returns the classes and namespaces with a guarantee whose rules do not enforce, so that it is not in force.
func (p *Policy) staged() (out []string) {
	for _, name := range slices.Sorted(maps.Keys(p.Classes)) {
		c := p.Classes[name]
		if c.guarantee != 0 && !slices.ContainsFunc(p.Rules, func(r Rule) bool { return r.Class == c && r.Mode != ModeObserve }) {
			out = append(out, "class "+name)
		}
	}
	for i := range p.Budgets {
		for _, name := range p.Budgets[i].Namespaces {
			if p.Budgets[i].Guarantee != 0 && p.onlyObserves(name) {
				out = append(out, "namespace "+name)
			}
		}
	}
	return out
}

// onlyObserves reports whether the rules enforce nothing for any pod of a namespace.
func (p *Policy) onlyObserves(namespace string) bool {
	for i := range p.Rules {
		switch r := &p.Rules[i]; {
		case !matchesAny(r.Match.Namespaces, namespace):
		case r.Mode != ModeObserve:
			return false
		case r.Match.isForAllOf():
			return true
		}
	}
	return false // the policy's mode is for the others
}

// guaranteed returns the sum of all guarantees. Each class and each namespace has one of its own.
func (p *Policy) guaranteed() (sum blkio.Percent) {
	for _, c := range p.Classes {
		sum += c.guarantee
	}
	for i := range p.Budgets {
		sum += p.Budgets[i].Guarantee * blkio.Percent(len(p.Budgets[i].Namespaces))
	}
	return sum
}

// mostPromised is the most of a disk that guarantees and the reserve can have together. The rest is for other pods.
const mostPromised = maxReserve

// guarantee parses a guarantee; nil is none.
func (v *validator) guarantee(at *field.Path, text *scalar) blkio.Percent {
	if text == nil {
		return 0
	}
	share, err := parseShare(string(*text))
	if err == nil && share == 0 {
		err = errors.New("must be above 0%")
	}
	if err != nil {
		v.errs = append(v.errs, field.Invalid(at, string(*text), err.Error()))
	}
	return share
}

// checkGuarantees checks that each guarantee is for a known number of namespaces, that the first budget of these namespaces has it,
// and that the disk has enough for all.
func (v *validator) checkGuarantees(p *Policy) {
	sum, all := p.Reserve, field.NewPath("budgets")
	promise := func(at *field.Path, share blkio.Percent, groups int) {
		if share == 0 || sum > mostPromised { // told once
			return
		}
		if p.Reserve == 0 {
			v.errs = append(v.errs, field.Invalid(at, share.Short(),
				"a guarantee needs a reserve: otherwise what runs outside pods can take any part of a disk (write reserve.system, such as 10%)"))
		}
		if sum += share * blkio.Percent(groups); sum > mostPromised {
			v.errs = append(v.errs, field.Invalid(at, share.Short(),
				fmt.Sprintf("%s of a disk would be guaranteed or reserved: at most %s can be", sum.Short(), mostPromised.Short())))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.Classes)) {
		promise(field.NewPath("classes", name, "guarantee"), p.Classes[name].guarantee, 1)
	}
	for i := range p.Budgets {
		b, at := &p.Budgets[i], all.Index(i)
		if b.Guarantee == 0 {
			continue
		}
		for k, name := range b.Namespaces {
			switch first := p.firstBudget(name); {
			case strings.ContainsAny(name, `*?[\`):
				v.errs = append(v.errs, field.Invalid(at.Child("namespaces").Index(k), name, "a guarantee needs names: a pattern can match any number of namespaces"))
			case first != b:
				v.errs = append(v.errs, field.Invalid(at.Child("namespaces").Index(k), name, "an earlier budget matches the namespace, so it would have no guarantee (move this one up)"))
			}
		}
		promise(at.Child("guarantee"), b.Guarantee, len(b.Namespaces))
	}
}
