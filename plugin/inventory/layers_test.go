package inventory

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// resolver is a Resolver as a function.
type resolver func(path string) blkio.Backing

func (r resolver) Resolve(_ context.Context, path string) blkio.Backing { return r(path) }

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
		if tt.asked != "" && !cmp.Equal(got, onDisk) {
			t.Errorf("%+v: got %+v", tt.layer, got)
		}
	}
}
