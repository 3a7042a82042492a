package policy

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

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

// withoutBurst validates that an entry of the policy has no burst.
func (v *validator) withoutBurst(at *field.Path, text string, en *annotation.Entry) {
	for k := range blkio.NumLimits {
		if !en.Burst(k).IsZero() {
			v.errs = append(v.errs, field.Invalid(at, text, "a burst stands in a class or an annotation (remove "+k.String()+annotation.BurstSuffix+")"))
			return
		}
	}
}
