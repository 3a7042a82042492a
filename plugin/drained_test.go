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

// TestDrained: the pod's limits hold until what its containers have written is on
// its disk, and no longer; the next container brings them back.
func TestDrained(t *testing.T) {
	h, _ := tree(t, podCgroup, cgroupOf("a"), cgroupOf("b"))
	p := newPlugin(t, h)
	sb := sandbox(map[string]string{limitsKey + "containers": "rootfs wbps=1Mi", limitsKey + "pod-total": "rootfs rbps=9Mi"})
	run := func(name string) *container {
		t.Helper()
		if _, err := p.create(t.Context(), sb, ctr(name), false); err != nil {
			t.Fatal(err)
		}
		return p.enter(p.lookup(sb), ctr(name))
	}
	want := func(want blkio.Limits) {
		t.Helper()
		if got := p.planFor(p.lookup(sb).group).pod.want[rootDisk.Dev]; got != want {
			t.Errorf("pod has %q, want %q", got, want)
		}
	}
	const unset = blkio.Unset
	total, both := blkio.Limits{9 << 20, unset, unset, unset}, blkio.Limits{9 << 20, 1 << 20, unset, unset}

	a := run("a")
	want(both)
	// What the watch and the reconciler tell, in this order.
	end := func(c *container) {
		t.Helper()
		c.looked, c.held = true, true
		if got, _ := p.ended(c.cgroup); got != c {
			t.Fatal("not found by its cgroup")
		}
		p.stopped("sb1", c.id)
		p.removed("sb1", c.id)
	}
	end(a)
	want(total) // the backstop itself is kept by the record, see target.ended

	var results chan error
	p.exits.syncs.do = func(context.Context, string) error { return <-results }
	write := func(t *testing.T, c *container, answers ...error) {
		t.Helper()
		var l leaves
		for i := range answers {
			l.volumes = append(l.volumes, volume{"/mnt/" + string(rune('a'+i)), rootDisk.Dev})
		}
		p.writeOut(t.Context(), c, l)
		for _, err := range answers {
			want(total)
			results <- err
			synctest.Wait()
		}
	}
	synctest.Test(t, func(t *testing.T) {
		results = make(chan error)
		write(t, a, nil, nil)
		want(blkio.Limits{})
	})
	b := run("b")
	want(both)
	end(b)
	p.writeOut(t.Context(), b, leaves{}) // nothing to write
	want(blkio.Limits{})

	c := run("c")
	end(c)
	p.writeOut(t.Context(), c, leaves{more: true}) // nobody knows what
	want(total)
	if n := len(p.lookup(sb).group.unwritten); n != 0 {
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
