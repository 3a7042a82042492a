package node

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
	"github.com/nri-blkio/nri-blkio/policy"
)

// TestLateBesideEdit verifies that an edit that lowers another container applies while a container of the pod is late.
func TestLateBesideEdit(t *testing.T) {
	b := newBudgetNode(t, tenantBudget)
	request := func(a string) map[string]string {
		return annotationsOf(limitsKey+"container.a", "* wbps="+a, limitsKey+"container.x", "* wbps=60Mi")
	}
	full, late := tenant("1", "* wbps=150Mi"), tenant("2", "")
	late.Annotations = request("40Mi")
	b.run(full, member(full, "x"))
	a, c := member(late, "a"), member(late, "x")
	b.run(late, a)
	b.runLate(late, c)
	b.pass(t.Context())
	b.wantLimits("late", late, a, 40*mi, blkio.Max)
	b.wantLimits("late", late, c, 10*mi, blkio.Max)
	b.SetLive("u2", &Live{Namespace: "tenant-a", Name: "2", Annotations: request("20Mi")})
	b.pass(t.Context())
	b.pass(t.Context())
	b.wantLimits("edited", late, a, 20*mi, blkio.Max)
}

// TestLateBesideKinds verifies that a container has the class of its kind while another one of the pod is late.
func TestLateBesideKinds(t *testing.T) {
	b := newBudgetNode(t, tenantBudget+"rules: [{name: all, class: silver, containerClasses: {sidecar: bronze}}]\n")
	full, pod := tenant("1", "* wbps=150Mi"), tenant("2", "")
	b.run(full, member(full, "x"))
	side, c := member(pod, "side"), member(pod, "x")
	b.run(pod, side)
	b.runLate(pod, c)
	b.pass(t.Context())
	b.wantLimits("late", pod, side, 40*mi, blkio.Max)
	b.wantLimits("late", pod, c, 10*mi, blkio.Max)
	b.SetLive("u2", &Live{Namespace: "tenant-a", Name: "2", Kinds: policy.ContainerKinds{"side": policy.SidecarContainer}})
	b.pass(t.Context())
	b.pass(t.Context())
	b.wantLimits("kinds", pod, side, 20*mi, blkio.Max)
	b.wantLimits("kinds", pod, c, 30*mi, blkio.Max)
}

// TestLateWithoutRoomInRecord verifies that a restarted plugin knows a late container whose record has no room for warnings.
func TestLateWithoutRoomInRecord(t *testing.T) {
	b := newBudgetNode(t, tenantBudget)
	full, late := tenant("1", "* wbps=150Mi"), tenant("2", "")
	late.Annotations = annotationsOf(limitsKey+"container.x", "* wbps=60Mi", limitsKey+"containers", "* wbps=64Ki")
	late.Name = strings.Repeat("n", 200)
	f := member(full, "x")
	b.run(full, f)
	const others = 130
	var all []*Container
	for i := range others {
		o := member(late, fmt.Sprintf("c%d", i))
		b.run(late, o)
		all = append(all, o)
	}
	var mounts []inventory.Mount
	for i := range 16 { // each is a line of the record
		mounts = append(mounts, inventory.Mount{Type: "tmpfs", Source: "tmpfs", Destination: "/" + strings.Repeat("m", 50) + fmt.Sprint(i)})
	}
	c := member(late, "x", mounts...)
	b.runLate(late, c)
	b.pass(t.Context())
	if r := recordOf(t, b.Node, b.cgroupOf(late, c)); len(r.Warnings) > 0 {
		t.Fatalf("the record has room for %q", r.Warnings)
	}
	b.wantLimits("late", late, c, 50*mi-others*floor, blkio.Max)
	all = append(all, f, c)
	for _, o := range all {
		o.State = Running
	}
	b.restart(tenantBudget)
	b.Synchronize([]*Sandbox{full, late}, all)
	b.pass(t.Context())
	b.pass(t.Context())
	b.wantLimits("restarted", late, c, 50*mi-others*floor, blkio.Max)
}

// TestLateBeforeDecision verifies that the budget is also asked if the plugin restarts before it has decided the container.
func TestLateBeforeDecision(t *testing.T) {
	b := newBudgetNode(t, tenantBudget)
	full, late := tenant("1", "* wbps=150Mi"), tenant("2", "* wbps=60Mi")
	f, c := member(full, "x"), member(late, "x")
	b.run(full, f)
	broken := true
	b.storage = flaky{disks{twoDisks}, &broken}
	b.run(late, c)
	b.pass(t.Context())
	c.State, f.State = Running, Running
	b.restart(tenantBudget)
	b.Synchronize([]*Sandbox{full, late}, []*Container{f, c})
	b.pass(t.Context())
	b.pass(t.Context())
	b.wantLimits("restarted", late, c, 50*mi, blkio.Max)
}

// TestLateIsOneEvent verifies that a late container is one event of its pod, also while the other pods are granted more or less.
func TestLateIsOneEvent(t *testing.T) {
	b, events := newBudgetNode(t, tenantBudget), &noted{}
	b.events = events
	full, late, small := tenant("1", "* wbps=140Mi"), tenant("2", "* wbps=60Mi"), tenant("5", "* wbps=20Mi")
	b.run(full, member(full, "x"))
	b.SetLive("u2", &Live{Namespace: "tenant-a", Name: "2", Annotations: late.Annotations, Claims: claimsOf("")})
	b.run(small, member(small, "x"))
	b.runLate(late, member(late, "x"))
	for i := range 5 {
		b.pods.markDirty(b.peek().pods["sb-2"].group)
		b.settle(t.Context())
		b.RemovedPod(small.ID)
		small = tenant(fmt.Sprint(10+i), fmt.Sprintf("* wbps=%dMi", 19-i))
		b.run(small, member(small, "x"))
	}
	n := 0
	for _, line := range events.take() {
		if strings.Contains(line, "BlkioNotInForce") {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d events", n)
	}
}

// TestLabelsBesideKeptTotal verifies that edited labels apply while the pod as a whole keeps a limit that the policy rejects now.
func TestLabelsBesideKeptTotal(t *testing.T) {
	const rule = "rules: [{name: l, match: {podSelector: {matchLabels: {tier: x}}}}]\n"
	b := newBudgetNode(t, tenantBudget+rule)
	one := withTotal("* wbps=150Mi", "")
	b.run(one, member(one, "x"))
	b.pass(t.Context())
	b.Reload(rules(t, tenantBudget+rule+"bounds: {max: ['* wbps=100Mi']}\n"))
	b.pass(t.Context())
	b.pass(t.Context())
	const granted = "tenant-a vda wbps 150Mi of 200Mi, 1 pods"
	b.wantGranted("kept", granted)
	b.SetLive("u1", &Live{Namespace: "tenant-a", Name: "1", Labels: map[string]string{"tier": "x"}, Annotations: one.Annotations})
	b.pass(t.Context())
	b.pass(t.Context())
	if p := b.peek().pods["sb-1"]; p.request.now.Load().facts.Labels["tier"] != "x" {
		t.Errorf("the labels do not apply: %v", p.edit.err)
	}
	b.wantGranted("labels", granted)
}

// TestKindsKeepTotal verifies that a limit of pod-total that an ended init container has brought stays when the kinds of the pod's
// containers become known.
func TestKindsKeepTotal(t *testing.T) {
	for _, text := range []string{"", "rules: [{name: all, containerClasses: {init: silver}}]\n"} {
		b := newBudgetNode(t, tenantBudget+text)
		one := withTotal("rootfs wbps=40Mi; /init wbps=10Mi", "")
		init, app := member(one, "init", bind("/mnt/data/x", "/init")), member(one, "app", bind("/mnt/data/x", "/data"))
		b.run(one, init)
		b.end(one, init)
		b.Removed(one.ID, init.ID)
		b.run(one, app)
		b.pass(t.Context())
		const granted = "tenant-a vda wbps 40Mi of 200Mi, 1 pods; tenant-a vdb wbps 10Mi of 200Mi, 1 pods"
		b.wantGranted("before", granted)
		b.SetLive("u1", &Live{Namespace: "tenant-a", Name: "1", Annotations: one.Annotations, Kinds: policy.ContainerKinds{"init": policy.InitContainer}})
		b.pass(t.Context())
		b.pass(t.Context())
		b.wantGranted("kinds", granted)
	}
}

// TestMountRoomAfterRestart verifies that the mounts of an ended container take no room from another one after a restart, when the
// runtime lists both.
func TestMountRoomAfterRestart(t *testing.T) {
	b := newBudgetNode(t, "")
	sb := tenant("1", "rootfs wbps=10Mi")
	var many []inventory.Mount
	for i := range 2300 {
		source := fmt.Sprintf("/var/lib/kubelet/pods/u1/volumes/%s/%04d", strings.Repeat("x", 23), i)
		many = append(many, bind(source, fmt.Sprintf("/data/%s/%04d", strings.Repeat("y", 57), i)))
	}
	ended, again, other := member(sb, "a", many...), member(sb, "a", many...), member(sb, "b", many...)
	again.ID, again.Cgroup = again.ID+"2", again.Cgroup+"2"
	b.run(sb, ended)
	b.end(sb, ended)
	b.run(sb, again)
	b.run(sb, other)
	b.pass(t.Context())
	ended.State, again.State, other.State = Stopped, Running, Running
	b.restart("")
	b.Synchronize([]*Sandbox{sb}, []*Container{ended, again, other})
	b.pass(t.Context())
	b.pass(t.Context())
	if err := b.peek().pods["sb-1"].containers[other.ID].decision.err; err != nil {
		t.Error(err)
	}
}
