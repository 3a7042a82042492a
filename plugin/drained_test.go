package plugin

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/nri-blkio/nri-blkio/blkio"
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
	p.stopped("sb1", "id-a")
	want(total) // the backstop itself is kept by the record, see target.ended

	results := make(chan error)
	p.exits.syncs.do = func(context.Context, string) error { return <-results }
	synctest.Test(t, func(t *testing.T) {
		results = make(chan error)
		p.writeOut(t.Context(), a, []string{"/mnt/a", "/mnt/b"})
		results <- nil
		synctest.Wait()
		want(total)
		results <- errors.New("no")
		synctest.Wait()
		want(total) // one of its volumes may have some left

		p.writeOut(t.Context(), a, []string{"/mnt/b"})
		results <- nil
		synctest.Wait()
		want(blkio.Limits{})
	})

	b := run("b")
	want(both)
	p.removed("sb1", "id-a")
	p.stopped("sb1", "id-b")
	p.removed("sb1", "id-b")
	want(total)
	p.writeOut(t.Context(), b, nil) // no volume, nothing to write
	want(blkio.Limits{})
}
