package plugin

import (
	"errors"
	"runtime/debug"

	"github.com/containerd/nri/pkg/api"

	"github.com/nri-blkio/nri-blkio/plugin/node/cause"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// errReregister ends a session whose registration contradicts the policy.
var errReregister = errors.New("onError.internal changed")

// failsRequests reports whether the registration asks the runtime to fail a request that this plugin does not
// answer. That concerns every pod of the node. So only a policy that rejects containers for failures of the
// plugin asks for it.
//
// The plugin never asks for KeepConnected. The runtime would go on sending requests to a plugin that hangs, and
// each stop and remove of every pod would fail after two seconds. A disconnected plugin that hangs fails only
// one request. For the requests afterwards there are required plugins (docs/how-to/fail-closed.md).
//
// Under mode: observe it asks for nothing, also where a rule enforces: it would concern all pods.
func failsRequests(pol *policy.Policy) bool {
	return pol.Mode != policy.ModeObserve && pol.OnError.Internal == policy.Reject
}

// recovered turns a panic of a handler into an error in the log. Each handler defers it. The stub calls
// handlers without a recover of its own, so a panic would end the process, and the runtime starts a
// pre-installed plugin only once. result, where the event has one, becomes the error of refusal.
func (s *session) recovered(event string, pod *api.PodSandbox, result *error) {
	r := recover()
	if r == nil {
		return
	}
	s.p.recovery.Count()
	s.log.WithField("event", event).Errorf("Recovered from a panic: %v\n%s", r, debug.Stack())
	if result != nil {
		*result = s.refusal(event, pod)
	}
}

// refusal returns the error by which the policy rejects a container of a pod after an internal failure, nil if
// it starts the container. The rules are matched for that, and may have caused the failure. Then the policy
// without its rules decides, for each pod that can have limits.
func (s *session) refusal(event string, pod *api.PodSandbox) error {
	var out error
	err := s.p.recovery.Guarded(func() error {
		out = s.p.events.Refusal(sandboxOf(pod))
		return nil
	})
	if err == nil {
		return out
	}
	s.log.WithField("event", event).WithError(err).Error("Recovered from a panic: the rule of the pod is not known")
	pol := s.p.events.Policy()
	if failsRequests(pol) && (annotation.Concerns(pod.GetAnnotations()) || pol.ConcernsUnannotated()) {
		return cause.ErrInternal
	}
	return nil
}
