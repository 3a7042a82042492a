package node_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/sirupsen/logrus"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/internal/fakenode"
	"github.com/nri-blkio/nri-blkio/plugin/bounded"
	"github.com/nri-blkio/nri-blkio/plugin/burst"
	"github.com/nri-blkio/nri-blkio/plugin/handover"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
	"github.com/nri-blkio/nri-blkio/plugin/node"
	"github.com/nri-blkio/nri-blkio/plugin/podevent"
	"github.com/nri-blkio/nri-blkio/plugin/recovery"
	"github.com/nri-blkio/nri-blkio/policy"
)

const (
	limitsKey = "limits.blkio.noderesource.dev/"
	weightKey = "weight.blkio.noderesource.dev/"
	resync    = 30 * time.Second // the default of Config
	deadline  = 500 * time.Millisecond
)

// world is a node of one script: the kernel, the disks, the runtime with its pods, the API server's documents, and the
// process of the plugin.
type world struct {
	ts     *testscript.TestScript
	kernel *fakenode.Kernel
	disks  *fakenode.Disks
	pods   map[string]*pod
	order  []string // of the names of pods
	ids    int
	process
	config
	views
	notes
	isDown   bool         // no event starts the plugin
	isSilent bool         // the runtime reports no end of a container that is rejected
	pending  <-chan error // of the container of "begin-create"
	refusal  error        // of the last container that was rejected
	plug     func()       // plugs in the disk that was unplugged last
}

// config is the configuration of the next process of the plugin.
type config struct {
	policy       *policy.Policy
	realMounts   bool
	layers       inventory.Layers
	nodeMemory   uint64
	isCRIO       bool
	listsStopped bool
	isRecovering bool
	isUnwatched  bool
	bursts       *burst.File
}

// process is the process of the plugin; node is nil while there is none.
type process struct {
	node      *node.Node
	connected bool // the runtime sends it events
	stop      func()
}

// views has what the process of the plugin reads beside the script.
type views struct {
	guard  sync.Mutex // guards the rest
	mounts map[int][]processMount
	unseen error            // of reads of the mounts of processes
	inUse  inventory.Layers // by the runtime
	root   string           // what the roots of processes are mounts of; "" for what their containers say
	upper  string           // the directory of the upper layers of processes; "" if their roots are no overlays
}

// processMount is a mount of a process, with the path of the host that it really leads to.
type processMount struct {
	blkio.ProcessMount
	source string
}

// notes has what the plugin has told so far.
type notes struct {
	t       *testing.T
	mu      sync.Mutex // guards the rest
	lines   []string
	events  []string
	syncs   []string
	failing map[string]error // of the runtime, and of syncs
	// present returns the pods whose events are kept, by their UIDs.
	present func() map[string]bool
	during  map[string]func() // what happens once within the call that logs a line with this text
}

func newWorld(t *testing.T) *world {
	layers := inventory.Layers{Default: inventory.Layer{Dir: "/var/lib/containerd"}}
	return &world{
		kernel: fakenode.NewKernel(t), disks: fakenode.NewDisks(), pods: map[string]*pod{}, notes: notes{t: t, during: map[string]func(){}, failing: map[string]error{}},
		config: config{policy: policy.Default(), layers: layers, bursts: &burst.File{Path: filepath.Join(t.TempDir(), "bursts.json"), Boot: "b", Now: sinceBoot}},
		views:  views{mounts: map[int][]processMount{}, inUse: layers},
	}
}

func sinceBoot() time.Duration { return time.Duration(time.Now().UnixNano()) }

func (w *world) close() {
	w.end()
	synctest.Wait()
}

// end ends the process of the plugin. Its calls that hang end with it.
func (w *world) end() {
	if w.node != nil {
		w.stop()
	}
	w.process = process{}
	w.forget()
	w.kernel.Writes()
}

// begin starts the process of the plugin, which is not connected.
func (w *world) begin() {
	ended := make(chan struct{})
	tree := w.kernel.Open(w.t, ended)
	log := logrus.New()
	log.SetOutput(io.Discard)
	log.SetLevel(logrus.DebugLevel)
	log.AddHook(&w.notes)
	cfg := node.Config{
		Log: log, Policy: w.policy, Storage: fakenode.MountTable{Disks: w.disks, Ended: ended}, Cgroups: tree,
		Layers: w.layers, Events: &w.notes, NodeMemory: w.nodeMemory,
		Sync: func(_ context.Context, host string) error { return w.sync(host, ended) },
	}
	cfg.ReadLayers = func(context.Context, string, string) (inventory.Layers, error) {
		if !w.disks.Wait("runtime", ended) {
			return inventory.Layers{}, errors.New("the process has ended")
		}
		if err := w.failure("runtime"); errors.Is(err, errPanic) {
			panic(err)
		} else if err != nil {
			return inventory.Layers{}, err
		}
		return w.runtimeLayers(), nil
	}
	if w.isRecovering {
		cfg.Recovery = recovery.New(log)
	}
	if w.realMounts {
		cfg.ProcessMounts = w.processMounts
	}
	n, err := node.New(cfg)
	w.ts.Check(err)
	exits := n.Exits()
	isUnwatched := w.isUnwatched
	exits.Open = func() (handover.Kernel, error) {
		if isUnwatched {
			return nil, errors.New("no inotify")
		}
		return w.kernel.NewWatch(func(ctx context.Context, held *fakenode.OpenCgroup) { exits.Exited(ctx, held) }), nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { n.Run(ctx) })
	bursts := burst.New(burst.Config{
		Log: log, File: w.bursts, Cgroups: tree, Room: func() blkio.Limits { return n.Policy().Bursts }, Demand: n.Bursting, Raise: n.Raise,
		Recovery: cfg.Recovery,
	})
	running.Go(func() { bursts.Run(ctx) })
	w.process = process{node: n, stop: func() {
		cancel()
		synctest.Wait() // what hangs now hangs for ever
		close(ended)
		running.Wait()
		synctest.Wait()
		tree.Close()
	}}
	synctest.Wait()
}

// up starts the process of the plugin if there is none, and connects it to the runtime.
func (w *world) up() {
	if w.node == nil {
		w.begin()
	}
	if !w.connected {
		w.connected = true
		sandboxes, containers := w.list()
		w.node.Synchronize(sandboxes, containers)
		synctest.Wait()
	}
}

// reachable reports whether the plugin gets the events of the runtime. The first event of a script starts it.
func (w *world) reachable() bool {
	if w.node == nil && !w.isDown {
		w.up()
	}
	return w.connected
}

// list is the list of the runtime, of the sandboxes that are ready, and of the containers that have not ended.
func (w *world) list() (sandboxes []*node.Sandbox, containers []*node.Container) {
	for _, name := range w.order {
		for _, sb := range w.pods[name].sandboxes {
			if sb.ready {
				sandboxes = append(sandboxes, sb.message())
			}
			for _, c := range sb.containers {
				if c.state != node.Stopped || w.listsStopped {
					containers = append(containers, c.message())
				}
			}
		}
	}
	return sandboxes, containers
}

// within calls an event's handler with the deadline of the runtime.
func within(fn func(ctx context.Context) error) error {
	ctx, cancel := bounded.Deadline(context.Background(), deadline)
	defer cancel()
	return fn(ctx)
}

func (w *world) sync(host string, ended <-chan struct{}) error {
	if !w.disks.Wait("sync "+host, ended) {
		return errors.New("the process has ended")
	}
	return w.noteSync(host)
}

func (n *notes) noteSync(host string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.syncs = append(n.syncs, host)
	return n.failing["sync "+host]
}

// fail makes what the runtime or a sync answers an error, or not if err is nil.
func (n *notes) fail(place string, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.failing[place] = err
}

func (n *notes) failure(place string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.failing[place]
}

// processMounts returns the mounts of a process.
func (w *world) processMounts(ctx context.Context, pid int, _ string) ([]blkio.ProcessMount, error) {
	mounts, err := w.mountsOf(pid)
	for i := range mounts { // which may hang
		m := &mounts[i]
		if root, upper := w.rootOf(); m.IsRoot {
			m.source = cmp.Or(root, m.source)
			if upper != "" {
				m.Upper = upper + "/7/fs"
			}
		}
		m.Backing = w.table().Resolve(ctx, m.source)
	}
	out := make([]blkio.ProcessMount, 0, len(mounts))
	for _, m := range mounts {
		out = append(out, m.ProcessMount)
	}
	return out, err
}

func (v *views) mountsOf(pid int) ([]processMount, error) {
	v.guard.Lock()
	defer v.guard.Unlock()
	if v.unseen != nil {
		return nil, v.unseen
	}
	return slices.Clone(v.mounts[pid]), nil
}

func (v *views) rootOf() (root, upper string) {
	v.guard.Lock()
	defer v.guard.Unlock()
	return v.root, v.upper
}

// show changes what the process of the plugin sees.
func (v *views) show(change func(v *views)) {
	v.guard.Lock()
	defer v.guard.Unlock()
	change(v)
}

func (v *views) runtimeLayers() inventory.Layers {
	v.guard.Lock()
	defer v.guard.Unlock()
	return v.inUse
}

// Levels implements logrus.Hook.
func (n *notes) Levels() []logrus.Level { return logrus.AllLevels }

// Fire keeps a line as "level message key=value...".
func (n *notes) Fire(e *logrus.Entry) error {
	line := e.Level.String() + " " + e.Message
	for _, key := range slices.Sorted(maps.Keys(e.Data)) {
		line += fmt.Sprintf(" %s=%v", key, e.Data[key])
	}
	if strings.Contains(line, "internal error: ") && !strings.Contains(line, errPanic.Error()) {
		n.t.Errorf("a panic: %s", line)
	}
	for _, do := range n.keep(line) {
		do()
	}
	return nil
}

// keep keeps a line, and returns what happens within the call that logs it.
func (n *notes) keep(line string) (due []func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lines = append(n.lines, line)
	for text, do := range n.during {
		if strings.Contains(line, text) {
			due = append(due, do)
			delete(n.during, text)
		}
	}
	return due
}

// errPanic is an answer that is a panic.
var errPanic = errors.New("no such key")

// eventKey is between an event and its key.
const eventKey = "\x00"

// Note keeps an event as "NAMESPACE/POD REASON NOTE".
func (n *notes) Note(of podevent.Pod, reason podevent.Reason, key podevent.Key, note string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.events = append(n.events, fmt.Sprintf("%s/%s %s %s%s%v", of.Namespace, of.Name, reason, podevent.Text(note), eventKey, key))
}

// Run implements node.Events.
func (n *notes) Run(ctx context.Context, present func() map[string]bool) {
	n.setPresent(present)
	<-ctx.Done()
}

func (n *notes) setPresent(present func() map[string]bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.present = present
}

// told returns what was told so far of one kind.
func (n *notes) told(kind *[]string) []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(*kind)
}

// forget forgets what was told so far.
func (n *notes) forget() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lines, n.events, n.syncs = nil, nil, nil
}

// policyText completes a policy of a script: without classes of its own it has bronze, silver and data.
func policyText(data string) []byte {
	if !strings.Contains(data, "classes:") {
		data = "classes: {bronze: {limits: ['* wbps=20Mi'], weight: 50}, silver: {limits: ['* wbps=40Mi']}, data: {limits: ['/data wbps=5Mi']}}\n" + data
	}
	return []byte("apiVersion: blkio.noderesource.dev/v1alpha1\nkind: NodePolicy\n" + data)
}
