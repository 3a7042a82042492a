package plugin

import (
	"path"
	"strings"
)

// volumeOf tells from the host's side of a mount the name of the pod's volume
// that it is of, and the kubelet's plugin for it ("" below volume-subpaths):
//
//	ROOT/pods/UID/volumes/kubernetes.io~empty-dir/NAME
//	ROOT/pods/UID/volumes/kubernetes.io~csi/NAME/mount
//	ROOT/pods/UID/volume-subpaths/NAME/CONTAINER/INDEX
//
// (pkg/kubelet/kubelet_getters.go, pkg/volume/csi/csi_mounter.go and
// pkg/volume/util/subpath/subpath_linux.go of Kubernetes.) What tells nothing
// has no name: a hostPath volume, but for its subPaths, is bound from where it
// is, and a raw block volume is a device. The UID is the pod's own, so that a
// hostPath volume that shows another pod's directory is none of this pod's.
//
// NAME is that of the pod's volume, or for a claim that of its
// PersistentVolume, and CSI and subPaths have both. Only vol_data.json beside a
// CSI volume would say which, on a disk that may not answer. So both are taken
// for the volume's: a PersistentVolume that is called as one of the pod's volumes
// is so by the intent of who named it, since provisioners call them pvc-UUID, and
// where the pod has that volume from another plugin too, policy refuses to choose.
// What other plugins have are PersistentVolumes (local-volume, iscsi, fc): those
// names are left alone, and a volume of theirs in a pod's own spec is not known.
func volumeOf(kubeletRoot, uid, source string) (name, plugin string) {
	rest, ok := strings.CutPrefix(path.Clean(source), path.Join(kubeletRoot, "pods", uid)+"/")
	if !ok || uid == "" {
		return "", ""
	}
	part := strings.SplitN(rest, "/", 5)
	switch {
	case part[0] == "volume-subpaths" && len(part) == 4:
		return part[1], ""
	case part[0] != "volumes" || len(part) < 3:
		return "", ""
	case isInline(part[1]), part[1] == "kubernetes.io~csi" && len(part) > 3 && part[3] == "mount":
		return part[2], part[1]
	}
	return "", ""
}

// isInline says that a plugin's volumes are in pods' own specs only, never
// PersistentVolumes.
func isInline(plugin string) bool {
	switch plugin {
	case "kubernetes.io~empty-dir", "kubernetes.io~configmap", "kubernetes.io~secret",
		"kubernetes.io~projected", "kubernetes.io~downward-api", "kubernetes.io~git-repo":
		return true
	}
	return false
}
