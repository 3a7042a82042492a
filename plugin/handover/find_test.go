package handover

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	logtest "github.com/sirupsen/logrus/hooks/test"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
	"github.com/nri-blkio/nri-blkio/policy"
)

// TestFindKnown verifies which known mounts count: those that the container can write to, that are mounted
// somewhere, and that are on a limited disk or on a disk above one.
func TestFindKnown(t *testing.T) {
	lv := blkio.Dev{Major: 253}
	storage := mounted{under: map[blkio.Dev]blkio.Dev{lv: sda}}
	raid := blkio.Backing{Mountpoint: "/raid", Disks: []blkio.Disk{{Dev: blkio.Dev{Major: 7}}, {Dev: sda}, {Dev: sdb}}}
	for name, tt := range map[string]struct {
		mount policy.Mount
		want  []Volume
	}{
		"writable":          {policy.Mount{Backing: new(onAt("/data", sda))}, []Volume{{Path: "/data", Disk: sda}}},
		"read-only":         {policy.Mount{Backing: new(onAt("/data", sda)), ReadOnly: true}, nil},
		"below a read-only": {policy.Mount{Backing: new(onAt("/data", sda)), ReadOnly: true, Below: []policy.Below{{Backing: new(onAt("/data/in", sda))}}}, []Volume{{Path: "/data/in", Disk: sda}}},
		"injected":          {policy.Mount{Backing: new(onAt("/kubelet", sda)), Injected: true}, nil},
		"without a limit":   {policy.Mount{Backing: new(onAt("/data", sdb))}, nil},
		"on a limited disk": {policy.Mount{Backing: new(onAt("/lv", lv))}, []Volume{{Path: "/lv", Disk: lv}}},
		"unmounted":         {policy.Mount{Backing: new(onAt("", sda))}, nil},
		"on several disks":  {policy.Mount{Backing: &raid}, []Volume{{Path: "/raid", Disk: sda}}},
		"the same again":    {policy.Mount{Backing: new(onAt("/data", sda)), Below: []policy.Below{{Backing: new(onAt("/data", sda))}}}, []Volume{{Path: "/data", Disk: sda}}},
	} {
		disks := &inventory.Container{Facts: policy.Container{Mounts: []policy.Mount{tt.mount}}}
		got := find(t, storage, disks, map[blkio.Dev]bool{sda: true, {Major: 6}: true})
		if d := cmp.Diff(tt.want, got.Volumes); d != "" || got.More {
			t.Errorf("%s: more %t; -want +got:\n%s", name, got.More, d)
		}
	}
}

// TestFindStrays verifies that Find returns a stray filesystem, to which a tenant has redirected the path of a
// volume, by its own mountpoint, also if the mount table cannot be read. It returns the volume's own filesystem
// as well, because the container may have written to both.
func TestFindStrays(t *testing.T) {
	disks := &inventory.Container{
		// The disks of the mount are those that limits hold for, by the mountpoint of the first one.
		Facts:  policy.Container{Mounts: []policy.Mount{{Backing: &blkio.Backing{Mountpoint: "/data", Disks: []blkio.Disk{{Dev: sda}, {Dev: sdb}}}}}},
		Strays: []blkio.Backing{onAt("/stray", sdb), onAt("/unlimited", blkio.Dev{Major: 7})},
	}
	want := []Volume{{Path: "/data", Disk: sda}, {Path: "/stray", Disk: sdb}}
	for more, storage := range map[bool]Storage{false: mounted{}, true: unread{}} {
		got := find(t, storage, disks, map[blkio.Dev]bool{sda: true, sdb: true})
		if d := cmp.Diff(want, got.Volumes); d != "" || got.More != more {
			t.Errorf("more %t; -want +got:\n%s", got.More, d)
		}
	}
}

// hanging is a Storage that does not find the disks below a disk in time.
type hanging struct {
	mounted
	disk blkio.Dev
}

func (h hanging) Under(ctx context.Context, disk blkio.Dev) []blkio.Disk {
	if disk == h.disk {
		<-ctx.Done()
	}
	return h.mounted.Under(ctx, disk)
}

// unread is a Storage with a mount table that cannot be read.
type unread struct{ mounted }

func (unread) Refresh(context.Context) error { return errors.New("input/output error") }

// TestFindFails verifies that the known mounts of the container count by their own disks where the node does
// not answer, and that the result is incomplete then.
func TestFindFails(t *testing.T) {
	lv := blkio.Dev{Major: 253}
	facts := policy.Container{Rootfs: onAt("/", sda), Mounts: []policy.Mount{{Backing: new(onAt("/lv", lv))}, {Backing: new(onAt("/data", sda))}}}
	want := []Volume{{Path: "/", Disk: sda}, {Path: "/data", Disk: sda}}
	for name, storage := range map[string]Storage{"below a disk": hanging{mounted{}, lv}, "the mount table": unread{}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				got := find(t, storage, &inventory.Container{Facts: facts}, map[blkio.Dev]bool{sda: true})
				if d := cmp.Diff(want, got.Volumes); d != "" || !got.More {
					t.Errorf("more %t; -want +got:\n%s", got.More, d)
				}
			})
		})
	}
}

// TestSyncCounts verifies that a sync that fails is counted and logged with its path. A sync that the end of
// the process interrupts is neither counted nor logged.
func TestSyncCounts(t *testing.T) {
	for name, tt := range map[string]struct {
		fails      error
		canceled   bool
		ok, failed int64
		log        string
	}{
		"done":     {nil, false, 1, 0, ""},
		"fails":    {errors.New("input/output error"), false, 0, 1, "Sync of an ended container's filesystem failed"},
		"canceled": {errors.New("signal: killed"), true, 0, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log, hook := logtest.NewNullLogger()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				s := Syncer{Log: log, Sync: func(context.Context, string) error {
					if tt.canceled {
						cancel()
					}
					return tt.fails
				}}
				done := make(chan error, 1)
				s.request(ctx, waiter{Volume{Path: "/data", Disk: sda}, nil, notOver, func(err error) { done <- err }})
				if err := <-done; !errors.Is(err, tt.fails) {
					t.Errorf("the hand-over got %v", err)
				}
				if s.OK.Load() != tt.ok || s.Failed.Load() != tt.failed {
					t.Errorf("%d done, %d failed", s.OK.Load(), s.Failed.Load())
				}
				var logged []string
				for _, e := range hook.AllEntries() {
					if e.Data["path"] != "/data" {
						t.Errorf("%q is not about the path: %v", e.Message, e.Data)
					}
					logged = append(logged, e.Message)
				}
				if got := strings.Join(logged, "; "); got != tt.log {
					t.Errorf("log %q, want %q", got, tt.log)
				}
				cancel()
				sleep(maxRest)
			})
		})
	}
}

// TestPending verifies that running syncs and those that wait for the disk's turn count as syncs. Hand-overs
// that need a further sync count as waiting.
func TestPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCounting(t, map[string]time.Duration{"/a": time.Second, "/b": time.Second, "/c": time.Second})
		var got [][2]int
		pending := func() {
			synctest.Wait()
			syncs, waiting := c.Pending()
			got = append(got, [2]int{syncs, waiting})
		}
		pending()
		c.want(Volume{Path: "/a", Disk: sda}, nil, ignore)
		c.want(Volume{Path: "/b", Disk: sdb}, nil, ignore)
		pending()
		c.want(Volume{Path: "/a", Disk: sda}, nil, ignore)
		c.want(Volume{Path: "/a", Disk: sda}, nil, ignore)
		c.want(Volume{Path: "/c", Disk: sda}, nil, ignore)
		pending()
		sleep(time.Hour)
		pending()
		if want := [][2]int{{0, 0}, {2, 0}, {3, 2}, {0, 0}}; !slices.Equal(got, want) {
			t.Errorf("syncs and hand-overs: %v, want %v", got, want)
		}
	})
}
