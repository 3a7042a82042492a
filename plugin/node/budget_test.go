package node

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/internal/fakenode"
	"github.com/nri-blkio/nri-blkio/plugin/enforce/plan"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
	"github.com/nri-blkio/nri-blkio/plugin/podfacts"
	"github.com/nri-blkio/nri-blkio/policy/budget"
)

const tenantBudget = "budgets: [{namespaces: ['tenant-*'], limits: ['* wbps=200Mi']}]\n"

// noDeadline is a deadline that a busy machine does not miss: a container that is decided too late is created without
// a decision.
const noDeadline = 10 * time.Minute

// budgetNode is a node with a budget for the namespaces of tenants. The files of a container's cgroup are made with its
// first start.
type budgetNode struct {
	*Node
	t    testing.TB
	tree *cgroupfs.Hierarchy
	dir  string
	// silent is true while the runtime reports no end of a container that is refused.
	silent bool
}

func newBudgetNode(t testing.TB, text string) *budgetNode {
	t.Helper()
	b := &budgetNode{t: t}
	b.tree, b.dir = tree(t, "kubepods.slice")
	b.restart(text)
	b.Synchronize(nil, nil)
	return b
}

// restart replaces the process of the plugin.
func (b *budgetNode) restart(text string) {
	b.t.Helper()
	b.Node = newNode(b.t, b.tree)
	nodeDisks := fakenode.NewDisks()
	nodeDisks.Mount("/mnt/lv1", "lv1")
	b.storage = fakenode.MountTable{Disks: nodeDisks}
	b.policy.Store(rules(b.t, text))
}

func sliceOf(pod string) string { return "kubepods.slice/kubepods-pod" + pod + ".slice" }

// tenant returns a pod of the namespace tenant-a whose containers each have this value of the annotation, "" for none.
func tenant(pod, value string) *Sandbox {
	sb := &Sandbox{ID: "sb-" + pod, UID: "u" + pod, Cgroup: "/" + sliceOf(pod), Facts: podfacts.Facts{Name: pod, Namespace: "tenant-a"}}
	if value != "" {
		sb.Annotations = map[string]string{limitsKey + "containers": value}
	}
	return sb
}

// member returns a container of a pod.
func member(sb *Sandbox, name string, mounts ...inventory.Mount) *Container {
	id := sb.ID + "-" + name
	return &Container{ID: id, Sandbox: sb.ID, Name: name, Cgroup: filepath.Base(sb.Cgroup) + ":cri-containerd:" + id, Spec: specOf(name, mounts...)}
}

// createOf creates a container as the runtime does, which mostly reports the end of one that is refused.
func (b *budgetNode) createOf(sb *Sandbox, c *Container) error {
	makeCgroup(b.t, b.dir, sb.Cgroup)
	s := &session{b.Node, noDeadline}
	spec, err := s.CreateContainer(b.t.Context(), sb, c)
	if err != nil && !b.silent {
		s.StopContainer(sb, c)
		s.RemoveContainer(sb, c)
	}
	if err != nil {
		return err
	}
	c.Unified = plan.Unified(spec)
	return nil
}

// startOf starts a container, whose cgroup has a process then.
func (b *budgetNode) startOf(sb *Sandbox, c *Container) error {
	makeCgroup(b.t, b.dir, sb.Cgroup)
	makeCgroup(b.t, b.dir, b.cgroupOf(sb, c))
	return (&session{b.Node, noDeadline}).StartContainer(b.t.Context(), sb, c)
}

func (b *budgetNode) cgroupOf(sb *Sandbox, c *Container) string {
	return strings.TrimPrefix(sb.Cgroup, "/") + "/cri-containerd-" + c.ID + ".scope"
}

// run creates and starts a container.
func (b *budgetNode) run(sb *Sandbox, c *Container) {
	b.t.Helper()
	if err := errors.Join(b.createOf(sb, c), b.startOf(sb, c)); err != nil {
		b.t.Fatalf("container %s: %v", c.ID, err)
	}
}

// wantedKind is a way in which a pod asks for limits, with what each container counts for on the two disks.
type wantedKind struct {
	each, total string
	own, bound  [2]blkio.Amount // on vda and vdb; bound is blkio.Max for none
	// init is true if the first container of each sandbox is an init container, whose mount alone gives the pod its limit on vdb.
	init bool
	// volume is true if the data is on a logical volume of vda, and not on vdb.
	volume bool
}

func wantedKinds() []wantedKind {
	const mi, none = 1 << 20, blkio.Max
	return []wantedKind{
		{each: "* wbps=60Mi", own: [2]blkio.Amount{60 * mi, 60 * mi}, bound: [2]blkio.Amount{none, none}},
		{each: "rootfs wbps=30Mi; /data wbps=90Mi", own: [2]blkio.Amount{30 * mi, 90 * mi}, bound: [2]blkio.Amount{none, none}},
		{each: "* wbps=50Mi", total: "* wbps=80Mi", own: [2]blkio.Amount{50 * mi, 50 * mi}, bound: [2]blkio.Amount{80 * mi, 80 * mi}},
		{total: "* wbps=70Mi", own: [2]blkio.Amount{none, none}, bound: [2]blkio.Amount{70 * mi, 70 * mi}},
		{each: "rootfs wbps=40Mi", total: "/data wbps=20Mi", own: [2]blkio.Amount{40 * mi, none}, bound: [2]blkio.Amount{none, 20 * mi}},
		{total: "rootfs wbps=40Mi; /init wbps=10Mi", own: [2]blkio.Amount{none, none}, bound: [2]blkio.Amount{40 * mi, 10 * mi}, init: true},
		{own: [2]blkio.Amount{none, none}, bound: [2]blkio.Amount{none, none}},
		{each: "rootfs wbps=10Mi; /data wbps=25Mi", own: [2]blkio.Amount{35 * mi, 0}, bound: [2]blkio.Amount{none, none}, volume: true},
	}
}

type sumPod struct {
	kind       wantedKind
	sandboxes  []*Sandbox // the last one is the current one
	containers []*sumContainer
	begun      *Sandbox // the sandbox that has had its init container
}

type sumContainer struct {
	*Container
	sb    *Sandbox
	ended bool
	told  bool // of its end, or that another one has taken its place
}

// of returns the sum of a pod on each disk, without the containers of a name.
func (p *sumPod) of(except string, added int) (out [2]blkio.Amount) {
	for disk := range out {
		for _, c := range p.containers {
			if !c.told && c.Name != except {
				out[disk] = budget.Plus(out[disk], p.kind.own[disk])
			}
		}
		for range added {
			out[disk] = budget.Plus(out[disk], p.kind.own[disk])
		}
		out[disk] = min(out[disk], p.kind.bound[disk])
		if added == 0 && !slices.ContainsFunc(p.containers, func(c *sumContainer) bool { return !c.told && c.Name != except }) {
			out[disk] = 0
		}
	}
	return out
}

// TestBudgetOverlap verifies that, of concurrent creations, only as many succeed as the budget has room for.
func TestBudgetOverlap(t *testing.T) {
	b := newBudgetNode(t, tenantBudget)
	var created atomic.Int32
	var all sync.WaitGroup
	for i := range 20 {
		sb := tenant(fmt.Sprint("o", i), "* wbps=60Mi")
		all.Go(func() {
			if _, err := (&session{b.Node, noDeadline}).CreateContainer(t.Context(), sb, member(sb, "x")); err == nil {
				created.Add(1)
			}
		})
	}
	all.Wait()
	if created.Load() != 3 {
		t.Errorf("%d containers were created", created.Load())
	}
	if got := b.Budgets(); len(got) != 1 || got[0].Granted != 180*mi || got[0].Pods != 3 {
		t.Errorf("granted %+v", got)
	}
}
