package policy

import (
	"cmp"
	"maps"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
	"github.com/nri-blkio/nri-blkio/policy/spelling"
)

// Class has limits and a weight for each container that it applies to. Those that a node cannot enforce are
// skipped and reported.
type Class struct {
	Name            string
	limits, weights *annotation.List // nil for none
	targets         annotation.Targets
	guarantee       blkio.Percent // of each disk with io.cost, for all pods whose rules have the class; 0 for none
}

// classDocument is an element of classes in a policy file.
type classDocument struct {
	// Limits in the [grammar of annotations], one entry in each element. The target can also be `disk:GLOB`: [Disks by name].
	// Values: a list of at most 256 entries. Default: none.
	Limits []string `json:"limits"`
	// The weight on all disks. Values: 1 to 10000. Default: none.
	Weight *int `json:"weight"`
	// The least part of each disk with io.cost for all pods together that get the class by a rule, while they want it: [Guarantees].
	// It needs a reserve. Values: `0.01%` to `89.99%`. Default: none.
	Guarantee *scalar `json:"guarantee"`
}

func (d *classDocument) class(v *validator, at *field.Path, name string, p *Policy) *Class {
	c := &Class{Name: name}
	if name == annotation.NoClass || !annotation.IsLabel(name) {
		v.errs = append(v.errs, field.Invalid(at, name, "a class needs a name of at most 63 of a-z, 0-9 and -, not starting or ending with -, other than none"))
	}
	if len(d.Limits) == 0 && d.Weight == nil && d.Guarantee == nil {
		v.errs = append(v.errs, field.Required(at, "a class has limits, a weight, or a guarantee"))
	}
	c.guarantee = v.guarantee(at.Child("guarantee"), d.Guarantee)
	if len(d.Limits) > 0 {
		c.limits = v.limits(at.Child("limits"), d.Limits, func(en *annotation.Entry) string {
			return cmp.Or(p.Floors.check(en), p.checkBursts(en)).String()
		})
	}
	if d.Weight != nil {
		c.weights = annotation.WeightOfAll("classes."+name, v.within(at.Child("weight"), *d.Weight, blkio.MaxWeight))
	}
	c.targets = c.limits.Targets().And(c.weights.Targets())
	return c
}

// limits parses a list of limits. check returns what is wrong with an entry that the grammar allows, or "".
func (v *validator) limits(at *field.Path, elements []string, check func(*annotation.Entry) string) *annotation.List {
	l, problems := annotation.ParseLimits(at.String(), elements)
	valid := l.Entries
	for i, p := range problems {
		text := p.String()
		if p == nil {
			text, valid = check(&valid[0]), valid[1:]
		}
		if text != "" {
			v.errs = append(v.errs, field.Invalid(at.Index(i), elements[i], text))
		}
	}
	return l
}

func (v *validator) classNamed(at *field.Path, name string, classes map[string]*Class) *Class {
	if name == annotation.NoClass {
		return nil
	}
	c := classes[name]
	if c == nil {
		detail := "unknown class"
		if hint := spelling.Hint(name, append(slices.Sorted(maps.Keys(classes)), annotation.NoClass)...); hint != "" {
			detail += " (" + hint + ")"
		}
		v.errs = append(v.errs, field.Invalid(at, name, detail))
	}
	return c
}

// checkClass returns the problem of a class that an annotation chooses and that the bounds for the
// pod do not allow, or that has a guarantee: its pods would lose a part to the chosen one. A class that leaves a bound key unlimited, or the weight at the kernel's
// default, is out of bounds as a larger value is.
func (p *Pod) checkClass(c *Class) *annotation.Problem {
	if c.guarantee != 0 && c != p.rule.class() {
		return &annotation.Problem{Cause: "the class has a guarantee", Hint: "choose another class: only a rule of the node policy gives this one"}
	}
	weight := blkio.Amount(blkio.DefaultWeight)
	var all blkio.Limits // of "*"
	if c.limits != nil {
		for i := range c.limits.Entries {
			en := &c.limits.Entries[i]
			if problem := p.checkRates(&en.Limits); problem != nil {
				problem.Hint = "choose another class: " + problem.Hint
				return problem
			}
			if en.Target.Kind == annotation.TargetStar {
				all = en.Limits
			}
		}
	}
	for k := range blkio.NumLimits {
		if most, where := p.maxRate(k); all[k] == blkio.Unset && most != blkio.Unset && most != blkio.Max {
			return &annotation.Problem{
				Cause: "the class does not limit " + k.String() + " of *",
				Hint:  "choose another class: write at most " + annotation.FormatAmount(k, most) + ", bounds.max of " + where,
			}
		}
	}
	if c.weights != nil {
		weight = blkio.Amount(c.weights.Entries[0].Weight)
	}
	if problem := p.checkWeight(int(weight)); problem != nil {
		if problem.Cause += ": " + strconv.Itoa(int(weight)); c.weights == nil {
			problem.Cause += ", which is that of a class without one"
		}
		problem.Hint = "choose another class: " + problem.Hint
		return problem
	}
	return nil
}
