package layers

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/bounded"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
)

// at returns locations with one directory.
func at(dir string) inventory.Layers { return inventory.Layers{Default: inventory.Layer{Dir: dir}} }

// locator returns a Locator with read, whose first location is /first, and the directories to which it was told to have moved.
func locator(read func(ctx context.Context, runtime, version string) (inventory.Layers, error)) (_ *Locator, moved *[]string) {
	l, moved := New(at("/first")), new([]string)
	l.Read, l.Calls = read, &bounded.Calls{}
	l.Moved = func(now *Locations) { *moved = append(*moved, now.Of("").Dir) }
	return l, moved
}

// sleep lets time pass, and waits for what happens meanwhile.
func sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// TestHasMoved verifies whose layers have moved after an answer of the runtime.
func TestHasMoved(t *testing.T) {
	now := &Locations{Layers: at("/now"), registration: 2}
	for name, tt := range map[string]struct {
		own  *Own
		want bool
	}{
		"not resolved":                        {nil, false},
		"there":                               {&Own{inventory.Layer{Dir: "/now"}, 2}, false},
		"elsewhere":                           {&Own{inventory.Layer{Dir: "/before"}, 2}, true},
		"of an earlier registration":          {&Own{inventory.Layer{Dir: "/before"}, 1}, false},
		"unknown during another registration": {&Own{inventory.Layer{Unknown: "no answer"}, 1}, true},
		"none, as the runtime said this time": {&Own{inventory.Layer{Reason: "devmapper"}, 2}, true},
		"none, as the runtime said that time": {&Own{inventory.Layer{Reason: "devmapper"}, 1}, false},
	} {
		if got := now.HasMoved(tt.own, ""); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	unknown := &Locations{Layers: inventory.Layers{Default: inventory.Layer{Unknown: "no answer"}}}
	if unknown.HasMoved(&Own{Layer: inventory.Layer{Dir: "/before"}}, "") {
		t.Error("moved to an unknown location")
	}
}

// TestAsk verifies that a question without an answer is asked again, and that the locations before it are used until then.
func TestAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		l, moved := locator(func(_ context.Context, runtime, version string) (inventory.Layers, error) {
			if asked++; asked < 3 {
				return inventory.Layers{}, errors.New("starting")
			}
			return at("/" + runtime + "/" + version), nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go l.AskAgain(ctx)
		l.AskAtRegistration(ctx, "containerd", "2")
		if dir := l.Current().Of("").Dir; dir != "/first" {
			t.Errorf("in use after an error: %s", dir)
		}
		sleep(firstPause + time.Millisecond)
		if l.Problem() == nil {
			t.Error("a question without an answer is no problem")
		}
		sleep(2 * firstPause)
		if dir := l.Current().Of("").Dir; dir != "/containerd/2" || asked != 3 || l.Problem() != nil {
			t.Errorf("in use %s, asked %d times, problem %v", dir, asked, l.Problem())
		}
		if sleep(2 * MaxPause); asked != 3 || strings.Join(*moved, " ") != "/containerd/2" {
			t.Errorf("asked %d times, moved %q", asked, *moved)
		}
	})
}

// TestLateAnswer verifies that the answer of an earlier runtime is not used, and that one without locations changes nothing.
func TestLateAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, moved := locator(func(_ context.Context, runtime, _ string) (inventory.Layers, error) {
			if runtime == "slow" {
				time.Sleep(2 * laterWait) // it ignores its deadline
			}
			return at("/" + runtime), nil
		})
		l.AskAtRegistration(t.Context(), "slow", "1")
		l.AskAtRegistration(t.Context(), "fast", "1")
		sleep(4 * laterWait)
		if dir := l.Current().Of("").Dir; dir != "/fast" || strings.Join(*moved, " ") != "/fast" {
			t.Errorf("in use %s, moved %q", dir, *moved)
		}
		l.Read = func(context.Context, string, string) (inventory.Layers, error) { return inventory.Layers{}, nil }
		if l.AskAtRegistration(t.Context(), "silent", "1"); l.Current().Of("").Dir != "/fast" || len(*moved) != 1 {
			t.Errorf("in use %+v, moved %q", l.Current(), *moved)
		}
	})
}

// paths resolves all paths to one disk.
type paths struct{ inventory.Storage }

func (paths) Resolve(context.Context, string) *blkio.Backing {
	return &blkio.Backing{FSType: "ext4", Disks: []blkio.Disk{{Dev: blkio.Dev{Major: 8}, Name: "sda"}}}
}

// TestCompare verifies that the first process of a handler shows where its layers are, and only until the next registration.
func TestCompare(t *testing.T) {
	l, moved := locator(func(context.Context, string, string) (inventory.Layers, error) { return inventory.Layers{}, nil })
	disk, reads := blkio.Disk{Dev: blkio.Dev{Major: 8, Minor: 16}, Name: "sdb"}, 0
	find := &inventory.Finder{Storage: paths{}, ProcessMounts: func(context.Context, int, string) ([]blkio.ProcessMount, error) {
		if reads++; reads == 1 {
			return nil, errors.New("the process has ended")
		}
		return []blkio.ProcessMount{{IsRoot: true, Backing: &blkio.Backing{FSType: "xfs", Disks: []blkio.Disk{disk}}}}, nil
	}}
	if err := l.Compare(t.Context(), find, "kata", 1, ""); err == nil {
		t.Error("no error")
	}
	for range 2 {
		if err := l.Compare(t.Context(), find, "kata", 1, ""); err != nil {
			t.Fatal(err)
		}
	}
	if reads != 2 || len(*moved) != 1 || l.Current().Of("kata").Reason == "" || l.Current().Of("").Dir != "/first" {
		t.Errorf("%d reads, moved %q, in use %+v", reads, *moved, l.Current())
	}
	if err := l.Elsewhere(); err == nil || !strings.HasSuffix(err.Error(), ", instead of /first") {
		t.Errorf("elsewhere: %v", err)
	}
	if l.AskAtRegistration(t.Context(), "another", "1"); l.Elsewhere() != nil || l.Current().Of("kata").Dir != "/first" {
		t.Errorf("after another registration: %v, in use %+v", l.Elsewhere(), l.Current())
	}
}
