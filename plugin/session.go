package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"

	"github.com/nri-blkio/nri-blkio/plugin/bounded"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// errInternal is what a tenant sees of a failure of ours that refuses its
// container (onError.internal: reject). It is the same on each retry and tells
// nothing of the host.
var errInternal = errors.New("nri-blkio: internal error; see the log of nri-blkio on this node")

// session is one connection to the runtime: its events, each within its
// deadline. It implements the handler interfaces of NRI's stub, of events 1
// to 11 only: containerd 1.7 refuses a plugin that asks for more (docs/reference/quirks.md).
type session struct {
	link
	p   *Plugin
	log logrus.FieldLogger
	// configured is set by Configure, before any other event.
	splitsLines bool
	deadline    time.Duration
	runtime     string // its name and version
	failure     api.FailurePolicy
}

// events is what a session takes part in.
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
	s := &session{p: p, log: p.log, deadline: stub.DefaultRequestTimeout / 4, link: newLink()}
	// Configure fills in the failure policy; the stub sends it afterwards.
	return s, s.register(ctx, cfg, pluginName, s, p.log, stub.WithFailurePolicy(&s.failure))
}

// Configure receives the runtime's name, version and configuration. config is the node
// policy of a pre-installed plugin, from /etc/nri/conf.d.
func (s *session) Configure(ctx context.Context, config, runtime, version string) (stub.EventMask, error) {
	defer s.recovered("Configure", nil)
	if config != "" {
		pol, err := policy.ParseFile([]byte(config))
		if err != nil {
			return 0, fmt.Errorf("configuration from the runtime: %w", err)
		}
		s.p.distribute(pol)
	}
	s.failure.FailRequest = failsRequests(s.p.policy.Load())
	if t := s.stub.RequestTimeout(); t > 0 {
		s.deadline = t / 4
	}
	s.locateLayers(ctx, runtime, version)
	// CRI-O only logs an error of StartContainer, so all disks have to go
	// into the spec there; it brings a runtime that splits lines (docs/reference/quirks.md).
	s.splitsLines = runtime == "cri-o"
	s.runtime = strings.TrimSpace(runtime + " " + version)
	s.log.WithFields(logrus.Fields{"runtime": runtime, "version": version, "deadline": s.deadline.String()}).Info("Registered with the runtime")
	return 0, nil
}

// Synchronize receives the pods and containers that run on the node.
func (s *session) Synchronize(_ context.Context, pods []*api.PodSandbox, ctrs []*api.Container) ([]*api.ContainerUpdate, error) {
	defer s.recovered("Synchronize", nil)
	s.told()
	s.p.synchronize(pods, ctrs)
	return nil, nil
}

// CreateContainer puts limits into the spec, or refuses the container.
func (s *session) CreateContainer(ctx context.Context, pod *api.PodSandbox, ctr *api.Container) (adjust *api.ContainerAdjustment, _ []*api.ContainerUpdate, err error) {
	defer s.recovered("CreateContainer", &err)
	if !annotation.Concerns(pod.GetAnnotations()) {
		return nil, nil, nil
	}
	defer prometheus.NewTimer(s.p.metrics.create).ObserveDuration()
	ctx, cancel := bounded.Deadline(ctx, s.deadline)
	defer cancel()
	adjust, err = s.p.create(ctx, pod, ctr, s.splitsLines)
	if err != nil {
		return nil, nil, s.verdict(err, pod, ctr)
	}
	return marked(adjust), nil, nil
}

// StartContainer completes the limits before the first user instruction.
func (s *session) StartContainer(ctx context.Context, pod *api.PodSandbox, ctr *api.Container) (err error) {
	defer s.recovered("StartContainer", &err)
	if !annotation.Concerns(pod.GetAnnotations()) {
		return nil
	}
	defer prometheus.NewTimer(s.p.metrics.start).ObserveDuration()
	ctx, cancel := bounded.Deadline(ctx, s.deadline)
	defer cancel()
	return s.verdict(s.p.start(ctx, pod, ctr, !s.splitsLines), pod, ctr)
}

// verdict decides whether an error fails the container, by its cause. A
// refusal was decided and logged before; our own failure is said here.
func (s *session) verdict(err error, pod *api.PodSandbox, ctr *api.Container) error {
	if err == nil {
		return nil
	}
	if refusal, ok := errors.AsType[*annotation.Error](err); ok {
		s.p.metrics.refused[refusal.Kind].Add(1)
		return refusal
	}
	log := s.log.WithError(err).WithFields(logrus.Fields{
		"pod": pod.GetNamespace() + "/" + pod.GetName(), "container": ctr.GetName(),
	})
	if pol := s.p.policy.Load(); pol.Mode != policy.ModeObserve && pol.Action(err) == policy.Reject {
		s.p.metrics.refused[annotation.Internal].Add(1)
		log.Error("Rejected a container because of an internal error")
		return errInternal
	}
	log.Error("Container starts without all of its limits, retrying")
	return nil
}

// PostUpdateContainer restores limits that an update of the container reverted.
func (s *session) PostUpdateContainer(_ context.Context, pod *api.PodSandbox, ctr *api.Container) error {
	defer s.recovered("PostUpdateContainer", nil)
	s.p.updated(sandboxOf(pod, ctr))
	return nil
}

// sandboxOf returns the sandbox ID of an event. containerd sends no pod with
// the events of a container whose sandbox is gone already
// (internal/cri/server/container_stop.go, container_remove.go).
func sandboxOf(pod *api.PodSandbox, ctr *api.Container) string {
	return cmp.Or(pod.GetId(), ctr.GetPodSandboxId())
}

// StopContainer comes after the container's cgroup is gone.
func (s *session) StopContainer(_ context.Context, pod *api.PodSandbox, ctr *api.Container) ([]*api.ContainerUpdate, error) {
	defer s.recovered("StopContainer", nil)
	s.p.stopped(sandboxOf(pod, ctr), ctr.GetId())
	return nil, nil
}

// RemoveContainer forgets a container.
func (s *session) RemoveContainer(_ context.Context, pod *api.PodSandbox, ctr *api.Container) error {
	defer s.recovered("RemoveContainer", nil)
	s.p.removed(sandboxOf(pod, ctr), ctr.GetId())
	return nil
}

// RemovePodSandbox forgets a pod.
func (s *session) RemovePodSandbox(_ context.Context, pod *api.PodSandbox) error {
	defer s.recovered("RemovePodSandbox", nil)
	s.p.removedPod(pod.GetId())
	return nil
}
