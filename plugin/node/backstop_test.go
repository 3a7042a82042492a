package node

import (
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
)

// TestBackstop follows the limits of a pod's cgroup while containers come and go.
func TestBackstop(t *testing.T) {
	h, _ := tree(t, podCgroup)
	n := newNode(t, h)
	sb := sandbox(map[string]string{
		limitsKey + "container.a": "rootfs wbps=1Mi",
		limitsKey + "container.b": "rootfs wbps=2Mi riops=100",
		limitsKey + "pod-total":   "rootfs rbps=9Mi",
	})
	run := func(name string) {
		t.Helper()
		if _, err := n.create(t.Context(), sb, ctr(name), false); err != nil {
			t.Fatal(err)
		}
		n.pods.findOrRegister(n.lookup(sb), ctr(name))
	}
	const unset = blkio.Unset
	steps := []struct {
		name string
		do   func()
		want blkio.Limits
	}{
		{"one container", func() { run("a") }, blkio.Limits{9 << 20, 1 << 20, unset, unset}},
		{"another: the sum, and no riops as only one has it", func() { run("b") }, blkio.Limits{9 << 20, 3 << 20, unset, unset}},
		{"an unlimited one joins", func() { run("free") }, blkio.Limits{9 << 20, unset, unset, unset}},
		{"it stops", func() { n.Stopped("sb1", "id-free") }, blkio.Limits{9 << 20, 3 << 20, unset, unset}},
		{"the other stops", func() { n.Stopped("sb1", "id-a") }, blkio.Limits{9 << 20, 2 << 20, 100, unset}},
		{"nothing runs", func() { n.Removed("sb1", "id-b") }, blkio.Limits{9 << 20, unset, unset, unset}},
	}
	for _, step := range steps {
		step.do()
		total := n.applier().planFor(n.lookup(sb).group).Pod
		if got := total.Want.DevLimits()[rootDisk.Dev]; got != step.want {
			t.Fatalf("%s: pod has %q, want %q", step.name, got, step.want)
		}
	}
	n.RemovedPod("sb1")
	if len(n.peek().pods) != 0 || len(n.peek().queue.waiting) != 0 {
		t.Errorf("a removed pod left %v, %v", n.peek().pods, n.peek().queue.waiting)
	}
}

// TestBackstopAndTotal verifies that the smaller one of the two is in force, with its source.
func TestBackstopAndTotal(t *testing.T) {
	h, _ := tree(t, podCgroup)
	n := newNode(t, h)
	sb := sandbox(map[string]string{
		limitsKey + "containers": "rootfs wbps=4Mi wiops=50",
		limitsKey + "pod-total":  "rootfs wbps=3Mi wiops=60",
	})
	if _, err := n.create(t.Context(), sb, ctr("a"), false); err != nil {
		t.Fatal(err)
	}
	pod := n.lookup(sb)
	n.pods.findOrRegister(pod, ctr("a"))
	total := n.applier().planFor(pod.group).Pod
	if got, want := total.Want.DevLimits()[rootDisk.Dev], (blkio.Limits{blkio.Wbps: 3 << 20, blkio.Wiops: 50}); got != want {
		t.Errorf("pod has %q, want %q", got, want)
	}
	for _, l := range total.Record.Settings {
		want := policy.Source{Kind: policy.FromAnnotation, Name: limitsKey + "pod-total", Entry: 1, Target: "rootfs"}
		if l.Key == blkio.Wiops {
			want = policy.Source{Kind: policy.FromBackstop}
		}
		if l.Source != want {
			t.Errorf("%s comes from %#v, want %#v", l.Key, l.Source, want)
		}
	}
}

// TestNoBackstop verifies that a backstop is removed when it is disabled while it is in force.
func TestNoBackstop(t *testing.T) {
	h, _ := tree(t, podCgroup)
	n := newNode(t, h)
	sb := sandbox(map[string]string{limitsKey + "containers": "rootfs wbps=4Mi", limitsKey + "pod-total": "rootfs rbps=9Mi"})
	if _, err := n.create(t.Context(), sb, ctr("a"), false); err != nil {
		t.Fatal(err)
	}
	g := n.lookup(sb).group
	n.pods.findOrRegister(n.lookup(sb), ctr("a"))
	want := func(want blkio.Limits) {
		t.Helper()
		if got := n.applier().planFor(g).Pod.Want.DevLimits()[rootDisk.Dev]; got != want {
			t.Errorf("pod has %q, want %q", got, want)
		}
	}
	want(blkio.Limits{blkio.Rbps: 9 << 20, blkio.Wbps: 4 << 20})
	off := *n.policy.Load()
	off.Writeback.Backstop = false
	n.policy.Store(&off)
	if errs := n.resolveAll(t.Context(), g); errs != nil {
		t.Fatal(errs)
	}
	want(blkio.Limits{blkio.Rbps: 9 << 20})
}

// TestBackstopOfOneUser verifies that the pod is limited on a disk that only one of its containers has. Another one can write there
// all the same: to files that the first one has opened for it, or below /proc/PID/root if they share their processes.
func TestBackstopOfOneUser(t *testing.T) {
	b := newBudgetNode(t, tenantBudget+"rules: [{name: tenants, class: bronze, bounds: {max: ['* wbps=20Mi']}}]\n")
	sb := tenant("1", "")
	b.run(sb, member(sb, "a", bind("/mnt/data/x", "/data")))
	b.run(sb, member(sb, "b"))
	b.pass(t.Context())
	r := recordOf(t, b.Node, sliceOf("1"))
	if s, _ := r.Settings.Get(blkio.Address{Key: blkio.Wbps, Dev: dataDisk.Dev}); s.Amount != 20*mi {
		t.Errorf("on the disk of one container the pod has wbps=%v", s.Amount)
	}
}
