package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/plugin/enforce/plan"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
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
	sb := &Sandbox{ID: "sb-" + pod, Name: pod, Namespace: "tenant-a", UID: "u" + pod, Cgroup: "/" + sliceOf(pod)}
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

const noRoom = "containers: wbps=60Mi on disk vda exceeds the budget of namespace tenant-a: 180Mi of 200Mi are granted to 3 pods (wait for room, or write at most 20Mi)"

// TestBudget verifies that the creation of a container is rejected while the budget has no room, each time with
// the same message, and succeeds once there is room. Each namespace has a sum of its own, and namespaces that
// match no budget have none.
func TestBudget(t *testing.T) {
	b := newBudgetNode(t, tenantBudget)
	for _, pod := range []string{"a", "b", "c"} {
		sb := tenant(pod, "* wbps=60Mi")
		b.run(sb, member(sb, "x"))
	}
	b.wantGranted("three pods", "tenant-a vda wbps 180Mi of 200Mi, 3 pods")
	d := tenant("d", "* wbps=60Mi")
	for range 3 {
		b.silent = !b.silent
		b.wantRefusal(d, member(d, "x"), noRoom)
	}
	b.wantGranted("refused", "tenant-a vda wbps 180Mi of 200Mi, 3 pods")
	if got := scrape(t, b.Node); got["refused_containers_total{invalid}"] != 3 || got["budget_refused_containers_total"] != 3 || got["namespaces_over_budget"] != 0 {
		t.Errorf("metrics %v", got)
	}
	other := tenant("e", "* wbps=200Mi")
	other.Namespace = "tenant-b"
	b.run(other, member(other, "x"))
	free := tenant("f", "* wbps=1Gi")
	free.Namespace = "web"
	b.run(free, member(free, "x"))

	small := tenant("g", "* wbps=20Mi")
	b.run(small, member(small, "x"))
	b.wantGranted("full", "tenant-a vda wbps 200Mi of 200Mi, 4 pods; tenant-b vda wbps 200Mi of 200Mi, 1 pods")
	a := tenant("a", "")
	b.Stopped(a.ID, "sb-a-x")
	b.run(d, member(d, "x"))
	b.wantGranted("room", "tenant-a vda wbps 200Mi of 200Mi, 4 pods; tenant-b vda wbps 200Mi of 200Mi, 1 pods")
	for _, sb := range []*Sandbox{d, small, tenant("b", ""), tenant("c", "")} {
		b.RemovedPod(sb.ID)
	}
	b.wantGranted("removed", "tenant-b vda wbps 200Mi of 200Mi, 1 pods")
	b.RemovedPod(a.ID)
	if left := b.peek().namespaces["tenant-a"]; left != nil {
		t.Errorf("pods of the namespace are left: %v", left)
	}
}

// TestBudgetNeedsLimits verifies that a container that uses a disk without a limit is rejected, with or without
// annotations on its pod.
func TestBudgetNeedsLimits(t *testing.T) {
	const needs = `containers: wbps of * needs a limit: disk %s has none, and namespace tenant-a has a budget (write for example "* wbps=25Mi")`
	b := newBudgetNode(t, tenantBudget)
	data := bind("/mnt/data/x", "/data")
	for _, tt := range []struct{ value, disk string }{
		{"", "vda"}, {"* wiops=100", "vda"}, {"rootfs wbps=1Mi", "vdb"}, {"/data wbps=1Mi", "vda"}, {"* wbps=1Mi; /data wbps=max", "vdb"},
	} {
		sb := tenant("a", tt.value)
		b.wantRefusal(sb, member(sb, "x", data), fmt.Sprintf(needs, tt.disk))
		b.RemovedPod(sb.ID)
	}
	for i, value := range []string{"* wbps=1Mi", "rootfs wbps=1Mi; /data wbps=1Mi"} {
		sb := tenant(fmt.Sprint(i), value)
		b.run(sb, member(sb, "x", data))
	}
	readOnly := tenant("ro", "rootfs wbps=1Mi")
	b.run(readOnly, member(readOnly, "x", bind("/mnt/data/x", "/data", "ro")))
	b.wantGranted("limited", "tenant-a vda wbps 3Mi of 200Mi, 3 pods; tenant-a vdb wbps 2Mi of 200Mi, 2 pods")

	b.Reload(rules(t, tenantBudget+"rules: [{name: tenants, match: {namespaces: ['tenant-*']}, class: silver}]\n"))
	classed := tenant("classed", "")
	b.run(classed, member(classed, "x"))
	b.wantGranted("a class", "tenant-a vda wbps 43Mi of 200Mi, 4 pods; tenant-a vdb wbps 2Mi of 200Mi, 2 pods")
}

// TestBudgetOfRestartedContainer verifies that a container that is created again replaces the former one in the
// sum. The end of the former one may not be reported yet, and the runtime may have failed its creation without
// an event.
func TestBudgetOfRestartedContainer(t *testing.T) {
	for _, events := range []string{"none", "stopped", "removed", "never started"} {
		b := newBudgetNode(t, tenantBudget)
		sb := tenant("a", "* wbps=150Mi")
		first := member(sb, "x")
		if events == "never started" {
			if err := b.createOf(sb, first); err != nil {
				t.Fatal(err)
			}
		} else {
			b.run(sb, first)
		}
		switch events {
		case "stopped":
			b.Stopped(sb.ID, first.ID)
		case "removed":
			b.Stopped(sb.ID, first.ID)
			b.Removed(sb.ID, first.ID)
		}
		again := member(sb, "x")
		again.ID += "-2"
		again.Cgroup += "-2"
		b.run(sb, again)
		b.wantGranted(events, "tenant-a vda wbps 150Mi of 200Mi, 1 pods")
		b.Stopped(sb.ID, first.ID) // late
		b.Removed(sb.ID, first.ID)
		b.wantGranted(events+", late", "tenant-a vda wbps 150Mi of 200Mi, 1 pods")
		b.Stopped(sb.ID, again.ID)
		b.wantGranted(events+", ended", "")
	}
}

// TestBudgetOfReplacedSandbox verifies that two sandboxes of a pod count as one pod, and that a container in
// the new sandbox replaces the one in the old sandbox.
func TestBudgetOfReplacedSandbox(t *testing.T) {
	b := newBudgetNode(t, tenantBudget)
	first := tenant("a", "* wbps=90Mi")
	b.run(first, member(first, "x"))
	b.run(first, member(first, "y"))
	next := tenant("a", "* wbps=90Mi")
	next.ID = "sb-a2"
	b.run(next, member(next, "x"))
	b.wantGranted("both sandboxes", "tenant-a vda wbps 180Mi of 200Mi, 1 pods")
	b.RemovedPod(first.ID)
	b.wantGranted("one sandbox", "tenant-a vda wbps 90Mi of 200Mi, 1 pods")
	b.run(next, member(next, "y"))
	b.wantGranted("both containers", "tenant-a vda wbps 180Mi of 200Mi, 1 pods")
}

// TestBudgetOfPodTotal verifies that a pod counts for at most its pod-total. Containers without a limit of
// their own need no other limit, and count for all of the pod-total at once.
func TestBudgetOfPodTotal(t *testing.T) {
	b := newBudgetNode(t, tenantBudget)
	whole := tenant("a", "")
	whole.Annotations = map[string]string{limitsKey + "pod-total": "* wbps=100Mi"}
	b.run(whole, member(whole, "x"))
	b.wantGranted("without limits of containers", "tenant-a vda wbps 100Mi of 200Mi, 1 pods")
	b.run(whole, member(whole, "y"))
	b.wantGranted("two containers", "tenant-a vda wbps 100Mi of 200Mi, 1 pods")

	both := tenant("b", "* wbps=60Mi")
	both.Annotations[limitsKey+"pod-total"] = "* wbps=90Mi"
	b.run(both, member(both, "x"))
	b.wantGranted("below the total", "tenant-a vda wbps 160Mi of 200Mi, 2 pods")
	b.run(both, member(both, "y"))
	b.wantGranted("at the total", "tenant-a vda wbps 190Mi of 200Mi, 2 pods")
	b.run(both, member(both, "z"))
	b.Stopped(both.ID, "sb-b-x")
	b.Stopped(both.ID, "sb-b-z")
	b.wantGranted("below again", "tenant-a vda wbps 160Mi of 200Mi, 2 pods")

	more := tenant("c", "")
	more.Annotations = map[string]string{limitsKey + "pod-total": "* wbps=50Mi"}
	b.wantRefusal(more, member(more, "x"), "pod-total: wbps=50Mi on disk vda exceeds the budget of namespace tenant-a: 160Mi of 200Mi are granted to 2 pods (wait for room, or write at most 40Mi)")

	noCgroup := tenant("d", "* wbps=30Mi")
	noCgroup.Annotations[limitsKey+"pod-total"] = "* wbps=20Mi"
	noCgroup.Cgroup = ""
	b.Reload(rules(t, tenantBudget+"onError: {unenforceable: ignore}\n"))
	if err := b.createOf(noCgroup, member(noCgroup, "x")); err != nil {
		t.Fatal(err)
	}
	b.wantGranted("a total that cannot be in force", "tenant-a vda wbps 190Mi of 200Mi, 3 pods")
}

// TestBudgetOfKeptTotal verifies that a pod-total that a new policy rejects counts for as long as it stays in
// force.
func TestBudgetOfKeptTotal(t *testing.T) {
	b := newBudgetNode(t, tenantBudget)
	whole := tenant("a", "")
	whole.Annotations = map[string]string{limitsKey + "pod-total": "* wbps=1Mi"}
	b.run(whole, member(whole, "x"))
	b.Reload(rules(t, tenantBudget+"floors: {bps: 2Mi}\n"))
	b.pass(t.Context())
	b.wantGranted("kept", "tenant-a vda wbps 1Mi of 200Mi, 1 pods")
}

// TestBudgetObserved verifies that, in mode observe and if invalid requests are ignored, a container that
// exceeds the budget starts with a warning, and counts.
func TestBudgetObserved(t *testing.T) {
	for _, text := range []string{"mode: observe\n", "onError: {invalid: ignore}\n", "rules: [{name: r, mode: observe}]\n"} {
		b := newBudgetNode(t, tenantBudget+text)
		logs := logtest.NewLocal(b.log.(*logrus.Logger))
		for _, pod := range []string{"a", "b"} {
			sb := tenant(pod, "* wbps=150Mi")
			b.run(sb, member(sb, "x"))
		}
		b.wantGranted(text, "tenant-a vda wbps 300Mi of 200Mi, 2 pods")
		warned := 0
		for _, e := range logs.AllEntries() {
			if e.Level == logrus.WarnLevel && e.Message == "Container exceeds the budget of its namespace" {
				warned++
			}
		}
		got := scrape(t, b.Node)
		if warned != 1 || got["budget_refused_containers_total"] != 0 || got["namespaces_over_budget"] != 1 {
			t.Errorf("%s: %d warnings, metrics %v", text, warned, got)
		}
		unlimited := tenant("c", "")
		b.run(unlimited, member(unlimited, "x"))
		b.wantGranted(text+"without a limit", "tenant-a vda wbps max of 200Mi, 3 pods")
	}
}

// TestBudgetReload verifies that a lower budget ends no running container and changes no limit, and that new
// containers are rejected until there is room. A budget for a namespace that had none counts the containers
// that already run, with the classes of the new policy.
func TestBudgetReload(t *testing.T) {
	b := newBudgetNode(t, "")
	plain := tenant("plain", "")
	b.run(plain, member(plain, "x"))
	for _, pod := range []string{"a", "b"} {
		sb := tenant(pod, "* wbps=60Mi")
		b.run(sb, member(sb, "x"))
	}
	b.wantGranted("no budget", "")
	b.Reload(rules(t, tenantBudget))
	b.wantGranted("not decided by it yet", "tenant-a vda wbps 120Mi of 200Mi, 2 pods, 1 undecided")
	c := tenant("c", "* wbps=60Mi")
	b.wantRefusal(c, member(c, "x"), "the limits of a pod that runs are not decided yet (wait for room)")
	b.pass(t.Context())
	b.wantGranted("a pod without a limit", "tenant-a vda wbps max of 200Mi, 3 pods")
	b.wantRefusal(c, member(c, "x"), "a pod without a limit there counts as granted all of 200Mi (wait for room)")
	b.Reload(rules(t, tenantBudget+"rules: [{name: r, class: silver}]\n"))
	b.pass(t.Context())
	b.wantGranted("a class", "tenant-a vda wbps 160Mi of 200Mi, 3 pods")

	lower := strings.Replace(tenantBudget, "200Mi", "100Mi", 1)
	b.Reload(rules(t, lower+"rules: [{name: r, class: silver}]\n"))
	b.pass(t.Context())
	b.wantGranted("lower", "tenant-a vda wbps 160Mi of 100Mi, 3 pods")
	for cgroup, want := range map[string]blkio.Amount{"a": 60 << 20, "plain": 40 << 20} {
		sb := tenant(cgroup, "")
		if got := wbps(t, b.Node, b.cgroupOf(sb, member(sb, "x"))); got != want {
			t.Errorf("%s has the limit %v, want %v", cgroup, got, want)
		}
	}
	if got := scrape(t, b.Node)["containers{failed}"]; got != 0 {
		t.Errorf("%v containers count as failed", got)
	}
	b.wantRefusal(c, member(c, "x"), "160Mi of 100Mi are granted to 3 pods (wait for room)")
	b.Stopped("sb-a", "sb-a-x")
	b.wantRefusal(c, member(c, "x"), "100Mi of 100Mi are granted to 2 pods (wait for room)")
	b.Stopped("sb-b", "sb-b-x")
	b.run(c, member(c, "x"))
	b.wantGranted("room", "tenant-a vda wbps 100Mi of 100Mi, 2 pods")
}
