package node

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/podfacts"
)

// TestHungEdit verifies that an edit whose new target hangs for one container does not keep a new policy from another
// container of the pod, nor delays its start.
func TestHungEdit(t *testing.T) {
	l := newLiveNode(t)
	l.policy.Store(rules(t, strings.Replace(inProd, "bronze", "silver", 1)))
	hang := make(chan struct{})
	t.Cleanup(func() { l.inFlight.passes.Wait(passDeadline) })
	defer close(hang)
	var hangs atomic.Bool
	l.storage = disks{func(path string) blkio.Backing {
		if hangs.Load() && strings.HasPrefix(path, "/mnt/hung") {
			<-hang
		}
		return twoDisks(path)
	}}
	sb := batch()
	s := session{l.Node, noDeadline}
	for name, c := range map[string]*Container{"a": ctr("a", bind("/mnt/hung/x", "/data")), "b": ctr("b", bind("/mnt/data/x", "/data"))} {
		if _, err := s.CreateContainer(t.Context(), sb, c); err != nil {
			t.Fatal(name, err)
		}
		if err := s.StartContainer(t.Context(), sb, c); err != nil {
			t.Fatal(name, err)
		}
	}
	l.want("class", map[string]blkio.Amount{cgroupOf("a"): 40 * mi, cgroupOf("b"): 40 * mi})
	hangs.Store(true)
	l.SetLive("u1", &podfacts.Facts{Namespace: "prod", Name: "db-0", Labels: map[string]string{"tier": "batch"}, Annotations: annotationsOf(limitsKey+"container.a", "@data wbps=90Mi; /data/y wbps=90Mi")})
	l.pass(t.Context())
	for l.inFlight.passes.Count() > 1 { // the pass ends with its deadline, and its call soon after
		time.Sleep(time.Millisecond)
	}
	l.pass(t.Context())
	if n := l.inFlight.passes.Count(); n != 1 {
		t.Errorf("%d tries of the edit hang", n)
	}
	l.Reload(rules(t, inProd))
	for range 2 { // the first pass may end at the other container, whose disks a weight needs
		l.pass(t.Context())
	}
	l.want("another class", map[string]blkio.Amount{cgroupOf("b"): 20 * mi})
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if err := l.start(ctx, sb, ctr("b", bind("/mnt/data/x", "/data")), true); err != nil {
		t.Errorf("start of b: %v", err)
	}
}

// TestTrialRepeated verifies that an edit does not count by disks that a resolution has replaced while it was tried.
func TestTrialRepeated(t *testing.T) {
	l := newLiveNode(t)
	l.run(sandbox(annotationsOf(limitsKey+"containers", "rootfs wbps=2Mi")), "a", "b")
	c := l.peek().pods["sb1"].containers["id-a"]
	once := true
	l.storage = disks{func(path string) blkio.Backing {
		if once {
			once = false
			l.noteFound(&c.snapshot, true, nil)
		}
		return twoDisks(path)
	}}
	l.SetLive("u1", &podfacts.Facts{Namespace: "prod", Name: "db-0", Annotations: annotationsOf(limitsKey+"containers", "/data wbps=4Mi; rootfs wbps=5Mi")})
	e := l.edits(c.pod.group)[0]
	for _, want := range []bool{false, true} {
		if accepted, err := l.tryEdit(t.Context(), &e); accepted != want || err != nil {
			t.Errorf("accepted %v, %v, want %v", accepted, err, want)
		}
	}
}

// TestTrialIsQuiet verifies that an edit that is rejected again and again logs once, and that what its trial has found is logged
// once it counts.
func TestTrialIsQuiet(t *testing.T) {
	l := newLiveNode(t)
	l.run(sandbox(annotationsOf(limitsKey+"containers", "rootfs wbps=2Mi")), "a")
	l.storage = disks{func(path string) blkio.Backing {
		b := twoDisks(path)
		if strings.HasPrefix(path, "/mnt/data") {
			b.Err = fmt.Errorf("%s: no answer", path)
		}
		return b
	}}
	count := func() (n int) {
		for _, e := range l.logged.AllEntries() {
			if e.Level == logrus.WarnLevel {
				n++
			}
		}
		return n
	}
	before := count()
	for range 5 {
		l.edit(limitsKey+"containers", "rootfs wbps=3Mi; /data rbps=1Mi", limitsKey+"container.a", "/nowhere wbps=1Mi")
	}
	if n := count() - before; n != 1 {
		t.Errorf("a rejected edit logged %d lines: %v", n, l.logged.LastEntry())
	}
	before = count()
	l.edit(limitsKey+"containers", "rootfs wbps=3Mi", limitsKey+"pod-total", "/data wbps=9Mi")
	if n := count() - before; n == 0 {
		t.Error("a disk that does not answer is logged nowhere")
	}
}
