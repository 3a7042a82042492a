package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/plugin/enforce/plan"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
	"github.com/nri-blkio/nri-blkio/plugin/podfacts"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
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
	b.storage = newVolumes()
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
	b.place(strings.TrimPrefix(sb.Cgroup, "/"))
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
	b.place(strings.TrimPrefix(sb.Cgroup, "/"))
	b.place(b.cgroupOf(sb, c))
	return (&session{b.Node, noDeadline}).StartContainer(b.t.Context(), sb, c)
}

// place makes the files of a cgroup with a process.
func (b *budgetNode) place(cgroup string) {
	dir := filepath.Join(b.dir, cgroup)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		b.t.Fatal(err)
	}
	write(b.t, filepath.Join(dir, "io.max"), "")
	write(b.t, filepath.Join(dir, "io.weight"), "default 100\n")
	write(b.t, filepath.Join(dir, "cgroup.events"), "populated 1\nfrozen 0\n")
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

// granted returns what the node reports: "tenant-a vda wbps 60Mi of 200Mi, 1 pods".
func (b *budgetNode) granted() string {
	var out []string
	for _, u := range b.Budgets() {
		out = append(out, fmt.Sprintf("%s %s %s %s of %s, %d pods", u.Namespace, u.Disk.Name, u.Key,
			annotation.FormatAmount(u.Key, u.Granted), annotation.FormatAmount(u.Key, u.Budget), u.Pods))
		if u.Undecided > 0 {
			out[len(out)-1] += fmt.Sprintf(", %d undecided", u.Undecided)
		}
	}
	return strings.Join(out, "; ")
}

func (b *budgetNode) wantGranted(when, want string) {
	b.t.Helper()
	if got := b.granted(); got != want {
		b.t.Errorf("%s: granted %q, want %q", when, got, want)
	}
}

// wantRefusal checks the error of a creation.
func (b *budgetNode) wantRefusal(sb *Sandbox, c *Container, want string) {
	b.t.Helper()
	err := b.createOf(sb, c)
	if _, isRefusal := errors.AsType[*annotation.Error](err); !isRefusal || !strings.HasSuffix(err.Error(), want) {
		b.t.Errorf("container %s: %v, want an error with %s", c.ID, err, want)
	}
}
