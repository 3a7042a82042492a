package policy

import (
	"cmp"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// Bounds has the largest and smallest values that annotations may request, or choose by a class.
type Bounds struct {
	// Max and Min are rates for each disk. If a value is Unset, that of the policy holds. The value
	// blkio.Max is no bound.
	Max, Min blkio.Limits
	// MaxWeight is the largest weight of a container and of pod-total, from 1 to 10000. If it is 0, that of the policy
	// holds. A weight takes a share from others. So with the kernel's default of 100 a pod can only lower its own.
	MaxWeight int
}

// boundsDocument is the field bounds of a policy and of a rule.
type boundsDocument struct {
	// The largest rate for each disk. `max` in an annotation is above it.
	// Values: a list with one entry for `*`. Default: none.
	Max []string `json:"max,omitempty"`
	// The smallest rate for each disk. `floors` hold as well, and for all pods.
	// Values: a list with one entry for `*`. Default: none.
	Min []string `json:"min,omitempty"`
	// The bound of the weights of each container and of `pod-total`.
	Weight struct {
		// The largest weight. Values: 1 to 10000.
		Max *int `json:"max"`
	} `json:"weight"`
}

// bounds validates bounds. outer are those that hold where these state none.
func (d *boundsDocument) bounds(v *validator, at *field.Path, outer *Bounds, floors *Floors) Bounds {
	b := Bounds{Max: v.bound(at.Child("max"), d.Max), Min: v.bound(at.Child("min"), d.Min)}
	if d.Weight.Max != nil {
		b.MaxWeight = v.within(at.Child("weight", "max"), *d.Weight.Max, blkio.MaxWeight)
	}
	for k := range blkio.NumLimits {
		least, most := cmp.Or(b.Min[k], outer.Min[k]), cmp.Or(b.Max[k], outer.Max[k])
		switch {
		case b.Min[k] == blkio.Max:
			v.errs = append(v.errs, field.Invalid(at.Child("min"), d.Min, k.String()+": a limit is required"))
		case most != blkio.Unset && least > most:
			v.errs = append(v.errs, field.Invalid(at, k.String(), "the smallest value "+annotation.FormatAmount(k, least)+" is above the largest "+annotation.FormatAmount(k, most)))
		case b.Max[k] != blkio.Unset && b.Max[k] < floors.of(k):
			v.errs = append(v.errs, field.Invalid(at.Child("max"), d.Max, k.String()+" must be at least "+annotation.FormatAmount(k, floors.of(k))+", its floor"))
		}
	}
	return b
}

// bound parses rates for "*", the only target of a bound.
func (v *validator) bound(at *field.Path, elements []string) (out blkio.Limits) {
	l := v.limits(at, elements, func(en *annotation.Entry) string { return checkPlain("a bound", en) })
	for i := range l.Entries {
		out = l.Entries[i].Limits
	}
	return out
}

// checkPlain returns what is wrong with an entry for a bound or a budget that is for other disks than "*" or has a burst, or "".
func checkPlain(what string, en *annotation.Entry) string {
	if en.Target.Kind != annotation.TargetStar {
		return "invalid target: " + what + " holds for each disk (write *)"
	}
	for k := range blkio.NumLimits {
		if !en.Burst(k).IsZero() {
			return "a burst stands in a class or an annotation (remove " + k.String() + annotation.BurstSuffix + ")"
		}
	}
	return ""
}

// theNodePolicy is the place of bounds that belong to no rule.
const theNodePolicy = "the node policy"

// bound returns a bound of the pod's rule or, if that is zero, of the policy, and where it is stated.
func (p *Pod) bound(of func(*Bounds) blkio.Amount) (blkio.Amount, string) {
	if p.rule != nil {
		if own := of(&p.rule.Bounds); own != 0 {
			return own, p.rule.title
		}
	}
	return of(&p.policy.Bounds), theNodePolicy
}

// maxRate returns the largest rate that may be requested, and where that is stated.
func (p *Pod) maxRate(k blkio.Key) (blkio.Amount, string) {
	return p.bound(func(b *Bounds) blkio.Amount { return b.Max[k] })
}

// minRate returns the smallest rate that may be requested, and where that is stated.
func (p *Pod) minRate(k blkio.Key) (blkio.Amount, string) {
	return p.bound(func(b *Bounds) blkio.Amount { return b.Min[k] })
}

// LeastRate returns the smallest rate that a limit of the pod may have.
func (p *Pod) LeastRate(k blkio.Key) blkio.Amount {
	least, _ := p.minRate(k)
	return max(least, p.Floor(k))
}

// Floor returns the floor of a key on the node.
func (p *Pod) Floor(k blkio.Key) blkio.Amount { return p.policy.Floors.of(k) }

// checkEntry returns an error for a value of an annotation that the policy does not allow.
func (p *Pod) checkEntry(l *annotation.List, en *annotation.Entry) *annotation.Error {
	var problem *annotation.Problem
	if en.Weight != 0 {
		problem = p.checkWeight(int(en.Weight))
	} else {
		problem = cmp.Or(p.policy.Floors.check(en), p.checkRates(&en.Limits), p.policy.checkBursts(en))
	}
	if problem == nil {
		return nil
	}
	return l.ErrorOf(en, annotation.OutOfBounds, problem)
}

// checkRates returns the problem of rates that are out of bounds. No limit is above any bound.
func (p *Pod) checkRates(rates *blkio.Limits) *annotation.Problem {
	for i, rate := range rates {
		if rate == blkio.Unset {
			continue
		}
		k := blkio.Key(i)
		if most, where := p.maxRate(k); most != blkio.Unset && rate > most {
			return &annotation.Problem{
				Cause: k.String() + "=" + annotation.FormatAmount(k, rate) + " is above the bound",
				Hint:  "write at most " + annotation.FormatAmount(k, most) + ", bounds.max of " + where,
			}
		}
		if least, where := p.minRate(k); rate < least {
			return &annotation.Problem{
				Cause: k.String() + "=" + annotation.FormatAmount(k, rate) + " is below the bound",
				Hint:  "write at least " + annotation.FormatAmount(k, least) + ", bounds.min of " + where,
			}
		}
	}
	return nil
}

func (p *Pod) checkWeight(weight int) *annotation.Problem {
	if most, where := p.bound(func(b *Bounds) blkio.Amount { return blkio.Amount(b.MaxWeight) }); blkio.Amount(weight) > most {
		return &annotation.Problem{Cause: "the weight is too large", Hint: "write at most " + most.String() + ", bounds.weight.max of " + where}
	}
	return nil
}

// check returns the problem of a rate so low that the container could not be killed.
func (f *Floors) check(en *annotation.Entry) *annotation.Problem {
	for k, rate := range en.Limits {
		key, floor := blkio.Key(k), f.of(blkio.Key(k))
		if rate == blkio.Unset || rate >= floor {
			continue
		}
		return &annotation.Problem{
			Cause: key.String() + "=" + annotation.FormatAmount(key, rate) + " is under this node's floor",
			Hint:  "write at least " + annotation.FormatAmount(key, floor),
		}
	}
	return nil
}

// checkBursts returns the problem of a burst that the policy leaves no room for.
func (p *Policy) checkBursts(en *annotation.Entry) *annotation.Problem {
	for k := range blkio.NumLimits {
		b, most := en.Burst(k), p.Bursts[k]
		switch name := k.String() + annotation.BurstSuffix; {
		case b.IsZero() || most == blkio.Max:
		case most == blkio.Unset:
			return &annotation.Problem{
				Cause: name + "=" + annotation.FormatBurst(k, b) + " is not allowed: bursts of the node policy has no " + k.String(),
				Hint:  "remove " + name,
			}
		case b.Rate-en.Limits[k] > most:
			return &annotation.Problem{
				Cause: name + "=" + annotation.FormatBurst(k, b) + " is above the bound",
				Hint:  "write at most " + annotation.FormatAmount(k, most) + " more than " + k.String() + ", by bursts of the node policy",
			}
		}
	}
	return nil
}
