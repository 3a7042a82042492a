package inventory

import (
	"path"
	"slices"
	"strings"
)

// tokenVolume begins the path, in the kubelet's directory of a pod, of the projected volume that the ServiceAccount
// admission plugin adds to each pod, with the service account's token. A tenant may give a projected volume of its
// own that name: those are in memory as well.
//
// Source: ServiceAccountVolumeName in Kubernetes' plugin/pkg/admission/serviceaccount.
const tokenVolume = "volumes/kubernetes.io~projected/kube-api-access-"

// runtimeDirs are the usual directories of the runtimes. Those in /run are in memory, and have /dev/shm.
var runtimeDirs = []string{
	"/var/lib/containerd", "/var/lib/rancher/k3s/agent/containerd", "/var/lib/k0s/containerd", "/var/lib/containers/storage",
	"/run/containerd", "/run/k3s/containerd", "/run/k0s/containerd", "/run/containers/storage",
}

// sandboxDirs have the files of sandboxes by ID, below the directory of a runtime: hostname, resolv.conf, hosts and shm of
// containerd, and of CRI-O.
var sandboxDirs = []string{"/io.containerd.grpc.v1.cri/sandboxes/", "/overlay-containers/"}

// injected recognizes the mounts that the runtime and the kubelet add to each container of a pod. A mount's source
// on the host decides, not its path in the container: a tenant's volume at /etc/hosts is a volume.
//
// The source is free of symbolic links. A tenant can learn the IDs of its pod in an init container, make directories with the same
// names in a hostPath volume, and link to them. So the directory above them has to be one in which only root makes
// directories. A mount below another one is a volume: "*" limits its disk as well.
type injected struct {
	kubelet string // its root
	layers  string // the runtime's directory of the writable layers
	pod     *Pod
}

func (f *Finder) injectedInto(pod *Pod, layer Layer) injected {
	return injected{kubelet: f.KubeletRoot, layers: layer.Dir, pod: pod}
}

func (in *injected) has(m *Mount) bool {
	if !m.IsBind() {
		return true
	}
	src := path.Clean(m.Source)
	return in.isKubelets(src) || in.isRuntimes(src)
}

// isKubelets reports whether a path is that of /etc/hosts, of a termination log or of the token.
func (in *injected) isKubelets(src string) bool {
	file, isOfPod := below(src, in.kubelet, "pods", in.pod.UID)
	token, isToken := strings.CutPrefix(file, tokenVolume)
	log, isLog := strings.CutPrefix(file, "containers/") // NAME/ID: a directory of a container is none
	return isOfPod && (file == "etc-hosts" || isLog && strings.Count(log, "/") == 1 || isToken && token != "" && !strings.Contains(token, "/"))
}

// isRuntimes reports whether a path is one of the sandbox's, in the runtime's directory: a usual one, or one that
// has the writable layers as well.
func (in *injected) isRuntimes(src string) bool {
	for _, dir := range sandboxDirs {
		root, file, found := strings.Cut(src, dir)
		if _, isOfPod := below(file, in.pod.Sandbox); found && isOfPod {
			_, hasLayers := below(in.layers, root)
			return hasLayers || in.layers == root || slices.Contains(runtimeDirs, root)
		}
	}
	return false
}

// below returns the part of a path below the directory that these elements make. The first one may be the root.
func below(p string, elements ...string) (rest string, ok bool) {
	for _, element := range elements {
		if p, ok = strings.CutPrefix(p, strings.TrimSuffix(element, "/")); !ok {
			return "", false
		}
		if p, ok = strings.CutPrefix(p, "/"); !ok {
			return "", false
		}
	}
	return p, true
}
