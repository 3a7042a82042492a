package node

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/handover"
	"github.com/nri-blkio/nri-blkio/plugin/node/lifecycle"
	"github.com/nri-blkio/nri-blkio/policy"
)

// drainedPod is a pod with a backstop and a pod-total.
type drainedPod struct {
	*testing.T
	p *Node
}

func newDrainedPod(t *testing.T) *drainedPod {
	h, _ := tree(t, podCgroup)
	return &drainedPod{t, newNode(t, h)}
}

var drainedSandbox = sandbox(map[string]string{limitsKey + "containers": "rootfs wbps=1Mi", limitsKey + "pod-total": "rootfs rbps=9Mi"})

func (d *drainedPod) run(name string) *container {
	d.Helper()
	if _, err := d.p.create(d.Context(), drainedSandbox, ctr(name), false); err != nil {
		d.Fatal(err)
	}
	return d.p.findOrRegister(d.p.lookup(drainedSandbox), ctr(name)).in(d.p.peek())
}

// watched adds a container that has limits on writes to the exit watch.
func (n *Node) watched(c *container) {
	s := n.state.Lock()
	defer n.state.Unlock()
	c.exit.planned, c.exit.plan = true, handover.NewPlan(wbpsOf(rootDisk.Dev), nil)
	s.handle(c, lifecycle.CgroupPopulated)
	s.handle(c, lifecycle.WatchArmed)
}

// end sends the report of the exit watch and the events of the runtime, in this order.
func (d *drainedPod) end(c *container) {
	d.Helper()
	d.p.watched(c)
	if got, _ := d.p.noteEnded(c.cgroup); got.id != c.id {
		d.Fatal("not found by its cgroup")
	}
	d.p.Stopped("sb1", c.id)
	d.p.Removed("sb1", c.id)
}

// want checks the pod's limits on reading and writing.
func (d *drainedPod) want(rbps, wbps blkio.Amount) {
	d.Helper()
	want := blkio.Limits{blkio.Rbps: rbps, blkio.Wbps: wbps}
	if got := d.p.planFor(d.p.lookup(drainedSandbox).group).Pod.Want.DevLimits()[rootDisk.Dev]; got != want {
		d.Errorf("pod has %q, want %q", got, want)
	}
}

// TestDrained verifies that the pod's limits stay until the data of its containers is on its disk, and no
// longer. The next container brings them back.
func TestDrained(t *testing.T) {
	d := newDrainedPod(t)
	a := d.run("a")
	d.want(9<<20, 1<<20)
	d.end(a)
	// The backstop itself is kept by the record, see target.ended.
	d.want(9<<20, blkio.Unset)
	synctest.Test(t, func(t *testing.T) {
		results := make(chan error)
		d.p.exits.writeout.Syncs.Sync = func(context.Context, string) error { return <-results }
		d.p.writeOut(t.Context(), a.identity, handover.Unsynced{Volumes: []handover.Volume{{Path: "/mnt/a", Disk: rootDisk.Dev}, {Path: "/mnt/b", Disk: rootDisk.Dev}}})
		for range 2 {
			d.want(9<<20, blkio.Unset)
			results <- nil
			synctest.Wait()
		}
		d.want(blkio.Unset, blkio.Unset)
	})
	d.run("b")
	d.want(9<<20, 1<<20)
}

// TestDropCache verifies that a pod's page cache is dropped once all is written out and no container runs.
func TestDropCache(t *testing.T) {
	h, dir := tree(t, podCgroup)
	d := &drainedPod{t, newNode(t, h)}
	reclaimed := filepath.Join(dir, podCgroup, "memory.reclaim")
	write(t, filepath.Join(dir, podCgroup, "memory.current"), "4096\n")
	write(t, reclaimed, "")
	a, b := d.run("a"), d.run("b")
	synctest.Test(t, func(t *testing.T) {
		d.end(a)
		d.p.writeOut(t.Context(), a.identity, handover.Unsynced{})
		synctest.Wait()
		if got := read(t, reclaimed); got != "" {
			t.Errorf("%q is reclaimed while one runs", got)
		}
		d.end(b)
		d.p.writeOut(t.Context(), b.identity, handover.Unsynced{})
		synctest.Wait()
		if got := read(t, reclaimed); got != "4096" {
			t.Errorf("%q is reclaimed after the last one's end", got)
		}
	})
}

// TestDrainedWithoutSync verifies that a pod is drained if it has nothing to write, but not if that is unknown.
func TestDrainedWithoutSync(t *testing.T) {
	d := newDrainedPod(t)
	a := d.run("a")
	d.end(a)
	d.p.writeOut(t.Context(), a.identity, handover.Unsynced{})
	d.want(blkio.Unset, blkio.Unset)
	b := d.run("b")
	d.end(b)
	d.p.writeOut(t.Context(), b.identity, handover.Unsynced{More: true})
	d.want(9<<20, blkio.Unset)
	if phase := d.p.lookup(drainedSandbox).group.in(d.p.peek()).drain.Phase(); phase != lifecycle.Leftovers {
		t.Errorf("phase %v, want %v", phase, lifecycle.Leftovers)
	}
}

// TestLeftovers verifies that data that may not be written out keeps the pod's limits. No ended container is
// kept for it.
func TestLeftovers(t *testing.T) {
	for name, tt := range map[string]struct {
		end  func(n *Node, c *container)
		want lifecycle.DrainPhase
	}{
		"sync failed": {func(n *Node, c *container) {
			n.exits.writeout.Syncs.Sync = func(context.Context, string) error { return errors.New("no") }
			ended := make(chan struct{})
			n.exits.writeout.Tidy = func(context.Context, handover.Pod) { close(ended) }
			n.writeOut(context.Background(), c.identity, handover.Unsynced{Volumes: []handover.Volume{{Path: "/a", Disk: rootDisk.Dev}}})
			<-ended
		}, lifecycle.Leftovers},
		"not held":               {func(n *Node, c *container) { n.Stopped("sb1", c.id) }, lifecycle.Leftovers},
		"removed without a word": {func(n *Node, c *container) { n.watched(c); n.Removed("sb1", c.id) }, lifecycle.Leftovers},
		"hand-over switched off": {func(n *Node, c *container) { endedPod{n, c.pod.group}.Written(c.id, false) }, lifecycle.Leftovers},
		"nothing on limited disks": {func(n *Node, c *container) {
			c.exit.planned = true
			n.Stopped("sb1", c.id)
		}, lifecycle.Drained},
		"never ran": {func(n *Node, c *container) { n.noteStartRefused(c.identity); n.Stopped("sb1", c.id) }, lifecycle.Drained},
	} {
		t.Run(name, func(t *testing.T) {
			h, _ := tree(t, podCgroup)
			n := newNode(t, h)
			sb := sandbox(map[string]string{limitsKey + "pod-total": "rootfs wbps=9Mi"})
			if _, err := n.create(t.Context(), sb, ctr("a"), false); err != nil {
				t.Fatal(err)
			}
			c := n.findOrRegister(n.lookup(sb), ctr("a")).in(n.peek())
			g := c.pod.group.in(n.peek())
			if phase := g.drain.Phase(); phase != lifecycle.InUse {
				t.Errorf("%v while it runs", phase)
			}
			tt.end(n, c)
			if phase := g.drain.Phase(); phase != tt.want {
				t.Errorf("%v after its end, want %v", phase, tt.want)
			}
		})
	}
}

func wbpsOf(disk blkio.Dev) policy.Settings { return settingOf(disk, blkio.Wbps, 1<<20) }

func settingOf(disk blkio.Dev, key blkio.Key, amount blkio.Amount) policy.Settings {
	return policy.Settings{{Value: blkio.Value{Address: blkio.Address{Key: key, Dev: disk}, Amount: amount}}}
}
