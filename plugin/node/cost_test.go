package node

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/plugin/inventory"
	"github.com/nri-blkio/nri-blkio/plugin/podfacts"
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
			n.Enter(sb, c, Created)
			n.Enter(sb, c, Running)
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
		n.Enter(hostile, ctr(fmt.Sprint(i), mounts...), Running)
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
		n.Enter(batch(), c, Created)
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

// TestBystanderEnds verifies that no facts are kept of a container that was removed or that could not be created.
func TestBystanderEnds(t *testing.T) {
	h, _ := tree(t, podCgroup, cgroupOf("a"))
	n := newNode(t, h)
	kept := func(want ...string) {
		t.Helper()
		var got []string
		if p := n.peek().pods["sb1"]; p != nil {
			for _, c := range p.containers {
				got = append(got, c.id)
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("kept %v, want %v", got, want)
		}
	}
	for _, id := range []string{"a1", "a2", "a3", "b1"} {
		c := ctr(id[:1])
		c.ID = id
		n.Enter(batch(), c, Created)
	}
	kept("a3", "b1")
	again := ctr("a")
	again.ID = "a3"
	n.Enter(batch(), again, Running)
	kept("a3", "b1")
	n.Stopped("sb1", "b1")
	kept("a3", "b1")
	n.Removed("sb1", "b1")
	kept("a3")
}

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

// TestLiveCost verifies that the work for a live change of one pod does not grow with the labels and the number of the pods
// that do not concern the plugin: it has the lock that the events of all containers need.
func TestLiveCost(t *testing.T) {
	h, _ := tree(t, podCgroup)
	n := newNode(t, h)
	n.policy.Store(rules(t, inProd))
	live := map[string]*podfacts.Facts{}
	add := func(i int) {
		sb, db, _ := benchPod(i, "/var/lib")
		sb.Annotations, sb.Labels = nil, map[string]string{"tier": "web"}
		if n.Enter(sb, db, Running) {
			t.Fatal("the pod concerns the plugin")
		}
		labels := map[string]string{}
		for k := range 20 {
			labels[fmt.Sprint("label-", k)] = "x"
		}
		live[sb.UID] = &podfacts.Facts{Namespace: sb.Namespace, Name: sb.Name, Labels: labels}
		n.SetLive(sb.UID, live[sb.UID])
	}
	cost := func() float64 {
		sb, _, _ := benchPod(0, "/var/lib")
		return testing.AllocsPerRun(20, func() { n.SetLive(sb.UID, live[sb.UID]) })
	}
	add(0)
	one := cost()
	for i := range 200 {
		add(1 + i)
	}
	if many := cost(); many > one+2 { // 200 more with a copy of the labels of each pod
		t.Errorf("%v allocations beside one pod, %v beside 200", one, many)
	}
}
