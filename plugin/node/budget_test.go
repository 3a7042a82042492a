package node

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/internal/fakenode"
	"github.com/nri-blkio/nri-blkio/plugin/enforce/plan"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
	"github.com/nri-blkio/nri-blkio/plugin/podfacts"
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
