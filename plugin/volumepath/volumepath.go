// Package volumepath tells the volumes of pods from the kubelet's directories:
//
//	ROOT/pods/UID/volumes/PLUGIN/NAME, for CSI with /mount
//	ROOT/pods/UID/volumeDevices/PLUGIN/NAME -> a device, or a bind of its node
//	ROOT/pods/UID/volume-subpaths/NAME/CONTAINER/INDEX
//
// Sources: pkg/kubelet/kubelet_getters.go, pkg/volume/csi/csi_mounter.go and
// pkg/volume/util/subpath/subpath_linux.go of Kubernetes, and EscapeQualifiedName
// in k8s.io/utils/strings.
package volumepath

import (
	"path"
	"slices"
	"strings"
)

// CSI is the plugin that mounts its volumes on "mount" in their directories.
const CSI = "kubernetes.io/csi"

// inline are the plugins whose volumes are in pods' own specs only, never
// PersistentVolumes.
var inline = []string{
	"kubernetes.io/empty-dir", "kubernetes.io/configmap", "kubernetes.io/secret",
	"kubernetes.io/projected", "kubernetes.io/downward-api", "kubernetes.io/git-repo",
}

// Volume is a volume of a pod.
type Volume struct {
	UID    string // of the pod
	Plugin string // "kubernetes.io/csi"; "" of a subPath
	Name   string // the pod's, or that of the PersistentVolume
	Block  bool   // without a filesystem
}

// Pods returns the directory of the pods below the kubelet's root.
func Pods(root string) string { return path.Join(root, "pods") }

// Parse returns the volume that a path below the directory of the pods is of, and
// what of the path is below the volume's NAME.
func Parse(pods, p string) (v Volume, below string, ok bool) {
	rest, ok := strings.CutPrefix(path.Clean(p), pods+"/")
	uid, rest, _ := strings.Cut(rest, "/")
	kind, rest, _ := strings.Cut(rest, "/")
	dir, rest, more := strings.Cut(rest, "/")
	switch {
	case !ok || !more:
	case kind == "volume-subpaths":
		return Volume{UID: uid, Name: dir}, rest, true
	case kind == "volumes" || kind == "volumeDevices":
		name, below, _ := strings.Cut(rest, "/")
		return Volume{uid, strings.ReplaceAll(dir, "~", "/"), name, kind == "volumeDevices"}, below, true
	}
	return Volume{}, "", false
}

// NameOf tells from the host's side of a mount the name of the pod's volume that
// it is of, and the kubelet's plugin for it. What tells nothing has no name: a
// hostPath volume, but for its subPaths, is bound from where it is, and a raw
// block volume is a device. The UID is the pod's own, so that a hostPath volume
// that shows another pod's directory is none of this pod's.
//
// A claim's directory has the name of its PersistentVolume, and CSI and subPaths
// have both. Only vol_data.json beside a CSI volume would say which, on a disk that
// may not answer. So both are taken for the volume's: a PersistentVolume that is
// called as one of the pod's volumes is so by the intent of who named it, since
// provisioners call them pvc-UUID, and where the pod has that volume from another
// plugin too, policy refuses to choose. What other plugins have are
// PersistentVolumes (local-volume, iscsi, fc): those names are left alone, and a
// volume of theirs in a pod's own spec is not known.
func NameOf(root, uid, source string) (name, plugin string) {
	v, below, ok := Parse(Pods(root), source)
	switch {
	case !ok || v.UID != uid || v.Block:
	case v.Plugin == "" && strings.Count(below, "/") == 1, // CONTAINER/INDEX
		v.Plugin == CSI && strings.HasPrefix(below+"/", "mount/"), slices.Contains(inline, v.Plugin):
		return v.Name, v.Plugin
	}
	return "", ""
}
