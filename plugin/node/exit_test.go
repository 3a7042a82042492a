package node

import (
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/plugin/node/lifecycle"
)

// fakeWatch notes the cgroups that are added to it.
type fakeWatch struct{ added []string }

func (w *fakeWatch) Add(c cgroupfs.Cgroup) error {
	w.added = append(w.added, c.Path())
	return nil
}

// TestWatchFails verifies that a watch that has failed is not used any more. All containers are added to
// another one.
func TestWatchFails(t *testing.T) {
	h, _ := tree(t, podCgroup, cgroupOf("a"))
	n := newNode(t, h)
	first, second := &fakeWatch{}, &fakeWatch{}
	exitHandler{n}.Watching(first)
	start(t, n, sandbox(map[string]string{limitsKey + "containers": "rootfs wbps=1Mi"}), "a")
	c := n.peek().pods["sb1"].containers["id-a"]
	want := func(when string, phase lifecycle.Phase, watches float64, added ...*fakeWatch) {
		t.Helper()
		if got := c.life.Phase(); got != phase {
			t.Errorf("%s: %v, want %v", when, got, phase)
		}
		if got := scrape(t, n)["exit_watch"]; got != watches {
			t.Errorf("%s: exit_watch is %v, want %v", when, got, watches)
		}
		for _, w := range []*fakeWatch{first, second} {
			count := 0
			for _, a := range added {
				if a == w {
					count++
				}
			}
			if len(w.added) != count {
				t.Errorf("%s: added %q, want %d", when, w.added, count)
			}
		}
	}
	want("started", lifecycle.Watched, 1, first)
	exitHandler{n}.Lost()
	n.pass(t.Context())
	want("failed", lifecycle.Running, 0, first)
	exitHandler{n}.Watching(second)
	n.pass(t.Context())
	want("again", lifecycle.Watched, 1, first, second)
}
