// Package volumepath derives the volumes of pods from paths in the kubelet's directory:
//
//	ROOT/pods/UID/volumes/PLUGIN/NAME, for CSI with /mount
//	ROOT/pods/UID/volumeDevices/PLUGIN/NAME -> a device, or a bind mount of a device node
//	ROOT/pods/UID/volume-subpaths/NAME/CONTAINER/INDEX
//
// Sources: pkg/kubelet/kubelet_getters.go, pkg/volume/csi/csi_mounter.go and
// pkg/volume/util/subpath/subpath_linux.go of Kubernetes, and EscapeQualifiedName in
// k8s.io/utils/strings.
package volumepath

import (
	"path"
	"slices"
	"strings"
)

// CSI is the plugin for CSI volumes. It mounts a volume at the entry "mount" of the
// volume's directory.
const CSI = "kubernetes.io/csi"

// inline are the plugins for volumes in pods' own specs that have no PersistentVolumes.
var inline = []string{
	"kubernetes.io/empty-dir", "kubernetes.io/configmap", "kubernetes.io/secret",
	"kubernetes.io/projected", "kubernetes.io/downward-api", "kubernetes.io/git-repo",
}

// Volume is a volume of a pod.
type Volume struct {
	UID    string // of the pod
	Plugin string // "kubernetes.io/csi"; "" for a subPath
	Name   string // in the pod's spec, or of the PersistentVolume
	Block  bool   // a raw block volume
}

// Pods returns the directory of all pods below the kubelet's root.
func Pods(root string) string { return path.Join(root, "pods") }

// Parse returns the volume at a path below the directory pods, and the part of the path
// below the volume's NAME. ok is false if no volume is there.
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

// NameOf returns the name of the pod's volume that is mounted from a path of the node, and
// the kubelet's plugin for it. uid is the pod's UID. The kubelet's root is not needed: the
// volumes are below the first "/pods/UID/", and a UID is not known before the pod is there.
// The name is "" if the path does not contain it: hostPath volumes without a subPath are
// mounted from their own paths, and raw block volumes are devices. It is also "" for the
// directory of another pod, which a hostPath volume can show.
//
// The directory of a claim has the name of the PersistentVolume. A CSI volume and a subPath
// can be of a claim or of the pod's own spec. Only vol_data.json beside a CSI volume has
// that, on a disk that may not answer. So NameOf takes both kinds of names. Provisioners
// name PersistentVolumes pvc-UUID, so one with the name of a volume of the pod was given
// that name on purpose. If the pod has both volumes, and their plugins differ, policy
// reports an ambiguous name. Volumes of other plugins (local-volume, iscsi, fc) are usually
// PersistentVolumes. NameOf does not return their names, even if the volume is in the pod's
// own spec.
func NameOf(uid, source string) (name, plugin string) {
	source = path.Clean(source)
	root, _, isOfPod := strings.Cut(source, "/pods/"+uid+"/")
	v, below, ok := Parse(root+"/pods", source)
	switch {
	case !isOfPod || !ok || v.Block:
	case v.Plugin == "" && strings.Count(below, "/") == 1, // CONTAINER/INDEX
		v.Plugin == CSI && strings.HasPrefix(below+"/", "mount/"), slices.Contains(inline, v.Plugin):
		return v.Name, v.Plugin
	}
	return "", ""
}
