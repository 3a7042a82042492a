package node

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/plugin/inventory"
)

// manyMounts returns n mounts of a volume, as a pod can have them. Each text is one of its own, as in a message of the runtime.
func manyMounts(n int) []inventory.Mount {
	out := make([]inventory.Mount, 0, n)
	for i := range n {
		out = append(out, bind(strings.Clone(podVolumes+"empty-dir/v"), fmt.Sprintf("/%x", i), "rbind", "rprivate", "rw"))
	}
	return out
}

// TestMountMemory verifies that pods with as many mounts as the API server and a message of the runtime have room for take a
// bounded memory, whether their containers are rejected or run without a limit.
func TestMountMemory(t *testing.T) {
	const pods, containers = 5, 3
	for name, annotations := range map[string]map[string]string{
		"rejected": {limitsKey + "containers": "* wbps=1Mi"},
		"beside":   {limitsKey + "container.other": "rootfs wbps=1Mi"},
	} {
		h, _ := tree(t, podCgroup)
		n := newNode(t, h)
		mounts := manyMounts(26_000)
		before := heap(t)
		for i := range pods {
			sb := sandbox(annotations)
			sb.ID, sb.UID, sb.Cgroup = fmt.Sprint("sb", i), fmt.Sprint("u", i), strings.Replace("/"+podCgroup, "pod1", fmt.Sprint("pod", i), 1)
			for k := range containers {
				c := ctr(fmt.Sprint("c", k))
				c.Spec = func() *inventory.Spec { return &inventory.Spec{Name: c.Name, Mounts: manyMounts(len(mounts))} }
				if _, err := n.create(t.Context(), sb, c, true); (err != nil) != (name == "rejected") {
					t.Fatalf("%s: %v", name, err)
				}
			}
		}
		used := (heap(t) - before) >> 10
		if t.Logf("%s: %d pods take %d KiB", name, pods, used); used > pods*5<<10 {
			t.Errorf("%s: %d pods take %d KiB", name, pods, used)
		}
		runtime.KeepAlive(n)
		runtime.KeepAlive(mounts)
	}
}
