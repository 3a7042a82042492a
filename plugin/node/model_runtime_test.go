package node

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/internal/fakenode"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
	"github.com/nri-blkio/nri-blkio/plugin/podfacts"
	"github.com/nri-blkio/nri-blkio/policy"
)

// modelRuntime plays containerd and the kubelet on a fakenode.Kernel. It has pods, and sends NRI's events one at a
// time. It loses events while no plugin is connected, and lists in Synchronize the pods and containers that
// containerd lists.
type modelRuntime struct {
	t     testing.TB
	k     *fakenode.Kernel
	disks *fakenode.Disks
	tree  *cgroupfs.Hierarchy
	log   logrus.FieldLogger

	// nri holds a token while an event is delivered. A channel, because a handler may
	// take until its deadline, and time stands still while a goroutine waits for a mutex.
	nri chan struct{}
	// telling holds a token while documents of pods change.
	telling chan struct{}

	mu      sync.Mutex // guards all below; never held while an event is delivered
	plugin  *Node
	session *session        // nil while disconnected
	ctx     context.Context // of the plugin
	stop    func()          // ends the plugin
	watch   func()          // ends the plugin's exit watch
	policy  *policy.Policy
	epoch   int  // changes with each policy, and with each disk that comes back
	syncs   int  // changes as the plugin starts or connects
	mounted bool // a filesystem is mounted in modelPropagated
	wasFull bool // an attribute may not have been stored
	broken  bool // the mount table could not be read at some time of this round
	crio    bool // it is CRI-O: all disks are in the spec, and it only logs an error of StartContainer
	calm    bool // nothing happens in this round that only a later pass mends
	pods    []*modelPod
	team    string // a label of the namespace of all pods
	ids     int
	history []string // the events so far, newest last
	events  int
}

// modelPod is one pod of the kubelet. Its fields but those of the model below are used
// by one goroutine at a time.
type modelPod struct {
	slot      int
	name, uid string
	owner     podfacts.Owner // the pod to which it lends; the zero value for none
	cgroup    string
	spec      modelSpec
	data      string // where the data of its next container is on the host

	// Guarded by modelRuntime.mu.

	sandboxes []*modelSandbox // the newest last
	modelEdits
	// begun is true if a container has begun since the plugin first knew one of the pod's sandboxes. unclean is
	// true if one has ended since then whose data may not be on its disk.
	begun, unclean bool
	// used is true if a container has ended that used a disk without a mount. The limit of the pod on that disk stays, because
	// the container has brought it.
	used bool
	past bool // a mount that had propagated into its containers has gone
	// missed is true if the plugin knows a sandbox that was removed while it was not connected. The plugin
	// keeps the pod until the next list.
	missed bool
	lent   bool // something was lent to it when the plugin was compared last
}

// modelSandbox is one sandbox; it is not ready once it was stopped.
type modelSandbox struct {
	id         string
	ready      bool
	containers []*modelContainer // that the runtime has
	told       bool              // the plugin was sent an event of one of its containers
	// reported are the annotations that the runtime reports, and tier is the label.
	reported map[string]string
	tier     string
	asked    *modelFacts // by which the plugin was last seen to decide; nil before
}

type modelState int

const (
	modelCreated modelState = iota
	modelRunning
	modelExited
)

// modelContainer is one container of the runtime. Its fields are guarded by modelRuntime.mu.
type modelContainer struct {
	id, name, cgroup string
	sandbox          *modelSandbox
	state            modelState
	data             string            // where its data is on the host
	unified          map[string]string // of its OCI spec
	mark             string            // the plugin's annotation in its OCI spec
	placed           bool              // its cgroup is there
	uses             bool              // it uses a disk that no mount declares
	propagates       bool              // mounts of the host propagate into it
	below            bool              // a mount of the host has propagated into it, and is there
	past             bool              // such a mount came or went: what was there before stays known until a restart, and cannot be synced
	looked           bool              // the plugin got its start, and resolved it without waiting for a disk
	// granted are the limits of annotations that it was last seen to have by a policy that
	// enforces and rejects nothing.
	granted modelLimits
	// claimed are the limits of its claim, likewise.
	claimed modelLimits
}

func newModelRuntime(t testing.TB) *modelRuntime {
	log := logrus.New()
	log.SetOutput(io.Discard)
	k := fakenode.NewKernel(t)
	k.Latency, k.Late = 100*time.Microsecond, modelLate
	tree := k.Open(t, nil)
	t.Cleanup(func() { tree.Close() })
	return &modelRuntime{
		t: t, k: k, disks: fakenode.NewDisks(), tree: tree, log: log, nri: make(chan struct{}, 1), telling: make(chan struct{}, 1),
		policy: policy.Default(), pods: make([]*modelPod, modelSlots),
	}
}

// restart ends the plugin and starts another one, which is not connected.
func (r *modelRuntime) restart() {
	r.lock()
	defer r.unlock()
	r.storeAll()
	r.end()
	r.mu.Lock()
	defer r.mu.Unlock()
	n, err := New(Config{
		Log: r.log, Policy: r.policy, Storage: fakenode.MountTable{Disks: r.disks}, Cgroups: r.tree,
		Layers: inventory.Layers{Default: inventory.Layer{Dir: "/var/lib/containerd"}},
		Sync: func(_ context.Context, host string) error {
			r.disks.Wait("sync "+host, nil)
			return nil
		},
	})
	if err != nil {
		r.t.Error(err)
		return
	}
	r.tellAll(n)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { n.reconcile(ctx) })
	r.plugin, r.session = n, nil
	r.syncs++
	r.ctx, r.watch = ctx, r.watchExits(ctx, n)
	r.stop = func() { cancel(); running.Wait() }
	for _, pod := range r.pods {
		if pod != nil {
			r.forgotten(pod)
			pod.unsettled = pod.unsettled || pod.claimed // the plugin follows a document some ms after it knows the pod
			for _, sb := range pod.sandboxes {
				if sb.told = false; sb.asked != nil && !pod.hasDocument {
					asked := sb.asked.withoutVolumes() // no record has them
					sb.asked = &asked
				}
			}
		}
	}
}

// end ends the plugin. A process that ends takes its calls along, here they come back first.
func (r *modelRuntime) end() {
	r.mu.Lock()
	stop, watch, n := r.stop, r.watch, r.plugin
	r.mu.Unlock()
	if stop == nil {
		return
	}
	r.heal()
	watch()
	stop()
	for n.inFlight.calls.Count()+n.inFlight.passes.Count() > 0 {
		time.Sleep(time.Millisecond)
	}
}

// forgotten is called when the plugin knows no sandbox of a pod any more. The caller holds mu.
func (r *modelRuntime) forgotten(pod *modelPod) {
	pod.begun, pod.unclean, pod.missed, pod.lent = false, !r.policy.Writeback.HandOver, false, false
}

func (r *modelRuntime) lock()   { r.nri <- struct{}{} }
func (r *modelRuntime) unlock() { <-r.nri }

// deliver sends an event, unless no plugin is connected.
func (r *modelRuntime) deliver(event func(s *session)) (delivered bool) {
	r.lock()
	defer r.unlock()
	r.mu.Lock()
	s := r.session
	r.mu.Unlock()
	if s == nil {
		return false
	}
	event(s)
	return true
}

// connect registers the plugin and lists the pods and containers to it.
func (r *modelRuntime) connect() {
	r.lock()
	defer r.unlock()
	r.mu.Lock()
	if r.session != nil {
		r.mu.Unlock()
		return
	}
	r.session = &session{r.plugin, 500 * time.Millisecond}
	r.syncs++
	s := r.session
	var sandboxes []*Sandbox
	var containers []*Container
	for _, pod := range r.pods {
		if pod == nil {
			continue
		}
		// A sandbox that is listed joins those that the plugin knew before these leave.
		told, ready := pod.missed, false
		pod.missed = false
		for _, sb := range pod.sandboxes {
			told, ready = told || sb.told, ready || sb.ready
		}
		if !told || !ready {
			r.forgotten(pod)
		}
		for _, sb := range pod.sandboxes {
			if !sb.ready {
				sb.told = false
				continue
			}
			sb.told = true
			sandboxes = append(sandboxes, pod.sandbox(sb))
			for _, c := range sb.containers {
				if c.state != modelExited { // containerd does not list those
					containers = append(containers, pod.container(c))
					pod.begun = pod.begun || c.state == modelRunning
				}
			}
		}
	}
	r.mu.Unlock()
	s.n.Synchronize(sandboxes, containers)
}

func (r *modelRuntime) disconnect() {
	r.lock()
	defer r.unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.session = nil
}

func (r *modelRuntime) reload(pol *policy.Policy) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.policy = pol
	for _, pod := range r.pods {
		if pod == nil {
			continue
		}
		pod.unclean = pod.unclean || !pol.Writeback.HandOver
		if len(pod.sandboxes) > 0 && r.ruled(pod).Mode() == policy.ModeObserve { // none while the pod is removed
			for _, sb := range pod.sandboxes {
				for _, c := range sb.containers {
					c.granted = nil
				}
			}
		}
	}
	if !heedsClaims(pol) {
		r.eachContainer(func(c *modelContainer) { c.claimed = nil })
	}
	r.epoch++
	r.plugin.Reload(pol)
}

// heal makes all disks and cgroups answer without errors.
func (r *modelRuntime) heal() {
	r.k.Heal()
	r.disks.AnswerAll()
	r.disks.BreakTable(nil)
}

// setLimits writes lines to io.max, as another program does.
func (r *modelRuntime) setLimits(cgroup, lines string) {
	if err := r.k.SetLimits(cgroup, lines); err != nil {
		r.t.Error(err)
	}
}

// eachContainer calls fn for all containers of the runtime. The caller holds mu.
func (r *modelRuntime) eachContainer(fn func(*modelContainer)) {
	for _, p := range r.pods {
		if p != nil {
			for _, sb := range p.sandboxes {
				for _, c := range sb.containers {
					fn(c)
				}
			}
		}
	}
}

// in returns the containers of a sandbox in these states.
func (r *modelRuntime) in(sb *modelSandbox, states ...modelState) []*modelContainer {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []*modelContainer
	for _, c := range sb.containers {
		if slices.Contains(states, c.state) {
			out = append(out, c)
		}
	}
	return out
}

// note keeps an event for the report of a failure.
func (r *modelRuntime) note(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events++
	r.history = append(r.history, fmt.Sprintf("%5d ", r.events)+fmt.Sprintf(format, args...))
	if n := len(r.history) - modelHistory; n > 0 {
		r.history = slices.Delete(r.history, 0, n)
	}
}
