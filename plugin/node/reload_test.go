package node

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
)

// TestStricterPolicy verifies that a policy that rejects values that a running container was granted keeps them
// in force. This includes the limits of its pod, and holds after a restart of the plugin.
func TestStricterPolicy(t *testing.T) {
	h, dir := tree(t, podCgroup, cgroupOf("a"), cgroupOf("b"))
	n := newNode(t, h)
	sb := sandbox(map[string]string{
		limitsKey + "containers": "rootfs wbps=100Ki wiops=1k",
		limitsKey + "pod-total":  "rootfs wbps=150Ki rbps=120Ki",
	})
	for _, name := range []string{"a", "b"} {
		if _, err := n.create(t.Context(), sb, ctr(name), false); err != nil {
			t.Fatal(err)
		}
	}
	start(t, n, sb, "a", "b")
	// As the kernel has it: the files of the tree hold the last write alone.
	write(t, filepath.Join(dir, podCgroup, "io.max"), "254:0 rbps=122880 wbps=153600 riops=max wiops=2000\n")
	want := func(when string, refused bool) {
		t.Helper()
		own := blkio.Limits{blkio.Wbps: 100 << 10, blkio.Wiops: 1000}
		pod := blkio.Limits{blkio.Rbps: 120 << 10, blkio.Wbps: 150 << 10, blkio.Wiops: 2000}
		for cgroup, want := range map[string]blkio.Limits{cgroupOf("a"): own, cgroupOf("b"): own, podCgroup: pod} {
			r := recordOf(t, n, cgroup)
			if got := r.Settings.DevLimits()[rootDisk.Dev]; got != want {
				t.Errorf("%s: %s has %q, want %q", when, cgroup, got, want)
			}
			if got := wbps(t, n, cgroup); got != want[blkio.Wbps] {
				t.Errorf("%s: io.max of %s has %v, want %v", when, cgroup, got, want[blkio.Wbps])
			}
			if strings.Contains(r.Error, "floor") != refused || strings.Contains(fmt.Sprint(r.Warnings), "now rejects") != refused {
				t.Errorf("%s: %s: error %q, warnings %q", when, cgroup, r.Error, r.Warnings)
			}
		}
	}
	want("at first", false)
	stricter := policy.Default()
	stricter.Floors.Bps = 512 << 10
	n.Reload(stricter)
	n.pass(t.Context())
	want("stricter", true)
	if c := n.census(); c.states[stateFailed] != 2 {
		t.Errorf("states %v", c.states)
	}
	if _, err := n.create(t.Context(), sb, ctr("c"), false); err == nil {
		t.Error("a new container is not refused")
	}
	write(t, filepath.Join(dir, cgroupOf("a"), "io.max"), "254:0 rbps=max wbps=102400 riops=max wiops=1000\n") // the runtime, in an update
	n.Updated("sb1")
	n.pass(t.Context())
	want("updated", true)

	n = newNode(t, h)
	n.policy.Store(stricter)
	n.Synchronize([]*Sandbox{sb}, []*Container{listed("a", isRunning), listed("b", isRunning)})
	n.pass(t.Context())
	want("restarted", true)
	n.Reload(policy.Default())
	n.pass(t.Context())
	want("as at first", false)
}

// TestObservedNextSandbox verifies that a limit that a pod's cgroup keeps after its last known sandbox was
// removed is removed under mode: observe. That happens once a container of the next sandbox starts, or with the
// next pass.
func TestObservedNextSandbox(t *testing.T) {
	next := sandbox(map[string]string{limitsKey + "containers": "rootfs wbps=1Mi"})
	next.ID = "sb2"
	for _, text := range []string{"mode: observe\n", "rules: [{name: all, mode: observe}]\n"} {
		for _, starts := range []bool{true, false} {
			h, _ := tree(t, podCgroup, cgroupOf("a"), cgroupOf("b"))
			n := newNode(t, h)
			start(t, n, sandbox(next.Annotations), "a")
			n.Stopped("sb1", "id-a") // the data that it wrote may not be on its disk
			n.RemovedPod("sb1")
			n.Reload(rules(t, text))
			n.pass(t.Context())
			if got := wbps(t, n, podCgroup); got != 1<<20 {
				t.Fatalf("the pod has %v before", got)
			}
			if _, err := n.create(t.Context(), next, ctr("b"), false); err != nil {
				t.Fatal(err)
			}
			if starts {
				start(t, n, next, "b")
			} else {
				n.pass(t.Context())
			}
			if got := wbps(t, n, podCgroup); got != blkio.Max {
				t.Errorf("%s, starts %v: the pod has %v", text, starts, got)
			}
		}
	}
}

// TestDroppedFromSpec verifies that a value that this program put into a container's spec does not come back
// with an update once it is not desired any more. Another plugin's values stay.
func TestDroppedFromSpec(t *testing.T) {
	h, dir := tree(t, podCgroup, cgroupOf("a"), cgroupOf("foreign"))
	vm := policy.Default()
	vm.HostKernelHandlers = append(vm.HostKernelHandlers, "vm")
	n := newNode(t, h)
	n.policy.Store(vm)
	sb := sandbox(map[string]string{limitsKey + "container.a": "rootfs wbps=1Mi", weightKey + "container.a": "50"})
	sb.Handler = "vm"
	const line = "254:0 rbps=max wbps=1048576 riops=max wiops=max\n"
	written := func(n *Node, name string) { // by the runtime
		write(t, filepath.Join(dir, cgroupOf(name), "io.max"), line)
		write(t, filepath.Join(dir, cgroupOf(name), "io.weight"), "default 50\n")
		n.Updated("sb1")
	}
	unified := map[string]string{"io.max": "254:0 wbps=1048576", "io.weight": "50"}
	foreign := func(c *Container) *Container {
		c.Unified = unified
		return c
	}
	want := func(when, name string, rate blkio.Amount, weight string) {
		t.Helper()
		n.pass(t.Context())
		if got := wbps(t, n, cgroupOf(name)); got != rate {
			t.Errorf("%s: %s has %v, want %v", when, name, got, rate)
		}
		if got := read(t, filepath.Join(dir, cgroupOf(name), "io.weight")); got != "default "+weight {
			t.Errorf("%s: %s has io.weight %q, want %s", when, name, got, weight)
		}
	}
	if _, err := n.create(t.Context(), sb, ctr("a"), false); err != nil {
		t.Fatal(err)
	}
	written(n, "a")
	start(t, n, sb, "a")
	if err := n.start(t.Context(), sb, foreign(ctr("foreign")), true); err != nil {
		t.Fatal(err)
	}
	written(n, "foreign")
	want("at first", "a", 1<<20, "50")
	want("at first", "foreign", 1<<20, "50")
	n.Reload(policy.Default()) // the handler's limits mean nothing on this node
	want("dropped", "a", blkio.Max, "100")
	written(n, "a")
	want("updated", "a", blkio.Max, "100")
	want("dropped", "foreign", 1<<20, "50")

	n = newNode(t, h)
	n.Synchronize([]*Sandbox{sb}, []*Container{withSpec(listed("a", isRunning), unified), foreign(listed("foreign", isRunning))})
	want("restarted", "a", blkio.Max, "100")
	written(n, "a")
	want("updated after a restart", "a", blkio.Max, "100")
	want("restarted", "foreign", 1<<20, "50")
	n.Reload(vm)
	want("wanted again", "a", 1<<20, "50")
}
