package inventory

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// resolver is a Resolver as a function.
type resolver func(path string) blkio.Backing

func (r resolver) Resolve(_ context.Context, path string) *blkio.Backing { return new(r(path)) }

func TestLayersOf(t *testing.T) {
	l := Layers{Default: Layer{Dir: "/default"}, Handlers: map[string]Layer{"": {Dir: "/runc"}, "thin": {Reason: "it is a device"}}}
	for handler, want := range map[string]Layer{"": {Dir: "/runc"}, "thin": {Reason: "it is a device"}, "other": {Dir: "/default"}} {
		if got := l.Of(handler); got != want {
			t.Errorf("handler %q: got %+v, want %+v", handler, got, want)
		}
	}
}

func TestLayersEqual(t *testing.T) {
	one := Layers{Default: Layer{Dir: "/a"}, Handlers: map[string]Layer{"x": {Dir: "/b"}}}
	for _, tt := range []struct {
		name  string
		other Layers
		want  bool
	}{
		{"the same", Layers{Default: Layer{Dir: "/a"}, Handlers: map[string]Layer{"x": {Dir: "/b"}}}, true},
		{"another default", Layers{Default: Layer{Unknown: "/a"}, Handlers: map[string]Layer{"x": {Dir: "/b"}}}, false},
		{"another of a handler", Layers{Default: Layer{Dir: "/a"}, Handlers: map[string]Layer{"x": {Dir: "/c"}}}, false},
		{"another handler", Layers{Default: Layer{Dir: "/a"}, Handlers: map[string]Layer{"y": {Dir: "/b"}}}, false},
		{"none", Layers{}, false},
	} {
		if got := one.Equal(tt.other); got != tt.want {
			t.Errorf("%s: %t", tt.name, got)
		}
	}
}

func TestLayerBacking(t *testing.T) {
	onDisk := blkio.Backing{FSType: "ext4", Disks: []blkio.Disk{{Dev: blkio.Dev{Major: 8}, Name: "sda"}}}
	for _, tt := range []struct {
		layer  Layer
		asked  string // path that is resolved
		reason string
		err    string
	}{
		{layer: Layer{Dir: "/layers"}, asked: "/layers"},
		{layer: Layer{Reason: "it is a device"}, reason: "it is a device"},
		{layer: Layer{Unknown: "no answer"}, reason: "the location of writable layers is unknown", err: "no answer"},
	} {
		asked := ""
		got := tt.layer.Backing(t.Context(), resolver(func(path string) blkio.Backing {
			asked = path
			return onDisk
		}))
		err := ""
		if got.Err != nil {
			err = got.Err.Error()
		}
		if asked != tt.asked || got.Reason != tt.reason || err != tt.err {
			t.Errorf("%+v: resolved %q, reason %q, error %q", tt.layer, asked, got.Reason, err)
		}
		if tt.asked != "" && !cmp.Equal(*got, onDisk) {
			t.Errorf("%+v: got %+v", tt.layer, got)
		}
	}
}

// TestSeenLayer verifies that the location of writable layers is known by the root of a process if layers lie side by side on one
// filesystem.
func TestSeenLayer(t *testing.T) {
	for upper, want := range map[string]string{
		"/mnt/data/io.containerd.snapshotter.v1.overlayfs/snapshots/7/fs": "/mnt/data/io.containerd.snapshotter.v1.overlayfs/snapshots",
		"/mnt/data/storage/overlay/0b54f3c8/diff":                         "/mnt/data/storage/overlay",
		"/mnt/data/erofs/snapshots/own/rw/upper":                          "", // a filesystem of its own
		"/memory/snapshots/7/fs":                                          "",
		"7/fs":                                                            "",
		"":                                                                "", // no overlay
	} {
		h := newHost()
		h.Find = func(path string) blkio.Backing {
			switch {
			case strings.HasPrefix(path, "/memory"):
				return blkio.Backing{Mountpoint: "/memory", Reason: "tmpfs is memory, not a disk"}
			case strings.HasPrefix(path, "/mnt/data/erofs/snapshots/own/rw/"):
				return blkio.Backing{Mountpoint: path, Disks: []blkio.Disk{lowerDisk}}
			}
			return blkio.Backing{Mountpoint: "/mnt/data", Disks: []blkio.Disk{otherDisk}}
		}
		f := finderWith(h, []blkio.ProcessMount{mounted("/data", on(otherDisk), false), {Mountpoint: "/", IsRoot: true, Upper: upper}}, nil)
		seen, disks, err := f.SeenLayer(t.Context(), 1, "c")
		if known := len(disks) > 0; err != nil || known != (want != "") || known && seen.Dir != want {
			t.Errorf("%s: %+v, %v, %v", upper, seen, disks, err)
		}
	}
	if _, disks, err := finderWith(newHost(), nil, nil).SeenLayer(t.Context(), 1, "c"); disks != nil || err != nil {
		t.Errorf("without a root: %v, %v", disks, err)
	}
	for fs, want := range map[string]string{"ext4": noOverlay, "overlay": ""} { // an overlay with a relative upper layer has none here
		b := blkio.Backing{FSType: fs, Disks: []blkio.Disk{otherDisk}}
		f := finderWith(newHost(), []blkio.ProcessMount{{Mountpoint: "/", IsRoot: true, Backing: &b}}, nil)
		if seen, disks, err := f.SeenLayer(t.Context(), 1, "c"); seen.Reason != want || (len(disks) > 0) != (want != "") || err != nil {
			t.Errorf("%s: %+v, %v, %v", fs, seen, disks, err)
		}
	}
	if _, _, err := finderWith(newHost(), nil, errors.New("no process")).SeenLayer(t.Context(), 1, "c"); err == nil {
		t.Error("an error of the mounts is lost")
	}
}
