// Package node holds the state of a node: its pods and containers, and the limits that they should have. It
// decides the limits at each event of the runtime (package policy), writes them to the cgroups (package
// enforce), and keeps them in force.
//
// Data flows one way: an event changes the desired values, these are compared with the actual values, and the
// differences are written.
package node

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/blkio/kernel"
	"github.com/nri-blkio/nri-blkio/plugin/burst"
	"github.com/nri-blkio/nri-blkio/plugin/enforce"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
	"github.com/nri-blkio/nri-blkio/plugin/node/layers"
	"github.com/nri-blkio/nri-blkio/plugin/node/metrics"
	"github.com/nri-blkio/nri-blkio/plugin/podfacts"
	"github.com/nri-blkio/nri-blkio/plugin/podmetrics"
	"github.com/nri-blkio/nri-blkio/plugin/recovery"
	"github.com/nri-blkio/nri-blkio/plugin/reminder"
	"github.com/nri-blkio/nri-blkio/policy"
)

// This file has the configuration of a Node, runs it, and takes what changes for all of it or is known by the API server.

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

// New returns the state of a node, without pods. It fails where the kernel or the configuration cannot enforce
// anything.
func New(cfg Config) (*Node, error) {
	if cfg.Log == nil || cfg.Policy == nil || cfg.Storage == nil || cfg.Cgroups == nil {
		return nil, errors.New("node: Log, Policy, Storage and Cgroups are required")
	}
	wake := make(chan struct{}, 1)
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
		all:     make(chan struct{}, 1),
		state:   newState(wake),
		layers:  layers.New(cfg.Layers),
		metrics: metrics.New(),
	}
	n.metrics.Pods = podmetrics.New(n.Measured, n.diskName, cfg.Cgroups, n.recovery.Count)
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

// SetLive notes what the API server knows now about the pod with a UID, whose values must not change afterwards. The
// pod need not exist yet. Nil forgets it, with an edit that does not count yet; what is in force stays in force. SetLive
// reads nothing of the node: the reconciler puts changes into force.
func (n *Node) SetLive(uid string, facts *podfacts.Facts) {
	if facts == nil {
		n.forgetLive(uid)
		return
	}
	kept, _ := facts.WithinRoom(n.policy.Load())
	l := live{Request: kept.Request("", ""), name: facts.Name, owner: facts.Owner, namespaceLabels: facts.NamespaceLabels}
	if why := facts.Omitted[podfacts.PartAnnotations]; why != "" {
		l.err = errors.New("too many annotations of this domain: " + why)
	}
	former, bystanding := n.noteLive(uid, l)
	n.findConcerned(bystanding, former)
}

// markAllDirty has the reconciler compare all groups.
func (n *Node) markAllDirty() {
	s := n.state.Lock()
	defer n.state.Unlock()
	for _, g := range s.groups {
		s.markDirty(g)
	}
}

// WeightsChanged wakes the reconciler for a pass over all pods after io.cost or bfq was enabled or disabled on a disk.
// A weight on a single disk can be written only while io.cost is enabled there. The value of a disk with bfq is true.
func (n *Node) WeightsChanged(byBFQ map[blkio.Dev]bool) {
	n.controls.SetBFQ(byBFQ)
	n.markAllDirty() // the warning of a weight appears or disappears
	reminder.Wake(n.all)
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
