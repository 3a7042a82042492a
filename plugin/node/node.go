package node

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/blkio/kernel"
	"github.com/nri-blkio/nri-blkio/plugin/bounded"
	"github.com/nri-blkio/nri-blkio/plugin/burst"
	"github.com/nri-blkio/nri-blkio/plugin/enforce"
	"github.com/nri-blkio/nri-blkio/plugin/handover"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
	"github.com/nri-blkio/nri-blkio/plugin/node/guard"
	"github.com/nri-blkio/nri-blkio/plugin/node/layers"
	"github.com/nri-blkio/nri-blkio/plugin/podmetrics"
	"github.com/nri-blkio/nri-blkio/plugin/recovery"
	"github.com/nri-blkio/nri-blkio/policy"
)

// This file has the parts and the configuration of a Node, and runs it.

// Storage finds the disks of the node. It is a *storage.Storage.
type Storage interface {
	inventory.Storage
	handover.Storage
}

// Config is the configuration of a Node. Log, Policy, Storage and Cgroups are required.
type Config struct {
	Log     logrus.FieldLogger
	Policy  *policy.Policy
	Storage Storage
	Cgroups *cgroupfs.Hierarchy
	// ProcessMounts returns the mounts of a process in a cgroup. If it is nil, a container's mounts are taken
	// to be on the disks to which the paths of the host led when it was created.
	ProcessMounts func(ctx context.Context, pid int, cgroup string) ([]blkio.ProcessMount, error)
	// KubeletRoot is the kubelet's root directory on the host. Mounts from it need no comparison with those of a
	// process, since it is root's. "" stands for DefaultKubeletRoot.
	KubeletRoot string
	// NodeMemory is the node's MemTotal in bytes, 0 where it is unknown. A memory limit that is large in
	// comparison bounds no dirty pages.
	NodeMemory uint64
	// Layers has the locations of the containers' writable layers.
	Layers inventory.Layers
	// ReadLayers reads the locations of writable layers again, for the runtime of this name and version. It
	// returns at the latest when ctx ends. After an error it is called again, and the layers that came with the
	// error are used until then. If it is nil, Layers stays in use.
	ReadLayers func(ctx context.Context, runtime, version string) (inventory.Layers, error)
	// Sync writes out the filesystem of a host path, and may hang as long as the filesystem does. If it is nil,
	// nothing is synced.
	Sync func(ctx context.Context, hostPath string) error
	// Kernel has the known bugs of the running kernel. It decides whether inodes can be released from removed
	// cgroups.
	Kernel kernel.Verdict
	// Resync is the time between two passes over the whole node; 0 stands for 30 s.
	Resync time.Duration
	// Events receives what happens to pods. It may be nil.
	Events Events
	// Bursts is where the credits of bursts are kept. If it is nil, no limit is raised.
	Bursts *burst.File
	// Recovery recovers from panics beside the events. If it is nil, such a panic ends the process.
	Recovery *recovery.Recovery
}

const (
	defaultResync = 30 * time.Second
	// DefaultKubeletRoot is the kubelet's own default.
	DefaultKubeletRoot = "/var/lib/kubelet"
)

// The work on one group of pods is bounded by a thousand times its normal duration. A call can hang in the
// kernel on a disk that fails, and the other groups must not wait for it.
const (
	passDeadline    = time.Second
	resolveDeadline = 5 * time.Second // resolving may read a mount table that has changed
	maxReconciled   = 4               // groups that are reconciled at the same time, without those that take longer than patientFor
	// patientFor is the time after which the work on a group goes on beside that on maxReconciled other groups.
	patientFor = 20 * time.Millisecond
)

// Node holds the state of one node: its pods, their requests, and the limits that they
// should have. Its methods are safe for concurrent use.
type Node struct {
	environment
	wake     signal // the queue of groups has changed, or there are unread bystanders
	all      signal // a pass over all pods is due
	told     told   // of the node as a whole; used by the reconciler only
	shared   atomic.Pointer[sharedReads]
	state    *guard.Value[state]
	isListed atomic.Bool // the runtime has listed the running containers: before that, the plugin does not know all of them
	policy   atomic.Pointer[policy.Policy]
	layers   *layers.Locator
	inFlight inFlight
	exits    exits
	metrics  *metrics
}

// environment has the parts of a Node that do not change.
type environment struct {
	log        logrus.FieldLogger
	storage    Storage
	cgroups    *cgroupfs.Hierarchy
	kernel     kernel.Verdict
	kubelet    string // its root directory
	resync     time.Duration
	nodeMemory uint64 // 0 where it is unknown
	controls   *enforce.Controls
	recovery   *recovery.Recovery
	// processMounts and events may be nil.
	processMounts func(ctx context.Context, pid int, cgroup string) ([]blkio.ProcessMount, error)
	events        Events
}

// signal wakes a goroutine. It holds at most one token.
type signal chan struct{}

func newSignal() signal { return make(signal, 1) }

// send wakes the goroutine. It does not wait.
func (s signal) send() {
	select {
	case s <- struct{}{}:
	default: // a token is in the channel already
	}
}

// inFlight holds the calls that have not returned. They can hang in the kernel.
type inFlight struct {
	calls  bounded.Calls // of the runtime's events
	passes bounded.Calls // of the reconciler
}

// New returns the state of a node, without pods. It fails where the kernel or the configuration cannot enforce
// anything.
func New(cfg Config) (*Node, error) {
	if cfg.Log == nil || cfg.Policy == nil || cfg.Storage == nil || cfg.Cgroups == nil {
		return nil, errors.New("node: Log, Policy, Storage and Cgroups are required")
	}
	wake := newSignal()
	n := &Node{
		environment: environment{
			log:           cfg.Log,
			storage:       cfg.Storage,
			cgroups:       cfg.Cgroups,
			kernel:        cfg.Kernel,
			kubelet:       cmp.Or(cfg.KubeletRoot, DefaultKubeletRoot),
			resync:        cmp.Or(cfg.Resync, defaultResync),
			nodeMemory:    cfg.NodeMemory,
			controls:      &enforce.Controls{Cgroups: cfg.Cgroups},
			recovery:      cfg.Recovery,
			processMounts: cfg.ProcessMounts,
			events:        cfg.Events,
		},
		wake:    wake,
		all:     newSignal(),
		state:   newState(wake),
		layers:  layers.New(cfg.Layers),
		metrics: newMetrics(),
	}
	n.metrics.pods = podmetrics.New(n.Measured, n.diskName, cfg.Cgroups, n.recovery.Count)
	n.inFlight.calls.Panicked, n.inFlight.passes.Panicked = n.recovery.Count, n.recovery.Count
	n.layers.Read, n.layers.Calls, n.layers.Moved = cfg.ReadLayers, &n.inFlight.passes, n.layersMoved
	n.setExits(cfg.Sync)
	n.selectNamespaces(nil, cfg.Policy)
	n.policy.Store(cfg.Policy)
	n.logReleases()
	n.controls.Refresh()
	return n, nil
}

// Reload puts a new node policy into force, for running containers too: the reconciler decides again on all
// containers, and those of bystanders that the new policy concerns.
func (n *Node) Reload(pol *policy.Policy) {
	n.selectNamespaces(n.policy.Load(), pol)
	n.policy.Store(pol)
	n.findConcerned(n.bystanding(), nil)
	n.logReleases()
	n.markAllDirty()
}

// Policy returns the node policy that is in force.
func (n *Node) Policy() *policy.Policy { return n.policy.Load() }

// Run watches the ends of containers and reconciles the node until ctx ends. It returns once neither writes any
// more, because only then another instance may serve the node. It does not wait for a call that hangs in the
// kernel.
func (n *Node) Run(ctx context.Context) {
	var parts sync.WaitGroup
	parts.Go(func() { n.recovery.Loop(ctx, "watch the exits of containers", n.exits.ends.Watch) })
	parts.Go(func() { n.recovery.Loop(ctx, "reconcile", n.reconcile) })
	parts.Go(func() { n.recovery.Loop(ctx, "locate writable layers", n.layers.AskAgain) })
	if n.events != nil {
		parts.Go(func() {
			n.recovery.Loop(ctx, "write events", func(ctx context.Context) { n.events.Run(ctx, n.present) })
		})
	}
	parts.Wait()
	n.inFlight.passes.Wait(passDeadline)
	n.inFlight.calls.Wait(passDeadline)
}

// releases reports whether the plugin may make the kernel move the inodes of removed cgroups. On a kernel that
// is not known to contain the corrections, the policy has to ask for it.
func (n *Node) releases() bool {
	return n.kernel.Corrected() || n.policy.Load().Writeback.Repair == policy.RepairOn
}

// logReleases logs that files of ended containers keep their owner, if the plugin releases none.
func (n *Node) logReleases() {
	if !n.releases() {
		n.log.WithField("kernel", n.kernel.String()).
			Info("Files of ended containers keep their owner until the kernel releases them (writeback.repair: true overrides this)")
	}
}
