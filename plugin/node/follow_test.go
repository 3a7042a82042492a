package node

import (
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// TestChangeDuringResolution verifies that a change while a container is resolved is not missed.
func TestChangeDuringResolution(t *testing.T) {
	h, _ := tree(t, podCgroup, cgroupOf("a"))
	n := newNode(t, h)
	storage := &disks{twoDisks}
	n.storage = storage
	sb := sandbox(map[string]string{limitsKey + "containers": "* wbps=1Mi"})
	if err := n.start(t.Context(), sb, ctr("a", bind("/mnt/data", "/data", "rbind", "rslave")), true); err != nil {
		t.Fatal(err)
	}
	c := n.peek().pods["sb1"].containers["id-a"]
	n.MountsChanged()
	during := sync.OnceFunc(n.MountsChanged)
	storage.resolve = func(path string) blkio.Backing {
		during()
		return twoDisks(path)
	}
	if err := n.resolve(t.Context(), c.identity); err != nil {
		t.Fatal(err)
	}
	if c.disks.IsResolved() {
		t.Error("the container counts as resolved, although a mount changed meanwhile")
	}
	if err := n.resolve(t.Context(), c.identity); err != nil || !c.disks.IsResolved() {
		t.Errorf("the container is not resolved after a second resolution (%v)", err)
	}
}

// TestReloadDuringResolution verifies that a policy that comes while a container is resolved is not missed. It does
// not put limits into force that the previous policy only observed.
func TestReloadDuringResolution(t *testing.T) {
	h, dir := tree(t, podCgroup, cgroupOf("a"))
	n := newNode(t, h)
	storage := &disks{twoDisks}
	n.storage = storage
	n.policy.Store(rules(t, "mode: observe\n"+inProd))
	if err := n.start(t.Context(), batch(), ctr("a", bind("/mnt/data", "/data", "rbind", "rslave")), true); err != nil {
		t.Fatal(err)
	}
	dirty := func() {
		for _, g := range n.pods.takeDirty() {
			n.reconcileGroup(t.Context(), g)
		}
	}
	want := func(when, rate string) { // the files of the tree hold the last write alone
		t.Helper()
		for _, cgroup := range []string{cgroupOf("a"), podCgroup} {
			got := read(t, filepath.Join(dir, cgroup, "io.max"))
			if limited := strings.Contains(got, "wbps="); limited != (rate != "") || !strings.Contains(got, rate) {
				t.Errorf("%s: %s has %q, want %q", when, cgroup, got, rate)
			}
		}
	}
	dirty()
	want("observed", "")
	n.MountsChanged()
	during := sync.OnceFunc(func() {
		n.Reload(rules(t, strings.Replace(inProd, "bronze", "silver", 1)))
		dirty()
	})
	storage.resolve = func(path string) blkio.Backing {
		during()
		return twoDisks(path)
	}
	if err := n.resolve(t.Context(), n.peek().pods["sb1"].containers["id-a"].identity); err != nil {
		t.Fatal(err)
	}
	want("during the resolution", "")
	dirty()
	want("after it", "wbps=41943040")
	if again := n.pods.takeDirty(); len(again) > 0 {
		t.Error("the pod is dirty again after the resolution")
	}
}
