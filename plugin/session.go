package plugin

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"

	"github.com/nri-blkio/nri-blkio/blkio/hostfs"
	"github.com/nri-blkio/nri-blkio/plugin/bounded"
	"github.com/nri-blkio/nri-blkio/plugin/node"
	"github.com/nri-blkio/nri-blkio/plugin/node/cause"
	"github.com/nri-blkio/nri-blkio/plugin/reminder"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// session is one connection to the runtime: its events, each within its
// deadline. It implements the handler interfaces of NRI's stub, of events 1
// to 11 only: containerd 1.7 refuses a plugin that asks for more (docs/reference/quirks.md).
type session struct {
	link
	p          *Plugin
	log        logrus.FieldLogger
	distribute func(*policy.Policy)
	// configured is set by Configure, before any other event.
	splitsLines  bool
	deadline     time.Duration
	runtime      string // its name and version
	failure      api.FailurePolicy
	preinstalled bool
	// located is closed once the runtime has reported where it stores writable layers, or has not in time. It is nil
	// before the runtime was asked.
	located <-chan struct{}
}

// The events that a session takes part in.
var (
	_ stub.ConfigureInterface           = (*session)(nil)
	_ stub.SynchronizeInterface         = (*session)(nil)
	_ stub.CreateContainerInterface     = (*session)(nil)
	_ stub.StartContainerInterface      = (*session)(nil)
	_ stub.PostUpdateContainerInterface = (*session)(nil)
	_ stub.StopContainerInterface       = (*session)(nil)
	_ stub.RemoveContainerInterface     = (*session)(nil)
	_ stub.RemovePodInterface           = (*session)(nil)
)

// connect registers with the runtime and returns once it is configured.
func (p *Plugin) connect(ctx context.Context, cfg RunConfig) (*session, error) {
	s := &session{p: p, log: p.log, deadline: stub.DefaultRequestTimeout / 4, link: newLink(), distribute: cfg.Distribute, preinstalled: cfg.Preinstalled}
	if s.distribute == nil {
		s.distribute = p.Reload
	}
	// Configure fills in the failure policy; the stub sends it afterwards.
	return s, s.register(ctx, cfg, pluginName, s, p.log, stub.WithFailurePolicy(&s.failure))
}

// Configure receives the runtime's name, version and configuration. config is the node
// policy of a pre-installed plugin, from /etc/nri/conf.d.
func (s *session) Configure(ctx context.Context, config, runtime, version string) (stub.EventMask, error) {
	defer s.recovered("Configure", nil, nil)
	if config != "" {
		pol, err := policy.ParseFile([]byte(config))
		if err != nil {
			return 0, fmt.Errorf("configuration from the runtime: %w", err)
		}
		s.distribute(pol)
	}
	s.failure.FailRequest = failsRequests(s.p.events.Policy())
	if t := s.stub.RequestTimeout(); t > 0 {
		s.deadline = t / 4
	}
	s.locateLayers(ctx, runtime, version)
	// CRI-O only logs an error of StartContainer, so all disks have to go
	// into the spec there; it brings a runtime that splits lines (docs/reference/quirks.md).
	s.splitsLines = runtime == "cri-o"
	s.runtime = strings.TrimSpace(runtime + " " + version)
	if s.preinstalled { // the runtime may list no containers, see link.wait
		s.noteRegistered(ctx)
	}
	return 0, nil
}

// locateLayers asks the runtime where it stores writable layers. The answer is not part of the registration: the runtime
// may be waiting for that before it answers.
func (s *session) locateLayers(ctx context.Context, runtime, version string) {
	located := make(chan struct{})
	s.located = located
	ctx = context.WithoutCancel(ctx) // it ends with the registration
	go func() {
		defer close(located)
		s.p.recovery.Step("locate writable layers", func() { s.p.events.Registered(ctx, runtime, version, s.deadline) })
	}()
}

// awaitLayers waits until the runtime has been asked for its writable layers, at most d.
func (s *session) awaitLayers(ctx context.Context, d time.Duration) {
	if s.located == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	select {
	case <-s.located:
	case <-ctx.Done():
	}
}

// noteRegistered notes that the registration is complete. The work beside the events begins once the layers are located,
// because without them a pass could not find the disks.
func (s *session) noteRegistered(ctx context.Context) {
	took, err := hostfs.SinceStart()
	if err != nil {
		s.log.WithError(err).Debug("Start time of this process unknown")
	}
	s.log.WithFields(logrus.Fields{
		"runtime": s.runtime, "deadline": s.deadline.String(), "since_start": took.Round(time.Millisecond).String(),
	}).Info("Registered with the runtime")
	ctx = context.WithoutCancel(ctx) // it ends with the registration
	go func() {
		s.awaitLayers(ctx, s.deadline)
		s.p.settle()
	}()
}

// Synchronize receives the pods and containers that run on the node.
func (s *session) Synchronize(ctx context.Context, pods []*api.PodSandbox, ctrs []*api.Container) ([]*api.ContainerUpdate, error) {
	defer s.recovered("Synchronize", nil, nil)
	reminder.Wake(s.synced)
	sandboxes, containers := described(pods, ctrs)
	s.p.events.Synchronize(sandboxes, containers)
	if !s.preinstalled {
		s.noteRegistered(ctx)
	}
	return nil, nil
}

// CreateContainer puts limits into the spec, or refuses the container.
func (s *session) CreateContainer(ctx context.Context, pod *api.PodSandbox, ctr *api.Container) (_ *api.ContainerAdjustment, _ []*api.ContainerUpdate, err error) {
	defer s.recovered("CreateContainer", pod, &err)
	sb, c := sandboxOf(pod), containerOf(ctr)
	if !s.p.events.Enter(sb, c, node.Created) { // as for most pods
		return nil, nil, nil
	}
	defer prometheus.NewTimer(s.p.handlers.WithLabelValues("create")).ObserveDuration()
	ctx, cancel := bounded.Deadline(ctx, s.deadline)
	defer cancel()
	s.awaitLayers(ctx, s.deadline/2)
	spec, decided, err := s.p.events.Create(ctx, sb, c, s.splitsLines)
	if err != nil || !decided {
		return nil, nil, err
	}
	return marked(ctr.GetId(), spec), nil, nil
}

// StartContainer completes the limits before the first user instruction.
func (s *session) StartContainer(ctx context.Context, pod *api.PodSandbox, ctr *api.Container) (err error) {
	defer s.recovered("StartContainer", pod, &err)
	sb, c := sandboxOf(pod), containerOf(ctr)
	if !s.p.events.Enter(sb, c, node.Running) {
		return nil
	}
	defer prometheus.NewTimer(s.p.handlers.WithLabelValues("start")).ObserveDuration()
	ctx, cancel := bounded.Deadline(ctx, s.deadline)
	defer cancel()
	s.awaitLayers(ctx, s.deadline/2)
	return s.p.events.Start(ctx, sb, c, !s.splitsLines)
}

// PostUpdateContainer restores limits that an update of the container reverted.
func (s *session) PostUpdateContainer(_ context.Context, pod *api.PodSandbox, ctr *api.Container) error {
	defer s.recovered("PostUpdateContainer", nil, nil)
	s.p.events.Updated(sandboxID(pod, ctr))
	return nil
}

// StopContainer comes after the removal of the container's cgroup.
func (s *session) StopContainer(_ context.Context, pod *api.PodSandbox, ctr *api.Container) ([]*api.ContainerUpdate, error) {
	defer s.recovered("StopContainer", nil, nil)
	s.p.events.Stopped(sandboxID(pod, ctr), ctr.GetId())
	return nil, nil
}

// RemoveContainer forgets a container.
func (s *session) RemoveContainer(_ context.Context, pod *api.PodSandbox, ctr *api.Container) error {
	defer s.recovered("RemoveContainer", nil, nil)
	s.p.events.Removed(sandboxID(pod, ctr), ctr.GetId())
	return nil
}

// RemovePodSandbox forgets a pod.
func (s *session) RemovePodSandbox(_ context.Context, pod *api.PodSandbox) error {
	defer s.recovered("RemovePodSandbox", nil, nil)
	s.p.events.RemovedPod(pod.GetId())
	return nil
}

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
