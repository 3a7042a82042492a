package inventory

import (
	"slices"
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

func TestGrows(t *testing.T) {
	for fstype, want := range map[string]bool{"btrfs": true, "bcachefs": true, "ext4": false, "": false} {
		for name, facts := range map[string]policy.Container{
			"rootfs": {Rootfs: blkio.Backing{FSType: fstype}},
			"mount":  {Mounts: []policy.Mount{{Backing: blkio.Backing{FSType: fstype}}}},
			"below":  {Mounts: []policy.Mount{{Below: []policy.Below{{Backing: blkio.Backing{FSType: fstype}}}}}},
		} {
			if got := grows(&facts); got != want {
				t.Errorf("%s, %s: %t", fstype, name, got)
			}
		}
	}
	if !grows(&policy.Container{Mounts: []policy.Mount{{Backing: blkio.Backing{Missing: true}}}}) {
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
		if got := c.propagates(req); got != tt.want {
			t.Errorf("%q with %q: %t", tt.value, tt.options, got)
		}
	}
}

// TestUnresolved: what may be written to and was not looked up for a target.
func TestUnresolved(t *testing.T) {
	spec := Spec{Mounts: []Mount{
		bind("/a", "/a", "rbind", "rw"), bind("/b", "/b", "rbind", "ro"), bind("/c", "/c", "bind", "ro"), bind("/d", "/d", "bind"),
		bind("/e", "/e", "rbind"),
		{Type: "proc", Source: "proc", Destination: "/proc"},
	}}
	facts := policy.Container{Mounts: make([]policy.Mount, len(spec.Mounts))}
	for i := range 4 {
		facts.Mounts[i].Backing.Unresolved = true
		facts.Mounts[i].ReadOnly = i == 1 || i == 2
	}
	want := []UnresolvedMount{{"/a", true, true}, {"/b", false, true}, {"/d", true, false}, {"/e", false, true}}
	if got := spec.unresolved(facts.Mounts); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
