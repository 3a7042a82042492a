package node

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/record"
)

// TestTriedAgainSoon verifies that after a failure the reconciler does not wait for the next pass.
func TestTriedAgainSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, dir := tree(t, podCgroup)
		n := newNode(t, h)
		n.resync = time.Hour
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			n.reconcile(ctx)
		}()
		start(t, n, sandbox(map[string]string{limitsKey + "containers": "rootfs wbps=1Mi"}), "a")
		time.Sleep(time.Second)
		synctest.Wait()
		place(t, dir, "a")
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if got := wbps(t, n, cgroupOf("a")); got != 1<<20 {
			t.Errorf("the limit is %v, want 1 MiB/s", got)
		}
		cancel()
		<-done
	})
}

// TestHungResolutionIsCounted verifies that a pod's limits count as not in force while the resolution of one of its
// containers hangs, although other writes succeed.
func TestHungResolutionIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := tree(t, podCgroup, cgroupOf("a"), cgroupOf("b"))
		n := newNode(t, h)
		hang := make(chan struct{})
		n.storage = disks{func(path string) blkio.Backing {
			if strings.HasPrefix(path, "/mnt/hung") {
				<-hang
			}
			return twoDisks(path)
		}}
		sb := sandbox(map[string]string{limitsKey + "containers": "rootfs wbps=1Mi", limitsKey + "container.a": "/data wbps=1Mi"})
		a := listed("a", isRunning)
		a.Spec = specOf("a", bind("/mnt/hung/x", "/data"))
		n.Synchronize([]*Sandbox{sb}, []*Container{a, listed("b", isRunning)})
		for range 4 {
			n.pass(t.Context())
			if n.census().notInForce != 1 {
				t.Error("the pod does not count as not in force")
			}
		}
		if got := wbps(t, n, cgroupOf("b")); got != 1<<20 {
			t.Errorf("the neighbour has %v, want 1 MiB/s", got)
		}
		close(hang)
		synctest.Wait()
		if n.settle(t.Context()) != 1 {
			t.Error("the late result of the resolution did not make the pod dirty")
		}
		n.pass(t.Context())
		if n.census().notInForce != 0 {
			t.Error("counted as not in force")
		}
	})
}

// TestRecallsAgain verifies that a record that cannot be read is read again.
func TestRecallsAgain(t *testing.T) {
	h, dir := tree(t, podCgroup)
	n := newNode(t, h)
	sb := sandbox(map[string]string{limitsKey + "pod-total": "rootfs wbps=1Mi"})
	g := n.lookup(sb).group
	parent := filepath.Join(dir, filepath.Dir(podCgroup))
	if err := os.Rename(parent, parent+".away"); err != nil {
		t.Fatal(err)
	}
	write(t, parent, "no directory")
	if err := n.applier().recall(g); err == nil {
		t.Fatal("what is below a file can be read")
	}
	if n.applier().planFor(g); n.pods.planOf(g) != nil || !n.pods.mayRecall(g) {
		t.Error("a plan is kept that was made without the record")
	}
	if err := os.Remove(parent); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(parent+".away", parent); err != nil {
		t.Fatal(err)
	}
	want := record.Exit{Container: "gone", CgroupIDs: []uint64{7}}
	if err := record.Write(h.Cgroup(podCgroup), &record.Record{Kind: record.KindPod, Exits: []record.Exit{want}}); err != nil {
		t.Fatal(err)
	}
	n.pass(t.Context())
	if got := exitsOf(t, h); len(got) != 1 || got[0].Container != "gone" {
		t.Errorf("exits %+v", got)
	}
}

// TestLateRejection verifies that a creation that is rejected after the runtime has given it up, and has started the container,
// does not keep the container from counting for the budget.
func TestLateRejection(t *testing.T) {
	b := newBudgetNode(t, tenantBudget+"floors: {bps: 3Mi}\n")
	sb := tenant("1", "* wbps=2Mi")
	c := member(sb, "a", bind("/mnt/data/x", "/data"))
	b.place(sliceOf("1"))
	b.place(b.cgroupOf(sb, c))
	ctx, cancel := context.WithCancel(t.Context())
	once := true
	b.storage = disks{func(path string) blkio.Backing {
		if once && strings.HasPrefix(path, "/mnt/data") { // the disk answers late, and another policy is in force then
			once = false
			cancel()
			b.policy.Store(rules(t, tenantBudget))
			if err := b.start(t.Context(), sb, c, false); err != nil {
				t.Error(err)
			}
		}
		return twoDisks(path)
	}}
	pod := b.lookup(sb)
	if _, err := b.decideNew(ctx, pod, c, false); once || err == nil || !strings.Contains(err.Error(), "floor") {
		t.Fatalf("looked up %v, error %v", !once, err)
	}
	b.pass(t.Context())
	b.wantGranted("started", "tenant-a vda wbps 2Mi of 200Mi, 1 pods; tenant-a vdb wbps 2Mi of 200Mi, 1 pods")
}

// TestHungPodDelaysNoOther verifies that the reconciler limits the other pods while the disk of one does not answer.
func TestHungPodDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pods = 20
		var cgroups []string
		for i := range pods {
			cgroups = append(cgroups, podSlice(i), benchScope(i, "db"))
		}
		h, dir := tree(t, cgroups...)
		n := newNode(t, h)
		hang := make(chan struct{})
		n.storage = disks{func(path string) blkio.Backing {
			if strings.HasPrefix(path, podDir("/var/lib", 0)) {
				<-hang
			}
			return on(dataDisk)
		}}
		var sandboxes []*Sandbox
		var containers []*Container
		for i := range pods {
			sb, db, _ := benchPod(i, "/var/lib")
			db.State = isRunning
			sandboxes, containers = append(sandboxes, sb), append(containers, db)
		}
		n.Synchronize(sandboxes, containers)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { n.reconcile(ctx) })
		synctest.Wait() // no time has passed
		for i := range pods {
			text, want := read(t, filepath.Join(dir, benchScope(i, "db"), "io.max")), fmt.Sprintf("wbps=%d", 50<<20)
			if i > 0 && !strings.Contains(text, want) {
				t.Errorf("pod %d has %q, want %s", i, text, want)
			}
		}
		close(hang)
		cancel()
		running.Wait()
	})
}
