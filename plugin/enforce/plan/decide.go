package plan

import (
	"cmp"

	"github.com/nri-blkio/nri-blkio/policy"
)

// Decide decides what one container of a pod gets. The error is the first that the policy
// rejects, otherwise the first; beside it is what could be decided.
func Decide(pol *policy.Policy, pod *Pod, c policy.Container, weights Weights) (policy.Desired, error) {
	if err := pol.CheckRuntime(pod.Request, pod.Handler); err != nil {
		return policy.Desired{}, err
	}
	desired, err := pol.Container(pod.Request, c)
	return desired, First(pol, err, weights.Check(&desired))
}

// Total decides what a pod may do as a whole, with these containers. The error is as with
// Decide.
func Total(pol *policy.Policy, pod *Pod, seen []policy.Container, weights Weights) (policy.Desired, error) {
	if err := pol.CheckRuntime(pod.Request, pod.Handler); err != nil {
		return policy.Desired{}, err
	}
	total, err := pol.PodTotal(pod.Request, seen)
	return total, First(pol, err, weights.Check(&total))
}

// First returns the first error that the policy rejects, otherwise the first one. It is nil if
// there is none.
func First(pol *policy.Policy, errs ...error) error {
	for _, err := range errs {
		if err != nil && pol.Action(err) == policy.Reject {
			return err
		}
	}
	return cmp.Or(errs...)
}

// Refuses reports whether an error of Decide or Total fails the creation of the container.
func Refuses(pol *policy.Policy, err error) bool {
	return err != nil && pol.Mode != policy.ModeObserve && pol.Action(err) == policy.Reject
}
