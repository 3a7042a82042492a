package plugin

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"

	"github.com/nri-blkio/nri-blkio/plugin/enforce/plan"
	"github.com/nri-blkio/nri-blkio/plugin/health"
	"github.com/nri-blkio/nri-blkio/plugin/recovery"
	"github.com/nri-blkio/nri-blkio/plugin/reminder"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// markKey is an annotation that the plugin adds to each container that it decided the
// limits of, none included. Its value is plan.Mark. The validator goes by the plugin that owns
// it in the adjustment: a tenant can give a pod an annotation of this name, and no adjustment.
const markKey = "decided.blkio.noderesource.dev"

// marked returns the adjustment of a decided container, with the mark.
func marked(container string, spec policy.Settings) *api.ContainerAdjustment {
	adjust := adjustment(spec)
	adjust.AddAnnotation(markKey, plan.Mark(container, spec))
	return adjust
}

// isMarked reports whether the plugin, at any index, marked the container.
func isMarked(req *api.ValidateContainerAdjustmentRequest) bool {
	if req.GetOwners() == nil || req.GetAdjust().GetAnnotations()[markKey] == "" {
		return false
	}
	owner, _ := req.GetOwners().AnnotationOwner(req.GetContainer().GetId(), markKey)
	_, name, _ := strings.Cut(owner, "-") // 90-nri-blkio
	return name == pluginName
}

// ValidatorName is the plugin name of the validator.
const ValidatorName = "nri-blkio-validator"

// errUndecided is the only text that a tenant sees when the validator rejects a container. It is the same on
// each retry.
var errUndecided = errors.New("nri-blkio: the pod requests limits, but nri-blkio on this node did not decide them (it does not run, hangs, or failed)")

// Validator is a plugin of its own that refuses containers of annotated pods which the
// Plugin has not decided. It needs the runtime's socket only, and keeps no state, so
// that it goes on where the Plugin hangs or has died.
type Validator struct {
	log        logrus.FieldLogger
	connection connection
	refused    atomic.Int64
	recovery   *recovery.Recovery
}

// NewValidator returns a validator that logs to log. r counts panics. It may be nil.
func NewValidator(log logrus.FieldLogger, r *recovery.Recovery) *Validator {
	return &Validator{log: log, recovery: r}
}

// Run validates until ctx ends. Over a socket it reconnects for ever.
func (v *Validator) Run(ctx context.Context, cfg RunConfig) error {
	v.connection.active() // there is no standby: several of them agree
	if cfg.Preinstalled {
		return v.serve(ctx, cfg)
	}
	if err := makeSocketDir(cfg.Socket); err != nil {
		return err
	}
	const message = "Not connected to the runtime, containers are not validated"
	return reconnect(ctx, v.log, message, func() error { return v.serve(ctx, cfg) })
}

func (v *Validator) serve(ctx context.Context, cfg RunConfig) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := &validation{v: v, link: newLink()}
	if err := s.register(ctx, cfg, ValidatorName, s, v.log); err != nil {
		return ignoreCanceled(ctx, fmt.Errorf("connect to NRI: %w", err))
	}
	v.connection.connected("")
	err := s.wait(ctx, nil, nil, nil)
	v.connection.lost(err)
	return err
}

// validation is one connection of a Validator.
type validation struct {
	link
	v *Validator
}

var (
	_ stub.SynchronizeInterface                 = (*validation)(nil)
	_ stub.ValidateContainerAdjustmentInterface = (*validation)(nil)
)

// Synchronize completes the registration; the validator keeps no state of pods.
func (s *validation) Synchronize(_ context.Context, pods []*api.PodSandbox, _ []*api.Container) ([]*api.ContainerUpdate, error) {
	reminder.Wake(s.synced)
	s.v.log.WithField("pods", len(pods)).Info("Synchronized with the runtime")
	return nil, nil
}

// ValidateContainerAdjustment refuses a container of an annotated pod without the mark.
// A panic also refuses it.
func (s *validation) ValidateContainerAdjustment(_ context.Context, req *api.ValidateContainerAdjustmentRequest) error {
	decided := false
	err := s.v.recovery.Guarded(func() error {
		decided = !annotation.Concerns(req.GetPod().GetAnnotations()) || isMarked(req)
		return nil
	})
	if decided {
		return nil
	}
	s.v.refused.Add(1)
	s.v.log.WithError(errors.Join(errUndecided, err)).WithFields(logrus.Fields{
		"pod": req.GetPod().GetNamespace() + "/" + req.GetPod().GetName(), "container": req.GetContainer().GetName(),
	}).Warn("Rejected a container")
	return errUndecided
}

// Health returns the state of the validator, as far as other processes than its own can know it.
func (v *Validator) Health() health.Report {
	r := health.Report{Part: health.Validator}
	v.connection.fill(&r)
	return r
}

var (
	validatorConnectedDesc = desc("validator_connected", "1 while the validator is registered with the runtime.")
	validatorRefusedDesc   = desc("validator_refused_containers_total", "Containers that the validator rejected, each attempt of the kubelet counted.")
)

// Describe is the half of prometheus.Collector that names the metrics.
func (v *Validator) Describe(out chan<- *prometheus.Desc) { prometheus.DescribeByCollect(v, out) }

// Collect is the half of prometheus.Collector that gives their values.
func (v *Validator) Collect(out chan<- prometheus.Metric) {
	out <- prometheus.MustNewConstMetric(validatorConnectedDesc, prometheus.GaugeValue, oneIf(v.connection.is(health.Connected)))
	out <- prometheus.MustNewConstMetric(validatorRefusedDesc, prometheus.CounterValue, float64(v.refused.Load()))
}
