package plan

import (
	"cmp"

	"github.com/nri-blkio/nri-blkio/policy"
)

// Decide returns the desired settings of one container. The error is the first one that the
// policy rejects or, if it rejects none, the first of all. With an error, the settings that
// could be decided are returned.
func Decide(pol *policy.Policy, pod *Pod, c policy.Container, weights Weights) (policy.Desired, error) {
	if err := pol.CheckRuntime(pod.Request, pod.Handler); err != nil {
		return policy.Desired{}, err
	}
	desired, err := pol.Container(pod.Request, c)
	return desired, First(pol, err, weights.Check(&desired))
}

// Total returns the desired settings of the pod as a whole, for the containers in seen. The
// error is as for Decide.
func Total(pol *policy.Policy, pod *Pod, seen []policy.Container, weights Weights) (policy.Desired, error) {
	if err := pol.CheckRuntime(pod.Request, pod.Handler); err != nil {
		return policy.Desired{}, err
	}
	total, err := pol.PodTotal(pod.Request, seen)
	return total, First(pol, err, weights.Check(&total))
}

// First returns the first error that the policy rejects or, if it rejects none, the first
// of all. It returns nil if all are nil.
func First(pol *policy.Policy, errs ...error) error {
	for _, err := range errs {
		if err != nil && pol.Action(err) == policy.Reject {
			return err
		}
	}
	return cmp.Or(errs...)
}

// Refuses reports whether an error of Decide or Total rejects the creation of the
// container.
func Refuses(pol *policy.Policy, err error) bool {
	return err != nil && pol.Mode != policy.ModeObserve && pol.Action(err) == policy.Reject
}
