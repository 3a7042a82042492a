package plugin

import (
	"path/filepath"
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// TestBackstop follows a pod's cgroup while containers come and go. The fake
// files keep only the last line written; the node tests show the rest.
func TestBackstop(t *testing.T) {
	h, dir := tree(t, podCgroup, cgroupOf("a"), cgroupOf("b"), cgroupOf("free"))
	p := newPlugin(t, h)
	sb := sandbox(map[string]string{
		limitsKey + "container.a": "rootfs wbps=1Mi",
		limitsKey + "container.b": "rootfs wbps=2Mi",
	})
	ioMax := func() blkio.Limits {
		t.Helper()
		all, err := h.Cgroup(podCgroup).ReadIOMax()
		if err != nil {
			t.Fatal(err)
		}
		return all[rootDisk.Dev]
	}
	reconcile := func() {
		t.Helper()
		for _, pod := range p.takeDirty() {
			if err := p.apply(t.Context(), pod, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	run := func(name string) {
		t.Helper()
		c := ctr(name)
		if _, err := p.create(t.Context(), sb, c, false); err != nil {
			t.Fatal(err)
		}
		if err := p.start(t.Context(), sb, c); err != nil {
			t.Fatal(err)
		}
	}
	steps := []struct {
		name string
		do   func()
		want blkio.Rate
	}{
		{"one container", func() { run("a") }, 1 << 20},
		{"raised before the second starts", func() { run("b") }, 3 << 20},
		{"an unlimited one joins", func() { run("free") }, blkio.Max},
		{"it leaves", func() { p.stopped("sb1", "id-free"); reconcile() }, 3 << 20},
		{"lowered after a stop", func() { p.stopped("sb1", "id-a"); reconcile() }, 2 << 20},
		{"removed", func() { p.removed("sb1", "id-b"); reconcile() }, blkio.Max},
	}
	for _, step := range steps {
		step.do()
		if got := ioMax()[blkio.Wbps]; got != step.want {
			t.Fatalf("%s: pod wbps=%v, want %v (%s)", step.name, got, step.want, read(t, filepath.Join(dir, podCgroup, "io.max")))
		}
	}
	if r, err := ReadRecord(h.Cgroup(podCgroup)); r != nil || err != nil {
		t.Errorf("a record outlived what it records: %+v, %v", r, err)
	}
}
