package policy

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// NamespaceBudget is the most that the pods of a namespace may be granted together on each physical
// disk of the node. It holds for each namespace that it matches on its own.
type NamespaceBudget struct {
	Namespaces []string     // patterns of [path.Match]
	Limits     blkio.Limits // for each disk; Unset for a key without a budget
	// Weight is the largest sum of weights on each disk; 0 for none. Above it, weights are scaled and no container is rejected.
	Weight uint32
	// Guarantee is the least part of each disk with io.cost while the pods want it; 0 for none.
	Guarantee blkio.Percent

	list *annotation.List // the target "*": it selects what a container uses
}

// Has reports whether the budget bounds a key. It returns false for nil.
func (b *NamespaceBudget) Has(k blkio.Key) bool {
	return b != nil && k < blkio.NumLimits && b.Limits[k] != blkio.Unset
}

// Covers reports whether the budget bounds each key that another one bounds.
func (b *NamespaceBudget) Covers(other *NamespaceBudget) bool {
	if b == other { // mostly it is so
		return true
	}
	for k := range blkio.NumLimits {
		if other.Has(k) && !b.Has(k) {
			return false
		}
	}
	return true
}

// budgetDocument is an element of budgets in a policy file.
type budgetDocument struct {
	// The namespaces that the budget is for. Each has the whole budget for itself. Values: a list of patterns.
	Namespaces []string `json:"namespaces"`
	// The largest sum for each disk, at least the floor. With `max` the key has no budget. Values: a list with one entry for `*`.
	// Default: none.
	Limits []string `json:"limits"`
	// The largest sum of the weights of pods that use a disk. Above it they are scaled down in proportion: [Budgets of weights].
	// Values: 1 to 10000. Default: none.
	Weight *int `json:"weight"`
	// The least part of each disk with io.cost for the pods of a namespace, while they want it: [Guarantees]. It needs a reserve, and
	// namespaces without patterns. Values: `0.01%` to `89.99%`. Default: none.
	Guarantee *scalar `json:"guarantee"`
}

func (d *budgetDocument) budget(v *validator, at *field.Path, floors *Floors) NamespaceBudget {
	b := NamespaceBudget{Namespaces: d.Namespaces}
	if len(d.Namespaces) == 0 {
		v.errs = append(v.errs, field.Required(at.Child("namespaces"), `write the patterns of namespaces, such as ["tenant-*"]`))
	}
	v.namespaces(at.Child("namespaces"), d.Namespaces)
	if d.Weight != nil {
		b.Weight = uint32(v.within(at.Child("weight"), *d.Weight, blkio.MaxWeight))
	}
	b.Guarantee = v.guarantee(at.Child("guarantee"), d.Guarantee)
	if d.Weight == nil && d.Guarantee == nil && len(d.Limits) == 0 {
		v.errs = append(v.errs, field.Required(at, `a budget has limits, such as ["* wbps=200Mi"], a weight, or a guarantee`))
	}
	if len(d.Limits) == 0 {
		return b
	}
	b.list = v.limits(at.Child("limits"), d.Limits, func(en *annotation.Entry) string {
		return cmp.Or(checkPlain("a budget", en), floors.check(en).String()) // below the floor no container could start
	})
	for i := range b.list.Entries {
		for k, most := range b.list.Entries[i].Limits {
			if most != blkio.Max { // max exempts the key from the budget
				b.Limits[k] = most
			}
		}
	}
	return b
}

// BudgetFor returns the budget of limits for a namespace. It returns nil without one, and for one without a
// limit, such as "* wbps=max".
func (p *Policy) BudgetFor(namespace string) *NamespaceBudget {
	b := p.firstBudget(namespace)
	if b == nil || b.Limits.IsZero() {
		return nil
	}
	return b
}

// firstBudget returns the budget for a namespace: the first that matches, or nil.
func (p *Policy) firstBudget(namespace string) *NamespaceBudget {
	for i := range p.Budgets {
		if b := &p.Budgets[i]; matchesAny(b.Namespaces, namespace) {
			return b
		}
	}
	return nil
}

// BoundsWeights reports whether some budget has a weight, or there is a guarantee.
func (p *Policy) BoundsWeights() bool {
	return p.guaranteed() != 0 || slices.ContainsFunc(p.Budgets, func(b NamespaceBudget) bool { return b.Weight != 0 })
}

// WeightBudget returns what bounds the weights of the pods of the pod's namespace, or of its class. A pod in mode observe has none. A runtime
// handler with another kernel makes no difference: the pod's cgroup is one of the node.
func (p *Pod) WeightBudget() WeightBudget {
	if p.Mode() == ModeObserve {
		return WeightBudget{}
	}
	return p.weightBudget
}

// Budget returns the budget for the pod's namespace, or nil. It returns nil for nil.
func (p *Pod) Budget() *NamespaceBudget {
	if p == nil {
		return nil
	}
	return p.budget
}

// Use is a key of a disk that a container uses.
type Use struct {
	Disk blkio.Disk
	Key  blkio.Key
}

// Address returns the address of a limit for what is used.
func (u *Use) Address() blkio.Address { return blkio.Address{Key: u.Key, Dev: u.Disk.Dev} }

// uses notes what the container uses of what the budget for its namespace bounds: what a limit for "*"
// would hold for. Undeclared disks are left out, because they are searched for only where a "*" applies to the
// container. If it is unknown which disks the container uses, that is an error.
func (e *evaluation) uses(c Container) {
	b := e.pod.budget
	if b == nil {
		return
	}
	c.Undeclared, e.out.Lowest = nil, c.Lowest
	star := evaluation{pod: e.pod}
	star.entries(b.list, []Container{c}, scopeClass) // no disk at all is no error there
	e.out.Uses = make([]Use, 0, len(star.rows))
	for i := range star.rows {
		for k, cell := range star.rows[i].cells {
			if cell.entry != nil && b.Has(blkio.Key(k)) {
				e.out.Uses = append(e.out.Uses, Use{star.rows[i].disk, blkio.Key(k)})
			}
		}
	}
	slices.SortFunc(e.out.Uses, func(a, b Use) int { return a.Address().Compare(b.Address()) })
	if !e.hasUnknown() {
		e.fail(star.out.Errors...) // it is the same failure otherwise
	}
	for k := range e.out.Covers {
		e.out.Covers[k] = e.out.Covers[k] || b.Has(blkio.Key(k))
	}
}

// Charges calls yield for each address of the budget that counts for the container, with its limit there. The
// amount is blkio.Max if the container uses the disk without a limit. The order is undefined.
func (d *Desired) Charges(b *NamespaceBudget, yield func(at blkio.Address, amount blkio.Amount)) {
	for _, s := range d.Settings {
		if s.Amount != blkio.Max && b.Has(s.Key) {
			yield(s.Address, s.Amount)
		}
	}
	for i := range d.Uses {
		at := d.Uses[i].Address()
		if s, found := d.Settings.Get(at); (!found || s.Amount == blkio.Max) && b.Has(at.Key) {
			yield(at, blkio.Max)
		}
	}
}

// DiskName returns the name of a disk that the container uses or has a setting for, or that is below one of these, or "".
func (d *Desired) DiskName(dev blkio.Dev) string {
	for i := range d.Uses {
		if u := &d.Uses[i].Disk; u.Dev == dev {
			return u.Name
		}
	}
	if name, found := d.Disks[dev]; found {
		return name
	}
	for _, below := range d.Lowest {
		for _, disk := range below {
			if disk.Dev == dev {
				return disk.Name
			}
		}
	}
	return ""
}

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
