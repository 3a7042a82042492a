package node

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// TestExecOutlives verifies that the limits of a container stay in force until its cgroup is empty, also after
// the runtime has reported its end. A process that is not the container's first one, such as that of an exec,
// can outlive the first one if the containers of the pod share a PID namespace, because then the kernel does
// not end it.
func TestExecOutlives(t *testing.T) {
	for name, isWatched := range map[string]bool{"with an exit watch": true, "without an exit watch": false} {
		t.Run(name, func(t *testing.T) {
			h, dir := tree(t, podCgroup, cgroupOf("a"))
			n := newNode(t, h)
			n.exits.writeout.Tidy = nothing
			sb := sandbox(map[string]string{limitsKey + "containers": "rootfs wbps=1Mi", limitsKey + "pod-total": "rootfs wbps=512Ki"})
			start(t, n, sb, "a")
			c := n.peek().pods[sb.ID].containers["id-a"]
			if isWatched {
				n.watched(c)
			}
			write(t, filepath.Join(dir, podCgroup, "memory.stat"), "file_dirty 0\nfile_writeback 0\n")
			n.Stopped(sb.ID, c.id)
			for range 5 {
				n.pass(t.Context())
				if !c.mayRun() {
					t.Fatalf("the container is %v", c.life.Phase())
				}
				if own, pod := wbps(t, n, cgroupOf("a")), wbps(t, n, podCgroup); own != 1<<20 || pod != 512<<10 {
					t.Fatalf("while a process runs the container has %v, the pod %v", own, pod)
				}
			}
			write(t, filepath.Join(dir, cgroupOf("a"), "cgroup.events"), "populated 0\nfrozen 0\n")
			if isWatched {
				if got, _ := n.pods.noteEnded(c.cgroup); got.id != c.id {
					t.Fatal("not found by its cgroup")
				}
				endedPod{n.applier(), c.pod.group}.Written(c.id, true)
			}
			if err := os.RemoveAll(filepath.Join(dir, cgroupOf("a"))); err != nil {
				t.Fatal(err)
			}
			for range 3 {
				n.pass(t.Context())
			}
			if got := wbps(t, n, podCgroup); got != blkio.Max {
				t.Errorf("after the last process the pod has %v", got)
			}
		})
	}
}
