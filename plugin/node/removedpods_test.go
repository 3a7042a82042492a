package node

import (
	"os"
	"path/filepath"
	"testing"
)

// TestRemovalIsNotReported verifies that a pod is forgotten although the runtime does not report its removal. A
// restarted containerd reports the removal of containers that it had before, but not that of their pods.
// Without this, the pod and its group were kept until the next registration: a leak that grew with each restart
// of the runtime.
func TestRemovalIsNotReported(t *testing.T) {
	h, dir := tree(t, podCgroup, cgroupOf("a"))
	n := newNode(t, h)
	sb := sandbox(map[string]string{limitsKey + "containers": "rootfs wbps=1Mi"})
	a := ctr("a")
	a.State = Running
	n.Synchronize([]*Sandbox{sb}, []*Container{a})
	known := func(want int, when string) {
		t.Helper()
		n.pass(t.Context())
		if len(n.peek().pods) != want || len(n.peek().groups) != want {
			t.Errorf("%s: %d pods and %d groups are known, want %d", when, len(n.peek().pods), len(n.peek().groups), want)
		}
	}
	known(1, "it runs")
	n.Stopped(sb.ID, a.ID)
	n.Removed(sb.ID, a.ID)
	known(1, "its container has gone, it may get another one")
	if err := os.RemoveAll(filepath.Join(dir, podCgroup)); err != nil {
		t.Fatal(err)
	}
	known(0, "its cgroup has gone")

	// An event of a sandbox that is there after all brings the pod back.
	tree := filepath.Join(dir, cgroupOf("b"))
	if err := os.MkdirAll(tree, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(tree, "io.max"), "")
	write(t, filepath.Join(dir, podCgroup, "io.max"), "")
	if err := n.start(t.Context(), sb, ctr("b"), true); err != nil {
		t.Fatal(err)
	}
	known(1, "another container of it has started")
}
