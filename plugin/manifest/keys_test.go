package manifest

import (
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

func TestMeant(t *testing.T) {
	tests := []struct{ key, want string }{
		// These are keys of this domain, right or wrong.
		{"limits.blkio.noderesource.dev/containers", ""},
		{"limts.blkio.noderesource.dev/containers", ""},
		{"blkio.noderesource.dev", ""},
		{"limits.blkio.noderesource.dev", ""},

		{"limits.blkio.nodersource.dev/containers", "limits.blkio.noderesource.dev/containers"},
		{"limits.blkio.noderesources.dev/container.db", "limits.blkio.noderesource.dev/container.db"},
		{"limts.blkio.nodersource.dev/containers", "limits.blkio.noderesource.dev/containers"},
		{"blkio.nodersource.dev/containers", "blkio.noderesource.dev/containers"},
		{"burst.blkio.nodersource.dev/x", "burst.blkio.noderesource.dev/x"},
		{"limits.blockio.noderesource.dev/containers", "limits.blkio.noderesource.dev/containers"},
		{"Limits.Blkio.NodeResource.dev/containers", "limits.blkio.noderesource.dev/containers"},
		{"limits.blkio.noderesource.com/containers", "limits.blkio.noderesource.dev/containers"},
		{"limits.blkio.noderesource.dev.containers", "limits.blkio.noderesource.dev/containers"},
		{"limits.blkio.noderesource.dev.container.db", "limits.blkio.noderesource.dev/container.db"},
		{"limits.blkio.noderesource.dev.x/containers", "limits.blkio.noderesource.dev/x/containers"},
		{"containers/limits.blkio.noderesource.dev", "limits.blkio.noderesource.dev/containers"},
		{"limits.noderesource.dev/containers", "limits.blkio.noderesource.dev/containers"},
		{"weight.blkio.noderesource/containers", "weight.blkio.noderesource.dev/containers"},
		{"blkio.limits.noderesource.dev/containers", "limits.blkio.noderesource.dev/containers"},
		{"noderesource.blkio.dev/containers", "blkio.noderesource.dev/containers"},
		{"limits.blkio.nodersource.dev", "limits.blkio.noderesource.dev"},
		{"limitsblkio.noderesource.dev/containers", "limits.blkio.noderesource.dev/containers"},
		{"limts.blkio.nodersorce.dev/containers", "limits.blkio.noderesource.dev/containers"},
		{"blkio.noderesource.com/containers", "blkio.noderesource.dev/containers"},
		{"blkio.noderesource.dev.containers", "blkio.noderesource.dev/containers"},
		{"limits.blkio.nodersource.dev/" + strings.Repeat("x", 291), "limits.blkio.noderesource.dev/" + strings.Repeat("x", 291)},

		// Of other programs.
		{"required-plugins.noderesource.dev", ""},
		{"writable-cgroups.noderesource.dev/container.db", ""},
		{"memory-qos.noderesource.dev/pod", ""},
		{"class.memory-qos.noderesource.dev/pod", ""},
		{"vfio.noderesource.dev/x", ""},
		{"rdt.noderesource.dev/x", ""},
		{"noderesource.dev/x", ""},
		{"blockio.resources.beta.kubernetes.io/pod", ""},
		{"devices.nri.io/container.db", ""},
		{"app.kubernetes.io/name", ""},
		{"limits.dev/x", ""},
		{"limits.weight.noderesource.dev/x", ""},
		{"xblkio.noderesource.dev.containers/x", ""},
		{"limits.blkio.nodersource.dev/" + strings.Repeat("x", 292), ""},
		{"limits", ""},
		{"", ""},
		{"/", ""},
		{"limits.blkİo.noderesource.dev.x/containers", ""},
		{strings.Repeat("limits.blkio.nodersource.dev", 20), ""},
	}
	for _, tt := range tests {
		if got, ok := meantKey(tt.key); got != tt.want || ok != (tt.want != "") {
			t.Errorf("%q: %q, %v, want %q", tt.key, got, ok, tt.want)
		}
	}
}

func FuzzMeant(f *testing.F) {
	for _, seed := range []string{"limits.blkio.nodersource.dev/containers", "containers/limits.blkio.noderesource.dev", "blkio.limits.noderesource.dev", "limits.blkio.noderesource.dev.c"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, key string) {
		meant, ok := meantKey(key)
		if ok != (meant != "") || ok && (!annotation.IsKey(meant) || annotation.IsKey(key)) {
			t.Errorf("%q: %q, %v", key, meant, ok)
		}
	})
}
