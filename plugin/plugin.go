package plugin

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
)

// Storage finds the disks below a host path.
type Storage interface {
	// Refresh re-reads the mount table if the kernel says that it changed.
	Refresh(ctx context.Context) error
	// Resolve never fails: what cannot be limited has a Reason.
	Resolve(ctx context.Context, hostPath string) blkio.Backing
}

// Config is what a Plugin works with. Log, Policy, Storage and Cgroups are
// required.
type Config struct {
	Log     logrus.FieldLogger
	Policy  *policy.Policy
	Storage Storage
	Cgroups *blkio.Hierarchy
	// Rootfs is a host directory on the disk that holds the containers'
	// writable layers: containerd's root directory.
	Rootfs string
	// Resync is the time between two passes over the whole node; 0 is 30 s.
	Resync time.Duration
}

const defaultResync = 30 * time.Second

// Plugin is the state of one node: its pods, what they asked for, and what
// they should get. Its methods are safe for concurrent use.
type Plugin struct {
	log     logrus.FieldLogger
	storage Storage
	cgroups *blkio.Hierarchy
	rootfs  string
	resync  time.Duration

	policy atomic.Pointer[policy.Policy]
	weight weightSupport
	// wake holds at most one token: there is something in dirty.
	wake chan struct{}

	mu sync.Mutex // guards all below
	// pods are those that carry annotations of ours, by sandbox ID.
	pods map[string]*pod
	// dirty are the sandbox IDs that the reconciler has to look at.
	dirty map[string]bool
	// syncs counts Synchronize calls, so that a late one cannot overwrite
	// the state of a newer one.
	syncs int
}

// New returns a plugin for this node. It fails where the kernel or the
// configuration cannot enforce anything.
func New(cfg Config) (*Plugin, error) {
	if cfg.Log == nil || cfg.Policy == nil || cfg.Storage == nil || cfg.Cgroups == nil {
		return nil, errors.New("plugin: Log, Policy, Storage and Cgroups are required")
	}
	p := &Plugin{
		log:     cfg.Log,
		storage: cfg.Storage,
		cgroups: cfg.Cgroups,
		rootfs:  cfg.Rootfs,
		resync:  cfg.Resync,
		weight:  weightSupport{cgroups: cfg.Cgroups},
		wake:    make(chan struct{}, 1),
		pods:    map[string]*pod{},
		dirty:   map[string]bool{},
	}
	if p.resync == 0 {
		p.resync = defaultResync
	}
	p.policy.Store(cfg.Policy)
	p.weight.look()
	return p, nil
}

// Reload puts a new node policy into force, for running containers too.
func (p *Plugin) Reload(pol *policy.Policy) {
	p.policy.Store(pol)
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, pod := range p.pods {
		for _, c := range pod.containers {
			p.decide(pol, pod, c)
		}
		p.markDirty(id)
	}
}

// markDirty asks the reconciler to look at a pod that may have changed. The
// caller holds mu.
func (p *Plugin) markDirty(sandbox string) {
	if pod := p.pods[sandbox]; pod != nil {
		pod.plan = nil
	}
	p.dirty[sandbox] = true
	select {
	case p.wake <- struct{}{}:
	default: // a token is there already
	}
}

// decide computes what one container should get. What cannot be enforced is
// kept with the container, for its record. The caller holds mu or owns c.
func (p *Plugin) decide(pol *policy.Policy, pod *pod, c *container) {
	desired, err := pol.Container(pod.request, c.facts)
	if runtimeErr := pol.CheckRuntime(pod.request, pod.handler); runtimeErr != nil {
		desired, err = policy.Desired{}, runtimeErr
	}
	if weightErr := p.weight.check(&desired); err == nil {
		err = weightErr
	}
	c.desired, c.err = desired, err
}
