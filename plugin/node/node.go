package node

import (
	"cmp"
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/blkio/kernel"
	"github.com/nri-blkio/nri-blkio/plugin/bounded"
	"github.com/nri-blkio/nri-blkio/plugin/enforce"
	"github.com/nri-blkio/nri-blkio/plugin/handover"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
	"github.com/nri-blkio/nri-blkio/plugin/reminder"
	"github.com/nri-blkio/nri-blkio/policy"
)

// Storage finds the disks of the node; a *storage.Storage.
type Storage interface {
	inventory.Storage
	handover.Storage
}

// Config is what a Node works with. Log, Policy, Storage and Cgroups are
// required.
type Config struct {
	Log     logrus.FieldLogger
	Policy  *policy.Policy
	Storage Storage
	Cgroups *cgroupfs.Hierarchy
	// ProcessMounts gives the mounts of a process that is in a cgroup; nil: a container's
	// mounts are taken to be where the paths of the host led to when it was created.
	ProcessMounts func(ctx context.Context, pid int, cgroup string) ([]blkio.ProcessMount, error)
	// KubeletRoot is the kubelet's root directory on the host, where the names of
	// pods' volumes are told from; "" is DefaultKubeletRoot.
	KubeletRoot string
	// NodeMemory is the node's MemTotal in bytes, 0 where it is unknown. A memory
	// limit that is large beside it bounds no dirty pages.
	NodeMemory uint64
	// Layers are where the containers' writable layers are stored.
	Layers inventory.Layers
	// ReadLayers finds that out anew, for the runtime of this name and version, and
	// returns when ctx ends at the latest; nil: they stay as they are. After an error
	// it is called again; what it returns beside one holds until then.
	ReadLayers func(ctx context.Context, runtime, version string) (inventory.Layers, error)
	// Sync writes out the filesystem of a host path, and may hang as long as
	// that does; nil: there is none.
	Sync func(ctx context.Context, hostPath string) error
	// Kernel is the verdict on the running kernel: whether inodes can be released from
	// removed cgroups without its bugs.
	Kernel kernel.Verdict
	// Resync is the time between two passes over the whole node; 0 is 30 s.
	Resync time.Duration
}

const (
	defaultResync = 30 * time.Second
	// DefaultKubeletRoot is the kubelet's own default.
	DefaultKubeletRoot = "/var/lib/kubelet"
)

// Node holds the state of one node: its pods, their requests, and the limits that they
// should have. Its methods are safe for concurrent use.
type Node struct {
	environment
	signals
	pods     podTable
	listing  listing
	policy   atomic.Pointer[policy.Policy]
	layers   layers
	resolver resolver
	inFlight inFlight
	exits    exits
	metrics  *metrics
}

// environment is what a Node works with. It does not change.
type environment struct {
	log        logrus.FieldLogger
	storage    Storage
	cgroups    *cgroupfs.Hierarchy
	kernel     kernel.Verdict
	kubelet    string // its root directory
	resync     time.Duration
	nodeMemory uint64                 // 0 where it is unknown
	weight     *enforce.WeightSupport // looks itself whether the kernel supports weights
	// The others may be nil.
	readLayers    func(ctx context.Context, runtime, version string) (inventory.Layers, error)
	processMounts func(ctx context.Context, pid int, cgroup string) ([]blkio.ProcessMount, error)
}

// signals wake the reconciler. Each holds at most one token.
type signals struct {
	wake chan struct{} // there are dirty groups
	all  chan struct{} // every pod is to be looked at
}

// listing is whether the runtime has listed what runs. Before, nothing is known of it.
type listing struct {
	done     atomic.Bool
	unlikely atomic.Bool // it may never do so
	// unlisted is what the cgroups have in its place; nil before they were read.
	unlisted atomic.Pointer[unlisted]
	unread   reminder.Reminder // of records of bystanders; used by the reconciler only
}

// inFlight is the calls that have not returned, which can hang in the kernel.
type inFlight struct {
	calls  bounded.Calls // of events
	passes bounded.Calls // of the reconciler
}

// New returns the state of this node, without pods. It fails where the kernel or the
// configuration cannot enforce anything.
func New(cfg Config) (*Node, error) {
	if cfg.Log == nil || cfg.Policy == nil || cfg.Storage == nil || cfg.Cgroups == nil {
		return nil, errors.New("node: Log, Policy, Storage and Cgroups are required")
	}
	wakes := signals{wake: make(chan struct{}, 1), all: make(chan struct{}, 1)}
	n := &Node{
		environment: environment{
			log:           cfg.Log,
			storage:       cfg.Storage,
			cgroups:       cfg.Cgroups,
			kernel:        cfg.Kernel,
			kubelet:       cmp.Or(cfg.KubeletRoot, DefaultKubeletRoot),
			resync:        cmp.Or(cfg.Resync, defaultResync),
			nodeMemory:    cfg.NodeMemory,
			weight:        &enforce.WeightSupport{Cgroups: cfg.Cgroups},
			readLayers:    cfg.ReadLayers,
			processMounts: cfg.ProcessMounts,
		},
		signals: wakes,
		pods:    newPodTable(wakes.wake),
		metrics: newMetrics(),
	}
	n.layers.environment, n.layers.pods, n.layers.passes = &n.environment, &n.pods, &n.inFlight.passes
	n.layers.questions = make(chan asked, 1)
	n.layers.current.Store(&placed{Layers: cfg.Layers})
	n.resolver = resolver{&n.environment, n.pods.neighbours}
	n.setExits(cfg.Sync)
	n.policy.Store(cfg.Policy)
	n.sayReleases()
	n.weight.Look()
	return n, nil
}

// Reload puts a new node policy into force, for running containers too: the
// reconciler decides anew what was decided by another policy. Bystanders that it concerns become known.
func (n *Node) Reload(pol *policy.Policy) {
	n.policy.Store(pol)
	n.admitBystanders()
	n.sayReleases()
	n.pods.markAllDirty()
}

// Policy returns the node policy that is in force.
func (n *Node) Policy() *policy.Policy { return n.policy.Load() }

// Unlisted notes that the runtime has not listed what runs, and may never do so.
func (n *Node) Unlisted() { n.listing.unlikely.Store(true) }
