package plugin

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
)

const podVolumes = "/var/lib/kubelet/pods/u1/volumes/kubernetes.io~"

func TestVolumeOf(t *testing.T) {
	const pod = "/var/lib/kubelet/pods/u1"
	tests := []struct{ source, name, plugin string }{
		{podVolumes + "empty-dir/data", "data", "kubernetes.io~empty-dir"},
		{podVolumes + "empty-dir//data/", "data", "kubernetes.io~empty-dir"},
		{podVolumes + "empty-dir/data/a/b", "data", "kubernetes.io~empty-dir"},
		{podVolumes + "configmap/c", "c", "kubernetes.io~configmap"},
		{podVolumes + "secret/s", "s", "kubernetes.io~secret"},
		{podVolumes + "projected/kube-api-access-x7x9z", "kube-api-access-x7x9z", "kubernetes.io~projected"},
		{podVolumes + "downward-api/d", "d", "kubernetes.io~downward-api"},
		{podVolumes + "git-repo/g", "g", "kubernetes.io~git-repo"},
		{podVolumes + "csi/data/mount", "data", "kubernetes.io~csi"},
		{podVolumes + "csi/data/mount/a", "data", "kubernetes.io~csi"},
		{podVolumes + "csi/pvc-0b9d/mount", "pvc-0b9d", "kubernetes.io~csi"},
		{pod + "/volume-subpaths/data/db/0", "data", ""},

		{podVolumes + "csi/data", "", ""},
		{podVolumes + "csi/data/mounts", "", ""},
		{podVolumes + "local-volume/data", "", ""},
		{podVolumes + "iscsi/data", "", ""},
		{podVolumes + "empty-dir", "", ""},
		{pod + "/volumes", "", ""},
		{pod + "/volumes/vendor~driver/data", "", ""},
		{pod + "/volumes/kubernetes.io~empty-dir/../../etc-hosts", "", ""},
		{pod + "/volume-subpaths/data/db", "", ""},
		{pod + "/volume-subpaths/data/db/0/x", "", ""},
		{pod + "/volumeDevices/kubernetes.io~csi/pvc-0b9d", "", ""},
		{pod + "/etc-hosts", "", ""},
		{pod + "/containers/db/1", "", ""},
		{pod, "", ""},
		{"/mnt/data", "", ""},
		{"proc", "", ""},
		{"", "", ""},
		// Of another pod, by a hostPath volume, and of another root.
		{"/var/lib/kubelet/pods/u11/volumes/kubernetes.io~empty-dir/data", "", ""},
		{"/var/lib/kubelet/pods/u2/volumes/kubernetes.io~empty-dir/data", "", ""},
		{pod + "/../u2/volumes/kubernetes.io~empty-dir/data", "", ""},
		{"/mnt" + podVolumes + "empty-dir/data", "", ""},
	}
	for _, tt := range tests {
		for _, root := range []string{"/var/lib/kubelet", "/var/lib/kubelet/"} {
			if name, plugin := volumeOf(root, "u1", tt.source); name != tt.name || plugin != tt.plugin {
				t.Errorf("%s below %s: %q of %q, want %q of %q", tt.source, root, name, plugin, tt.name, tt.plugin)
			}
		}
	}
	if name, _ := volumeOf("/k", "u1", "/k/pods/u1/volumes/kubernetes.io~empty-dir/data"); name != "data" {
		t.Errorf("below another root: %q", name)
	}
	if name, _ := volumeOf("/k", "", "/k/pods/volumes/kubernetes.io~empty-dir/data"); name != "" {
		t.Errorf("of a pod without a UID: %q", name)
	}
}

// volumeDisks is a Storage where the pod's inline CSI volume is a disk.
func volumeDisks(path string) blkio.Backing {
	if strings.HasPrefix(path, podVolumes+"csi/") {
		return on(dataDisk)
	}
	return twoDisks(path)
}

// TestVolumeTarget: a volume is looked up where it is a target, and only there.
func TestVolumeTarget(t *testing.T) {
	mounts := []struct{ source, at string }{
		{podVolumes + "csi/data/mount", "/data"},
		{podVolumes + "empty-dir/scratch", "/scratch"},
		{"/mnt/data/host", "/host"},
		{"/var/lib/kubelet/pods/u2/volumes/kubernetes.io~empty-dir/other", "/other"},
	}
	const noVolume = "no mount of the container is known to be of volume "
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
			p := newPlugin(t, h)
			var looked []string
			p.storage = disks{func(path string) blkio.Backing {
				if path != p.layers.Load().Of("").Dir {
					looked = append(looked, path)
				}
				return volumeDisks(path)
			}}
			db := ctr("db")
			for _, m := range mounts {
				db.Mounts = append(db.Mounts, bind(m.source, m.at, "rbind"))
			}
			adjust, err := p.create(t.Context(), sandbox(map[string]string{limitsKey + tt.scope: tt.value}), db, false)
			if tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
				t.Errorf("got %v, want %q", err, tt.err)
			}
			if got := adjust.GetLinux().GetResources().GetUnified()["io.max"]; got != tt.want {
				t.Errorf("io.max %q, want %q", got, tt.want)
			}
			if d := cmp.Diff(tt.looked, looked); d != "" {
				t.Errorf("looked at: -want +got:\n%s", d)
			}
		})
	}
}
