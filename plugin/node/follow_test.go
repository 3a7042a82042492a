package node

import (
	"context"
	"iter"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
)

// changing is a Storage with one mount below each volume, or none.
type changing struct {
	disks
	mu    sync.Mutex
	below *blkio.Disk
	looks int
}

func (s *changing) Submounts(context.Context, string) iter.Seq2[string, blkio.Backing] {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looks++
	below := s.below
	return func(yield func(string, blkio.Backing) bool) {
		if below != nil {
			yield("sub", on(*below))
		}
	}
}

func (s *changing) mount(d *blkio.Disk) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.below = d
}

func (s *changing) seen() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.looks
}

// TestMountsChanged verifies that a disk mounted into a running container is limited. The limit stays when the
// disk is unmounted, because the container may still have it. A container that gets no mount is unchanged.
func TestMountsChanged(t *testing.T) {
	late := blkio.Disk{Dev: blkio.Dev{Major: 8, Minor: 48}, Name: "sdd"}
	for _, tt := range []struct {
		propagation string
		follows     bool
	}{{"rslave", true}, {"rshared", true}, {"rprivate", false}} {
		t.Run(tt.propagation, func(t *testing.T) {
			h, _ := tree(t, podCgroup, cgroupOf("a"))
			n := newNode(t, h)
			storage := &changing{disks: disks{twoDisks}}
			n.storage = storage
			sb := sandbox(map[string]string{limitsKey + "containers": "* wbps=1Mi"})
			if err := n.start(t.Context(), sb, ctr("a", bind("/mnt/data", "/data", "rbind", tt.propagation)), true); err != nil {
				t.Fatal(err)
			}
			limited := func() []blkio.Dev {
				n.MountsChanged()
				n.settle(t.Context())
				for _, pod := range n.peek().pods {
					return slices.SortedFunc(maps.Keys(n.applier().planFor(pod.group).Containers[0].Want.DevLimits()), blkio.Dev.Compare)
				}
				return nil
			}
			two := slices.SortedFunc(slices.Values([]blkio.Dev{rootDisk.Dev, dataDisk.Dev}), blkio.Dev.Compare)
			three := slices.SortedFunc(slices.Values(append([]blkio.Dev{late.Dev}, two...)), blkio.Dev.Compare)
			before := storage.seen()
			if got := limited(); !slices.Equal(got, two) {
				t.Errorf("limited at first: %v, want %v", got, two)
			}
			storage.mount(&late)
			want := two
			if tt.follows {
				want = three
			}
			if got := limited(); !slices.Equal(got, want) {
				t.Errorf("limited with the mount: %v, want %v", got, want)
			}
			storage.mount(nil)
			if got := limited(); !slices.Equal(got, want) {
				t.Errorf("limited without it: %v, want %v", got, want)
			}
			if !tt.follows && storage.seen() != before {
				t.Error("the disks were resolved again, although they cannot change")
			}
		})
	}
}

// TestChangeDuringResolution verifies that a change while a container is resolved is not missed.
func TestChangeDuringResolution(t *testing.T) {
	h, _ := tree(t, podCgroup, cgroupOf("a"))
	n := newNode(t, h)
	storage := &changing{disks: disks{twoDisks}}
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
	storage := &changing{disks: disks{twoDisks}}
	n.storage = storage
	n.policy.Store(rules(t, "mode: observe\n"+inProd))
	if err := n.start(t.Context(), batch(), ctr("a", bind("/mnt/data", "/data", "rbind", "rslave")), true); err != nil {
		t.Fatal(err)
	}
	dirty := func() (turns int) { return n.settle(t.Context()) }
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
	if turns := dirty(); turns != 1 {
		t.Errorf("the reconciler takes the pod %d times after the resolution, want once", turns)
	}
	want("after it", "wbps=41943040")
}

// TestLayerStays verifies that a runtime that was restarted with another snapshotter does not move the writable
// layers of containers that run.
func TestLayerStays(t *testing.T) {
	h, _ := tree(t, podCgroup, cgroupOf("a"))
	n := newNode(t, h)
	n.storage = &changing{disks: disks{twoDisks}}
	sb := sandbox(map[string]string{limitsKey + "containers": "rootfs wbps=1Mi; /data/sub wbps=2Mi"})
	if err := n.start(t.Context(), sb, ctr("a", bind("/mnt/data", "/data", "rbind", "rslave")), true); err != nil {
		t.Fatal(err)
	}
	n.layers.current.Store(&layerLocations{Layers: inventory.Layers{Default: inventory.Layer{Dir: "/mnt/data/layers"}}, registration: 1})
	n.MountsChanged()
	c := n.peek().pods["sb1"].containers["id-a"]
	if err := n.resolve(t.Context(), c.identity); err != nil || c.decision.err != nil {
		t.Fatal(err, c.decision.err)
	}
	if got := c.disks.Facts.Rootfs.Disks; !slices.Equal(got, []blkio.Disk{rootDisk}) {
		t.Errorf("its writable layer is on %v", got)
	}
}

// TestStartResolvesAgain verifies that a disk mounted between a container's creation and its start is limited.
func TestStartResolvesAgain(t *testing.T) {
	late := blkio.Disk{Dev: blkio.Dev{Major: 8, Minor: 48}, Name: "sdd"}
	h, _ := tree(t, podCgroup, cgroupOf("a"))
	n := newNode(t, h)
	storage := &changing{disks: disks{twoDisks}}
	n.storage = storage
	sb := sandbox(map[string]string{limitsKey + "containers": "* wbps=1Mi"})
	c := ctr("a", bind("/mnt/data", "/data", "rbind", "rslave"))
	if _, err := n.create(t.Context(), sb, c, false); err != nil {
		t.Fatal(err)
	}
	storage.mount(&late)
	if err := n.start(t.Context(), sb, c, true); err != nil {
		t.Fatal(err)
	}
	want := n.applier().planFor(n.peek().pods["sb1"].group).Containers[0].Want.DevLimits()
	if _, ok := want[late.Dev]; !ok {
		t.Errorf("limited are %v", want)
	}
}
