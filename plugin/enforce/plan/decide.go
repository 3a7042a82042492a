package plan

import (
	"cmp"

	"github.com/nri-blkio/nri-blkio/policy"
)

// Decide returns the desired settings of one container. The error is the first one that the
// policy rejects or, if it rejects none, the first of all. With an error, the settings that
// could be decided are returned.
func Decide(pod *Pod, c policy.Container, weights Weights) (policy.Desired, error) {
	desired, err := pod.Policy.Container(c)
	return desired, First(pod.Policy, err, weights.Check(&desired))
}

// Total returns the desired settings of the pod as a whole, for the containers in seen. The
// error is as for Decide.
func Total(pod *Pod, seen []policy.Container, weights Weights) (policy.Desired, error) {
	total, err := pod.Policy.Total(seen)
	pod.Policy.KeepStanding(&total, pod.Ended.Total)
	return total, First(pod.Policy, err, weights.Check(&total))
}

// First returns the first error that the policy rejects or, if it rejects none, the first
// of all. It returns nil if all are nil.
func First(pol *policy.Pod, errs ...error) error {
	for _, err := range errs {
		if err != nil && pol.Action(err) == policy.Reject {
			return err
		}
	}
	return cmp.Or(errs...)
}

// Refuses reports whether an error of Decide or Total rejects the creation of the
// container.
func Refuses(pol *policy.Pod, err error) bool {
	return err != nil && pol.Mode() != policy.ModeObserve && pol.Action(err) == policy.Reject
}
