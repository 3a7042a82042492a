package node

import (
	"cmp"
	"errors"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/enforce/plan"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// decide computes the limits and weights of one container.
func (r *resolver) decide(pol *policy.Pod, c *snapshot) (policy.Desired, error) {
	return plan.Decide(c.pod.planPod(pol), c.disks.Facts, r.weight.Support())
}

// granted returns the limits that a container was granted so far, which may be from an earlier process of the
// plugin.
func (r *resolver) granted(c *snapshot) (policy.Desired, error) {
	switch {
	case c.resolution.fresh, c.decision.policy != nil && c.decision.policy.Mode() != policy.ModeEnforce:
		return policy.Desired{}, nil
	case c.decision.policy != nil:
		return c.decision.desired, nil
	}
	written, err := record.Read(r.cgroups.Cgroup(c.cgroup), record.KindContainer)
	if errors.Is(err, blkio.ErrGone) || errors.Is(err, record.ErrParse) || errors.Is(err, blkio.ErrNotSupported) {
		err = nil
	}
	return written.Granted(), err
}

// checkTotal returns the pod total of the pod's containers together with c.
func (r *resolver) checkTotal(pol *policy.Pod, c *snapshot) (policy.Settings, error) {
	around, pod := r.around(c.pod), c.pod.planPod(pol)
	pod.Ended.Total = around.former
	total, err := plan.Total(pod, append(around.seen, c.disks.Facts), r.weight.Support())
	if len(total.Settings) == 0 {
		return nil, err
	}
	switch {
	case c.pod.group.cgroup == "":
		return nil, cmp.Or(err, noPodCgroup("the runtime reports no cgroup for the pod"))
	case around.isShared:
		return nil, cmp.Or(err, noPodCgroup("the pod shares its cgroup with another pod"))
	}
	return total.Settings, err
}

// planPod returns the facts about a pod that a decision needs.
func (p *podIdentity) planPod(pol *policy.Pod) *plan.Pod {
	out := p.planned()
	out.Policy = pol
	return &out
}

func noPodCgroup(cause string) error {
	return &annotation.Error{
		Annotation: "limits.blkio.noderesource.dev/pod-total",
		Cause:      cause,
		Hint:       "limit its containers instead",
		Kind:       annotation.Unenforceable,
	}
}
