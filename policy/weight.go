package policy

import (
	"strconv"

	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// Bounds are the largest values that pods may request.
type Bounds struct {
	// MaxWeight is the largest weight of a container, and of pod-total, from 1 to 10000. A
	// larger weight takes disk time from other pods. With the default of 100, which is the
	// kernel's default weight, a pod can only lower its own.
	MaxWeight int
}

// checkWeight refuses a weight above the policy's bound.
func (p *Policy) checkWeight(w *annotation.Weight) *annotation.Error {
	if w == nil || int(w.Value) <= p.Bounds.MaxWeight {
		return nil
	}
	most := strconv.Itoa(p.Bounds.MaxWeight)
	return &annotation.Error{
		Annotation: w.Key,
		Text:       strconv.FormatUint(uint64(w.Value), 10),
		Cause:      "the weight is too large",
		Hint:       "write at most " + most + ", bounds.weight.max of the node policy",
	}
}
