package podfacts

import (
	"path"
	"strings"

	"github.com/nri-blkio/nri-blkio/policy"
)

// QOSOf returns the QoS class of a pod by the parent of its containers' cgroups, which the kubelet
// names, or "":
//
//	/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podUID.slice    systemd
//	/kubepods/burstable/podUID                                                  cgroupfs
//
// Source: podContainerManagerImpl.GetPodContainerName in Kubernetes'
// pkg/kubelet/cm/pod_container_manager_linux.go.
func QOSOf(cgroup string) policy.QOS {
	parent, pod := path.Split(cgroup)
	name, isSlice := strings.CutSuffix(pod, ".slice")
	if isSlice {
		i := strings.LastIndex(name, "-pod")
		if i < 0 {
			return ""
		}
		parent = name[:i]
	} else if !strings.HasPrefix(pod, "pod") {
		return ""
	}
	parent = strings.TrimSuffix(parent, "/")
	switch {
	case strings.HasSuffix(parent, "besteffort"):
		return policy.BestEffort
	case strings.HasSuffix(parent, "burstable"):
		return policy.Burstable
	case strings.HasSuffix(parent, "kubepods"):
		return policy.Guaranteed
	}
	return ""
}
