package volumepath

import (
	"path"
	"strings"
	"testing"
)

func TestPaths(t *testing.T) {
	tests := []struct {
		path  string // below the pods
		want  Volume
		below string
		named bool // of a mount of pod u1, the volume's name is known
	}{
		{"u1/volumes/kubernetes.io~empty-dir/data", Volume{"u1", "kubernetes.io/empty-dir", "data", false}, "", true},
		{"u1/volumes/kubernetes.io~empty-dir//data/", Volume{"u1", "kubernetes.io/empty-dir", "data", false}, "", true},
		{"u1/volumes/kubernetes.io~empty-dir/data/a/b", Volume{"u1", "kubernetes.io/empty-dir", "data", false}, "a/b", true},
		{"u1/volumes/kubernetes.io~configmap/c", Volume{"u1", "kubernetes.io/configmap", "c", false}, "", true},
		{"u1/volumes/kubernetes.io~secret/s", Volume{"u1", "kubernetes.io/secret", "s", false}, "", true},
		{"u1/volumes/kubernetes.io~projected/kube-api-access-x7x9z", Volume{"u1", "kubernetes.io/projected", "kube-api-access-x7x9z", false}, "", true},
		{"u1/volumes/kubernetes.io~downward-api/d", Volume{"u1", "kubernetes.io/downward-api", "d", false}, "", true},
		{"u1/volumes/kubernetes.io~git-repo/g", Volume{"u1", "kubernetes.io/git-repo", "g", false}, "", true},
		{"u1/volumes/kubernetes.io~csi/data/mount", Volume{"u1", CSI, "data", false}, "mount", true},
		{"u1/volumes/kubernetes.io~csi/pvc-0b9d/mount/a", Volume{"u1", CSI, "pvc-0b9d", false}, "mount/a", true},
		{"u1/volume-subpaths/data/db/0", Volume{"u1", "", "data", false}, "db/0", true},

		{"u1/volumes/kubernetes.io~csi/data", Volume{"u1", CSI, "data", false}, "", false},
		{"u1/volumes/kubernetes.io~csi/data/mounts", Volume{"u1", CSI, "data", false}, "mounts", false},
		{"u1/volumes/kubernetes.io~local-volume/data", Volume{"u1", "kubernetes.io/local-volume", "data", false}, "", false},
		{"u1/volumes/kubernetes.io~local-volume/data/mount/a", Volume{"u1", "kubernetes.io/local-volume", "data", false}, "mount/a", false},
		{"u1/volumes/vendor~driver/data/db/0", Volume{"u1", "vendor/driver", "data", false}, "db/0", false},
		{"u1/volumes/vendor~driver/data", Volume{"u1", "vendor/driver", "data", false}, "", false},
		{"u1/volumeDevices/kubernetes.io~csi/data/mount", Volume{"u1", CSI, "data", true}, "mount", false},
		{"u1/volume-subpaths/data/db", Volume{"u1", "", "data", false}, "db", false},
		{"u1/volume-subpaths/data/db/0/x", Volume{"u1", "", "data", false}, "db/0/x", false},
		// Of another pod, by a hostPath volume.
		{"u11/volumes/kubernetes.io~empty-dir/data", Volume{"u11", "kubernetes.io/empty-dir", "data", false}, "", false},
		{"u1/../u2/volumes/kubernetes.io~empty-dir/data", Volume{"u2", "kubernetes.io/empty-dir", "data", false}, "", false},
	}
	for _, tt := range tests {
		p := Pods("/k/") + "/" + tt.path
		if v, below, ok := Parse("/k/pods", p); v != tt.want || below != tt.below || !ok {
			t.Errorf("%s: %+v, %q, %v, want %+v, %q", p, v, below, ok, tt.want, tt.below)
		}
		if name, plugin := NameOf("u1", p); tt.named && (name != tt.want.Name || plugin != tt.want.Plugin) || !tt.named && name+plugin != "" {
			t.Errorf("%s: named %q of %q", p, name, plugin)
		}
	}
	for _, p := range []string{"/data/kubelet/pods/u1/", "/pods/u1/", "/var/lib/k0s/kubelet/pods/u1//"} { // whatever the root is
		if name, plugin := NameOf("u1", p+"volumes/kubernetes.io~empty-dir/cache"); name != "cache" || plugin != "kubernetes.io/empty-dir" {
			t.Errorf("%s: named %q of %q", p, name, plugin)
		}
	}
	for _, p := range []string{
		"/k/pods/u1/volumes/kubernetes.io~empty-dir", "/k/pods/u1/volumes/kubernetes.io~empty-dir/../../etc-hosts", "/k/pods/u1",
		"/k/pods/u1/volume-subpaths/data", "/k/pods/u1/containers/db/1", "/k/pods/volumes/kubernetes.io~empty-dir/data",
		"/mnt/k/pods/u1/volumes/kubernetes.io~empty-dir/data", "proc", "",
	} {
		if v, below, ok := Parse("/k/pods", p); v != (Volume{}) || below != "" || ok {
			t.Errorf("%q is of %+v, %q", p, v, below)
		}
	}
}

// FuzzParse verifies that a volume follows from its path, in any form of the path, and that its name is known
// only for the pod's own directory.
func FuzzParse(f *testing.F) {
	f.Add("u1/volumes/kubernetes.io~csi/data/mount/a")
	f.Add("u1/volume-subpaths/data/db/0")
	f.Add("u1/volumeDevices/kubernetes.io~csi/data")
	f.Add("../pods/u1/./volumes//kubernetes.io~secret/s/")
	f.Add("u1/volumes/~/..")
	f.Fuzz(func(t *testing.T, below string) {
		const root, uid = "/k", "u1"
		p := Pods(root) + "/" + below
		v, rest, ok := Parse(Pods(root), p)
		name, plugin := NameOf(uid, p)
		if !ok {
			if v != (Volume{}) || rest != "" || name != "" {
				t.Errorf("%q is of none, and %+v, %q, %q", p, v, rest, name)
			}
			return
		}
		if name != "" && (v.UID != uid || v.Block || name != v.Name || plugin != v.Plugin) {
			t.Errorf("%q is called %q of %q, and it is %+v", p, name, plugin, v)
		}
		if strings.Contains(v.UID+v.Name, "/") {
			t.Errorf("%q is of %+v", p, v)
		}
		again := path.Join(Pods(root), v.UID, "volumes", strings.ReplaceAll(v.Plugin, "/", "~"), v.Name, rest)
		switch {
		case v.Plugin == "":
			again = path.Join(Pods(root), v.UID, "volume-subpaths", v.Name, rest)
		case v.Block:
			again = strings.Replace(again, "/volumes/", "/volumeDevices/", 1)
		}
		if w, r, ok := Parse(Pods(root), again); w != v || r != rest || !ok {
			t.Errorf("%q is %+v %q, and %q is %+v %q", p, v, rest, again, w, r)
		}
	})
}
