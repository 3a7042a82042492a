package node

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"

	"github.com/nri-blkio/nri-blkio/blkio"
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

// TestBystanderWithManyMounts verifies that a container is limited on its known mounts if some were not kept,
// and that a warning names the missing ones.
func TestBystanderWithManyMounts(t *testing.T) {
	h, _ := tree(t, podCgroup, cgroupOf("a"))
	n := newNode(t, h)
	var log strings.Builder
	logger := logrus.New()
	logger.SetOutput(&log)
	n.log = logger
	var mounts []inventory.Mount
	for i := range 4000 {
		mounts = append(mounts, bind("/mnt/data/x", fmt.Sprintf("/data%d", i), "rbind"))
	}
	n.PassBy(batch(), ctr("a", mounts...), Running, n.Policy())
	n.Reload(rules(t, inProd))
	n.pass(t.Context())
	r := recordOf(t, n, cgroupOf("a"))
	limits := r.Settings.DevLimits()
	if limits[rootDisk.Dev][blkio.Wbps] != 20<<20 || limits[dataDisk.Dev][blkio.Wbps] != 20<<20 {
		t.Errorf("limits %v", limits)
	}
	const says = "did not keep all of the container's mounts"
	if !strings.Contains(r.Error, says) || !strings.Contains(log.String(), says) {
		t.Errorf("error %q, log %s", r.Error, log.String())
	}
	if _, _, failed := n.Counts(); failed != 1 {
		t.Errorf("%d containers count as failed", failed)
	}
}

// crowdedPod is a pod without annotations and with many labels.
func crowdedPod() *Sandbox {
	sb := batch()
	for i := range 10_000 {
		sb.Labels[fmt.Sprint("label-", i)] = strings.Repeat("x", 60)
	}
	return sb
}

// TestBystanderLabels verifies that of too many labels those are kept that the rules select pods by. A new
// policy may then have the wrong class for the pod. The event of the pod's next container, which has all
// labels, corrects that.
func TestBystanderLabels(t *testing.T) {
	for _, tt := range []struct {
		before string // the policy
		found  int    // pods by the new one
	}{{"", 0}, {"rules: [{name: r, match: {podSelector: {matchLabels: {tier: other}}}, class: silver}]", 1}} {
		h, _ := tree(t, podCgroup, cgroupOf("a"), cgroupOf("b"))
		n := newNode(t, h)
		n.Reload(rules(t, tt.before))
		var log strings.Builder
		logger := logrus.New()
		logger.SetOutput(&log)
		n.log = logger
		before := heap(t)
		n.PassBy(crowdedPod(), ctr("a"), Running, n.Policy())
		if used := (heap(t) - before) >> 10; used > 64 {
			t.Errorf("a pod with 10,000 labels takes %d KiB", used)
		}
		if err := n.readBystanders(t.Context(), unread); err != nil || !strings.Contains(log.String(), "Some labels of a pod") {
			t.Errorf("%v, log %s", err, log.String())
		}
		n.Reload(rules(t, inProd))
		n.pass(t.Context())
		if pods, _, _ := n.Counts(); pods != tt.found {
			t.Errorf("%q: %d pods are known", tt.before, pods)
		}
		s := &session{n, handlerDeadline}
		if spec, err := s.CreateContainer(t.Context(), crowdedPod(), ctr("b")); err != nil || spec.DevLimits()[rootDisk.Dev][blkio.Wbps] != 20<<20 {
			t.Errorf("%q: %v, %v", tt.before, spec, err)
		}
		n.pass(t.Context())
		if got := wbps(t, n, cgroupOf("a")); got != 20<<20 {
			t.Errorf("%q: limit %v", tt.before, got)
		}
	}
}

// TestLabelsOfKnown verifies that some labels are dropped for a pod with a class, too. The class stays under
// another policy that selects by the same labels.
func TestLabelsOfKnown(t *testing.T) {
	h, _ := tree(t, podCgroup, cgroupOf("a"))
	n := newNode(t, h)
	n.Reload(rules(t, inProd))
	start(t, n, crowdedPod(), "a")
	n.Reload(rules(t, strings.Replace(inProd, "bronze", "silver", 1)))
	n.pass(t.Context())
	if got := wbps(t, n, cgroupOf("a")); got != 40<<20 {
		t.Errorf("limit %v", got)
	}
	if kept := n.peek().pods["sb1"].request.now.Load().Labels; len(kept) != 1 || kept["tier"] != "batch" {
		t.Errorf("%d labels are kept", len(kept))
	}
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

// TestLeftOutIsFinal verifies that the limits of a container follow the policy although some of its mounts were
// not kept: limits of an earlier policy do not stay.
func TestLeftOutIsFinal(t *testing.T) {
	h, dir := tree(t, podCgroup, cgroupOf("a"))
	n := newNode(t, h)
	var mounts []inventory.Mount
	for i := range 4000 {
		mounts = append(mounts, bind("/mnt/data/x", fmt.Sprintf("/data%d", i), "rbind"))
	}
	n.PassBy(batch(), ctr("a", mounts...), Running, n.Policy())
	n.Reload(rules(t, inProd))
	n.pass(t.Context())
	write(t, dir+"/"+cgroupOf("a")+"/io.max", "254:0 rbps=max wbps=20971520 riops=max wiops=max\n254:16 rbps=max wbps=20971520 riops=max wiops=max\n")
	n.Reload(rules(t, "rules: [{name: all, class: data}]\n"))
	n.pass(t.Context())
	if got := wbps(t, n, cgroupOf("a")); got != blkio.Max {
		t.Errorf("another class: %v", got)
	}
	c := n.peek().pods["sb1"].containers["id-a"]
	what := soughtBy(c.pod.request.now.Load().Under(n.policy.Load()))
	if c.isPartial() || !c.isDecided(n.policy.Load()) || !c.isFound(what, n.layers.current.Load()) {
		t.Error("the container is resolved again with each pass")
	}
}
