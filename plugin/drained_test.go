package plugin

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
)

// drainedPod is a pod with a backstop and a pod-total.
type drainedPod struct {
	*testing.T
	p *Plugin
}

func newDrainedPod(t *testing.T) *drainedPod {
	h, _ := tree(t, podCgroup)
	return &drainedPod{t, newPlugin(t, h)}
}

var drainedSandbox = sandbox(map[string]string{limitsKey + "containers": "rootfs wbps=1Mi", limitsKey + "pod-total": "rootfs rbps=9Mi"})

func (d *drainedPod) run(name string) *container {
	d.Helper()
	if _, err := d.p.create(d.Context(), drainedSandbox, ctr(name), false); err != nil {
		d.Fatal(err)
	}
	return d.p.enter(d.p.lookup(drainedSandbox), ctr(name))
}

// end is what the watch and the runtime tell of a container, in this order.
func (d *drainedPod) end(c *container) {
	d.Helper()
	c.looked, c.held = true, true
	if got, _ := d.p.ended(c.cgroup); got != c {
		d.Fatal("not found by its cgroup")
	}
	d.p.stopped("sb1", c.id)
	d.p.removed("sb1", c.id)
}

// want checks the pod's limits on reading and writing.
func (d *drainedPod) want(rbps, wbps blkio.Rate) {
	d.Helper()
	want := blkio.Limits{blkio.Rbps: rbps, blkio.Wbps: wbps}
	if got := d.p.planFor(d.p.lookup(drainedSandbox).group).pod.want[rootDisk.Dev]; got != want {
		d.Errorf("pod has %q, want %q", got, want)
	}
}

// TestDrained: the pod's limits hold until what its containers have written is on
// its disk, and no longer; the next container brings them back.
func TestDrained(t *testing.T) {
	d := newDrainedPod(t)
	a := d.run("a")
	d.want(9<<20, 1<<20)
	d.end(a)
	// The backstop itself is kept by the record, see target.ended.
	d.want(9<<20, blkio.Unset)
	synctest.Test(t, func(t *testing.T) {
		results := make(chan error)
		d.p.exits.syncs.do = func(context.Context, string) error { return <-results }
		d.p.writeOut(t.Context(), a, leaves{volumes: []volume{{"/mnt/a", rootDisk.Dev}, {"/mnt/b", rootDisk.Dev}}})
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

// TestDrainedWithoutSync: nothing to write is nothing left, and what nobody knows
// of is not nothing.
func TestDrainedWithoutSync(t *testing.T) {
	d := newDrainedPod(t)
	a := d.run("a")
	d.end(a)
	d.p.writeOut(t.Context(), a, leaves{})
	d.want(blkio.Unset, blkio.Unset)
	b := d.run("b")
	d.end(b)
	d.p.writeOut(t.Context(), b, leaves{more: true})
	d.want(9<<20, blkio.Unset)
	if n := len(d.p.lookup(drainedSandbox).group.unwritten); n != 0 {
		t.Errorf("%d containers are left", n)
	}
}

// TestLeftovers: what was not written out for certain keeps the pod's limits, and
// no container that has ended is kept for it.
func TestLeftovers(t *testing.T) {
	for name, tt := range map[string]struct {
		end  func(p *Plugin, c *container)
		want bool
	}{
		"sync failed": {func(p *Plugin, c *container) {
			p.exits.syncs.do = func(context.Context, string) error { return errors.New("no") }
			done := make(chan struct{})
			p.writeOut(context.Background(), c, leaves{volumes: []volume{{"/a", rootDisk.Dev}}})
			p.exits.syncs.soon(context.Background(), volume{"/a", rootDisk.Dev}, func(error) { close(done) })
			<-done
		}, true},
		"not held":               {func(p *Plugin, c *container) { p.stopped("sb1", c.id) }, true},
		"removed without a word": {func(p *Plugin, c *container) { c.held = true; p.removed("sb1", c.id) }, true},
		"hand-over switched off": {func(p *Plugin, c *container) { p.abandon(c) }, true},
		"nothing on limited disks": {func(p *Plugin, c *container) {
			c.looked = true
			p.stopped("sb1", c.id)
		}, false},
		"never ran": {func(p *Plugin, c *container) { p.neverRan(c) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			h, _ := tree(t, podCgroup)
			p := newPlugin(t, h)
			sb := sandbox(map[string]string{limitsKey + "pod-total": "rootfs wbps=9Mi"})
			if _, err := p.create(t.Context(), sb, ctr("a"), false); err != nil {
				t.Fatal(err)
			}
			c := p.enter(p.lookup(sb), ctr("a"))
			g := c.pod.group
			if g.drained() {
				t.Error("drained while it runs")
			}
			tt.end(p, c)
			if g.leftovers != tt.want || g.drained() == tt.want || len(g.unwritten) != 0 {
				t.Errorf("leftovers %v, drained %v, %d left", g.leftovers, g.drained(), len(g.unwritten))
			}
		})
	}
}

// TestLeavesOf: all that is writable on a disk with a limit on writes.
func TestLeavesOf(t *testing.T) {
	on := func(where string, disk blkio.Dev) blkio.Backing {
		return blkio.Backing{Mountpoint: where, Disks: []blkio.Disk{{Dev: disk}}}
	}
	wbps := func(disk blkio.Dev) map[blkio.Dev]blkio.Limits {
		return map[blkio.Dev]blkio.Limits{disk: {blkio.Wbps: 1 << 20}}
	}
	c := container{facts: policy.Container{
		Rootfs: on("/", sda),
		Mounts: []policy.Mount{
			{Backing: on("/data", sdb)},
			{Backing: on("/ro", sdb), ReadOnly: true, Below: []policy.Below{{Backing: on("/ro/rw", sdb)}}},
			{Backing: on("/", sda), Injected: true},
			{Backing: blkio.Backing{Reason: notAsked}},
		},
	}}
	for name, tt := range map[string]struct {
		own, pod map[blkio.Dev]blkio.Limits
		want     []volume
		more     bool
	}{
		"own":       {wbps(sdb), nil, []volume{{"/data", sdb}, {"/ro/rw", sdb}}, true},
		"pod's":     {nil, wbps(sda), []volume{{"/", sda}}, true},
		"reads":     {map[blkio.Dev]blkio.Limits{sdb: {blkio.Rbps: 1 << 20}}, nil, nil, false},
		"max":       {map[blkio.Dev]blkio.Limits{sdb: {blkio.Wbps: blkio.Max}}, nil, nil, false},
		"elsewhere": {wbps(blkio.Dev{Major: 9}), nil, nil, true},
	} {
		if got := leavesOf(&c, tt.own, tt.pod); !slices.Equal(got.volumes, tt.want) || got.more != tt.more {
			t.Errorf("%s: %v, more: %v", name, got.volumes, got.more)
		}
	}
}
