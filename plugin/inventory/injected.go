package inventory

import (
	"path"
	"strings"
)

// tokenVolume begins the name of the projected volume that the ServiceAccount
// admission plugin adds to each pod, with the service account's token. A tenant
// may give a projected volume of its own that name: those are in memory as well.
//
// Source: ServiceAccountVolumeName in Kubernetes' plugin/pkg/admission/serviceaccount.
const tokenVolume = "kube-api-access-"

// injected has parts of the sources of the mounts that the runtime and the kubelet add to each container of a
// pod. A mount's source on the host decides, not its path in the container: a tenant's volume at /etc/hosts is
// a volume.
type injected struct{ token, sandbox, overlay, hosts, termination string }

func injectedInto(pod *Pod) injected {
	kubelet := "/pods/" + pod.UID + "/"
	return injected{
		token:       kubelet + "volumes/kubernetes.io~projected/" + tokenVolume,
		sandbox:     "/io.containerd.grpc.v1.cri/sandboxes/" + pod.Sandbox + "/", // hostname, resolv.conf, hosts, shm
		overlay:     "/overlay-containers/" + pod.Sandbox + "/",                  // the same of CRI-O
		hosts:       kubelet + "etc-hosts",
		termination: kubelet + "containers/", // the termination log
	}
}

func (in *injected) has(m *Mount) bool {
	if !m.IsBind() {
		return true
	}
	src := path.Clean(m.Source)
	_, token, _ := strings.Cut(src, in.token)
	return token != "" && !strings.Contains(token, "/") || strings.Contains(src, in.sandbox) || strings.Contains(src, in.overlay) ||
		strings.HasSuffix(src, in.hosts) || strings.Contains(src, in.termination)
}
