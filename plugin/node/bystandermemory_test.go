package node

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/plugin/inventory"
)

// heap returns the bytes in use.
func heap(t *testing.T) int64 {
	t.Helper()
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestBystanderMemory verifies that the facts that are kept for a later policy are small, and bounded for a
// tenant's pod with many mounts.
func TestBystanderMemory(t *testing.T) {
	h, _ := tree(t, podCgroup)
	n := newNode(t, h)
	before := heap(t)
	for i := range 250 {
		sb, db, sidecar := benchPod(i, "/var/lib")
		sb.Annotations = nil
		for _, c := range []*Container{db, sidecar} {
			spec := c.Spec()
			for len(spec.Mounts) < 15 {
				m := bind(fmt.Sprintf("/var/lib/kubelet/pods/%s/volumes/kubernetes.io~configmap/config-%d", sb.UID, len(spec.Mounts)), fmt.Sprintf("/etc/config-%d", len(spec.Mounts)), "rbind", "rprivate", "ro")
				spec.Mounts = append(spec.Mounts, m)
			}
			for k := range spec.Mounts { // each text is one of its own in a message
				m := &spec.Mounts[k]
				m.Destination, m.Type, m.Source = strings.Clone(m.Destination), strings.Clone(m.Type), strings.Clone(m.Source)
			}
			c.Spec = func() *inventory.Spec { return spec }
			n.PassBy(sb, c, Created, n.Policy())
			n.PassBy(sb, c, Running, n.Policy())
		}
	}
	if used := (heap(t) - before) >> 10; used > 4<<10 {
		t.Errorf("500 containers take %d KiB", used)
	} else {
		t.Logf("500 containers take %d KiB", used)
	}

	hostile := batch()
	mounts := make([]inventory.Mount, 0, 4000)
	for i := range cap(mounts) {
		mounts = append(mounts, bind("/mnt/data/"+strings.Repeat("x", 4000), fmt.Sprintf("/%s%d", strings.Repeat("y", 4000), i), "rbind"))
	}
	before = heap(t)
	for i := range 10 {
		n.PassBy(hostile, ctr(fmt.Sprint(i), mounts...), Running, n.Policy())
	}
	if used := (heap(t) - before) >> 10; used > 200 {
		t.Errorf("a pod with 40,000 mounts takes %d KiB", used)
	}
	runtime.KeepAlive(mounts)
}

// TestBystanderContainers verifies that the room is for all containers of a pod. Each further container takes
// little memory, and nothing of the text of the files in its OCI spec.
func TestBystanderContainers(t *testing.T) {
	h, _ := tree(t, podCgroup)
	n := newNode(t, h)
	before := heap(t)
	for i := range 2000 {
		tooLong := strings.Repeat("x", 4097)
		c := ctr(fmt.Sprint("c", i), bind("/mnt/data/x", "/data", "rbind"))
		c.Unified = map[string]string{"io.max": tooLong, "memory.high": "1024"}
		c.Mark = tooLong
		n.PassBy(batch(), c, Created, n.Policy())
	}
	used := heap(t) - before
	kept := n.peek().pods["sb1"].containers
	size, whole := 0, 0
	for _, c := range kept {
		size += c.disks.Size
		if c.disks.Size > 0 {
			whole++
		}
		if len(c.spec.Values()) > 0 || c.memoryLimit != 1024 {
			t.Fatalf("kept %v", c.spec)
		}
	}
	if len(kept) != 2000 || size > bystanderRoom || whole < 100 || whole == 2000 || used > 2000*3<<10 {
		t.Errorf("%d containers take %d bytes, %d of them for mounts, and %d of them are whole", len(kept), used, size, whole)
	}
	t.Logf("2,000 containers take %d KiB", used>>10)
}
