package node

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/blkio/storage"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
	"github.com/nri-blkio/nri-blkio/plugin/node/lifecycle"
)

// BenchmarkCompareMounts measures the time that a hostPath volume with a limit adds to StartContainer. The real
// kernel's mountinfo of a process with that many mounts is read, and compared with the spec. Other containers
// do not need this.
func BenchmarkCompareMounts(b *testing.B) {
	for _, count := range []int{15, 4000} {
		b.Run(fmt.Sprint(count), func(b *testing.B) {
			n, c := newCompared(b, count)
			var took []time.Duration
			for b.Loop() {
				again := c.snapshot
				began := time.Now() // here: the mount namespace is this thread's
				if err := n.finder().compareMounts(b.Context(), again.pod.request.now.Load().Under(n.policy.Load()).Targets(), &again); err != nil || again.disks.IsUncompared() {
					b.Fatal(err)
				}
				took = append(took, time.Since(began))
			}
			report(b, "compare", took)
		})
	}
}

// newCompared makes a container of n binds, and a process of the real kernel that has them.
func newCompared(b *testing.B, count int) (*Node, *container) {
	b.Helper()
	node, mountinfo := newMountedNode(b, 0)
	process := node.mkdir(b, node.dir("proc/123"))
	write(b, process+"/cgroup", "0::/"+cgroupOf("db")+"\n")
	write(b, process+"/mountinfo", "")
	volume := node.mkdir(b, node.dir("volume"))
	var spec []inventory.Mount
	for i := range count {
		at := node.mkdir(b, node.dir(fmt.Sprintf("rootfs/%04d", i)))
		node.mount(b, volume, at, "", unix.MS_BIND, "")
		spec = append(spec, bind(volume, at, "rbind", "rw"))
	}
	node.mount(b, mountinfo, process+"/mountinfo", "", unix.MS_BIND, "")
	storage, err := storage.Open(storage.Config{
		Sys: os.DirFS("/sys"), Mountinfo: "/proc/1/mountinfo", HostRoot: "/", Proc: filepath.Dir(process),
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { storage.Close() })
	h, _ := tree(b)
	n := newNode(b, h)
	n.storage, n.processMounts = storage, storage.ProcessMounts
	c := ctr("db", spec...)
	if _, err := n.create(b.Context(), limited("* wbps=1Mi"), c, false); err != nil {
		b.Fatal(err)
	}
	known := n.peek().pods["sb1"].container(c.ID)
	if !known.disks.IsUncompared() {
		b.Fatalf("nothing is to be compared: is %s on a disk that sysfs knows?", node)
	}
	known.pid = 123
	n.peek().handle(known, lifecycle.StartContainer)
	return n, known
}

// BenchmarkUnresolved measures how long the lock is held to find that nothing is to be done for a pod with many containers and as many
// targets as its author can write.
func BenchmarkUnresolved(b *testing.B) {
	h, _ := tree(b, podCgroup)
	n := newNode(b, h)
	var pairs []string
	for i := range 4 {
		var l []string
		for k := range 250 {
			l = append(l, fmt.Sprintf("/d/%x wbps=1M", i*250+k))
		}
		pairs = append(pairs, limitsKey+fmt.Sprint("container.n", i), strings.Join(l, ";"))
	}
	sb := sandbox(annotationsOf(pairs...))
	for i := range 100 {
		if _, err := n.create(b.Context(), sb, ctr(fmt.Sprint("x", i)), false); err != nil {
			b.Fatal(err)
		}
	}
	g := n.peek().pods[sb.ID].group
	for b.Loop() {
		if out, _ := n.unresolved(g, n.policy.Load(), n.layers.Current()); len(out) > 0 {
			b.Fatal("a container is not decided")
		}
	}
}
