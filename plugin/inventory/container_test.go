package inventory

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

func TestGrows(t *testing.T) {
	for fstype, want := range map[string]bool{"btrfs": true, "bcachefs": true, "ext4": false, "": false} {
		for name, facts := range map[string]policy.Container{
			"rootfs": {Rootfs: blkio.Backing{FSType: fstype}},
			"mount":  {Mounts: []policy.Mount{{Backing: &blkio.Backing{FSType: fstype}}}},
			"below":  {Mounts: []policy.Mount{{Backing: notSelected, Below: []policy.Below{{Backing: &blkio.Backing{FSType: fstype}}}}}},
		} {
			if got := grows(&facts); got != want {
				t.Errorf("%s, %s: %t", fstype, name, got)
			}
		}
	}
	if !grows(&policy.Container{Mounts: []policy.Mount{{Backing: &blkio.Backing{Missing: true}}}}) {
		t.Error("a device that is away may come back")
	}
}

func TestPropagates(t *testing.T) {
	for _, tt := range []struct {
		value   string
		options []string
		want    bool
	}{
		{"* wbps=1Mi", []string{"rbind", "rslave"}, true},
		{"* wbps=1Mi", []string{"rbind", "rshared"}, true},
		{"* wbps=1Mi", []string{"rbind", "rprivate"}, false},
		{"/data/sub wbps=1Mi", []string{"rbind", "rslave"}, true},
		{"/data wbps=1Mi", []string{"rbind", "rslave"}, true}, // the host may mount over the source
		{"@data wbps=1Mi", []string{"rbind", "rslave"}, true},
		{"/database wbps=1Mi", []string{"rbind", "rslave"}, false},
		{"rootfs wbps=1Mi", []string{"rbind", "rslave"}, false},
	} {
		req := annotation.Parse(map[string]string{"limits.blkio.noderesource.dev/containers": tt.value})
		c := &Spec{Mounts: []Mount{bind("/mnt/data", "/data", tt.options...)}}
		if got := c.propagates(req.Targets()); got != tt.want {
			t.Errorf("%q with %q: %t", tt.value, tt.options, got)
		}
	}
}

// TestErr verifies that a mount below a volume that could not be found is an error like that of the volume.
func TestErr(t *testing.T) {
	failed := blkio.Backing{Err: errAnswer}
	for name, facts := range map[string]policy.Container{
		"rootfs": {Rootfs: failed},
		"mount":  {Mounts: []policy.Mount{{Backing: notSelected}, {Backing: &failed}, {Backing: notSelected}}},
		"below":  {Mounts: []policy.Mount{{Backing: notSelected, Below: []policy.Below{{Backing: notSelected}, {Backing: &failed}}}}},
	} {
		if c := (Container{Facts: facts}); !errors.Is(c.Err(), errAnswer) {
			t.Errorf("%s: %v", name, c.Err())
		}
	}
	if err := (&Container{}).Err(); err != nil {
		t.Error(err)
	}
}

// TestMountOptions covers the options of the OCI spec that change which disks a mount has.
func TestMountOptions(t *testing.T) {
	for _, tt := range []struct {
		kind, options                         string
		bind, recursive, readOnly, propagates bool
	}{
		{kind: "tmpfs", options: "nosuid,size=1k"},
		{kind: "bind", bind: true},
		{kind: "none", options: "bind,ro", bind: true, readOnly: true},
		{kind: "none", options: "rw,rbind", bind: true, recursive: true},
		{kind: "bind", options: "rbind,rprivate", bind: true, recursive: true},
		{kind: "bind", options: "slave", bind: true, propagates: true},
		{kind: "bind", options: "rslave", bind: true, propagates: true},
		{kind: "bind", options: "shared", bind: true, propagates: true},
		{kind: "bind", options: "rshared", bind: true, propagates: true},
	} {
		m := Mount{Type: tt.kind, Options: ParseOptions(strings.Split(tt.options, ",")...)}
		if m.IsBind() != tt.bind || m.IsRecursive() != tt.recursive || m.IsReadOnly() != tt.readOnly || m.IsPropagated() != tt.propagates {
			t.Errorf("%s %s: bind %t, recursive %t, read-only %t, propagates %t", tt.kind, tt.options, m.IsBind(), m.IsRecursive(), m.IsReadOnly(), m.IsPropagated())
		}
	}
}

// TestUnresolved verifies which writable mounts were not resolved for a target.
func TestUnresolved(t *testing.T) {
	c := NewContainer(&Spec{Mounts: []Mount{
		bind("/a", "/a", "rbind", "rw"), bind("/b", "/b", "rbind", "ro"), bind("/c", "/c", "bind", "ro"), bind("/d", "/d", "bind"),
		bind("/e", "/e", "rbind"),
		{Type: "proc", Source: "proc", Destination: "/proc"},
	}})
	if got := c.Unresolved(); got != nil {
		t.Errorf("before the first search: %v", got)
	}
	c.Facts.Mounts = make([]policy.Mount, len(c.kept.Mounts))
	for i := range c.Facts.Mounts {
		c.Facts.Mounts[i].Backing = notSelected
		c.Facts.Mounts[i].ReadOnly = i == 1 || i == 2
	}
	c.Facts.Mounts[4].Backing = new(blkio.Backing)
	want := []UnresolvedMount{{"/a", true, true}, {"/b", false, true}, {"/d", true, false}, {"/e", false, true}}
	if got := c.Unresolved(); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
