package node

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/enforce/plan"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
)

const podVolumes = "/var/lib/kubelet/pods/u1/volumes/kubernetes.io~"

// volumeDisks is a Storage where the pod's inline CSI volume is a disk.
func volumeDisks(path string) blkio.Backing {
	if strings.HasPrefix(path, podVolumes+"csi/") {
		return on(dataDisk)
	}
	return twoDisks(path)
}

// TestVolumeTarget verifies that a volume is resolved only where it is a target.
func TestVolumeTarget(t *testing.T) {
	mounts := []struct{ source, at string }{
		{podVolumes + "csi/data/mount", "/data"},
		{podVolumes + "empty-dir/scratch", "/scratch"},
		{"/mnt/data/host", "/host"},
		{"/var/lib/kubelet/pods/u2/volumes/kubernetes.io~empty-dir/other", "/other"},
	}
	const noVolume = `unknown volume `
	tests := []struct {
		name, scope, value string
		want               string // of io.max
		looked             []string
		err                string
	}{
		{name: "CSI", scope: "container.db", value: "@data wbps=1Mi", want: "254:16 wbps=1048576", looked: []string{podVolumes + "csi/data/mount"}},
		{name: "emptyDir", scope: "containers", value: "@scratch wbps=1Mi", want: "254:0 wbps=1048576", looked: []string{podVolumes + "empty-dir/scratch"}},
		{name: "pod-total", scope: "pod-total", value: "@scratch wbps=1Mi", looked: []string{podVolumes + "empty-dir/scratch"}},
		{name: "hostPath", scope: "container.db", value: "@host wbps=1Mi", err: noVolume + `"host"`},
		{name: "another pod's", scope: "container.db", value: "@other wbps=1Mi", err: noVolume + `"other"`},
		{name: "another pod's, by default", scope: "containers", value: "@other wbps=1Mi"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h, _ := tree(t, podCgroup)
			n := newNode(t, h)
			var looked []string
			n.storage = disks{func(path string) blkio.Backing {
				if path != n.layers.current.Load().Of("").Dir {
					looked = append(looked, path)
				}
				return volumeDisks(path)
			}}
			var binds []inventory.Mount
			for _, m := range mounts {
				binds = append(binds, bind(m.source, m.at, "rbind"))
			}
			db := ctr("db", binds...)
			adjust, err := n.create(t.Context(), sandbox(map[string]string{limitsKey + tt.scope: tt.value}), db, false)
			if tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
				t.Errorf("got %v, want %q", err, tt.err)
			}
			if got := plan.Unified(adjust)["io.max"]; got != tt.want {
				t.Errorf("io.max %q, want %q", got, tt.want)
			}
			if d := cmp.Diff(tt.looked, looked); d != "" {
				t.Errorf("resolved paths, -want +got:\n%s", d)
			}
		})
	}
}
