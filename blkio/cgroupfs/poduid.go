package cgroupfs

import (
	"path"
	"slices"
	"strings"
)

// PodUID returns the UID of the pod that a cgroup belongs to, with "_" for "-" as
// systemd has it, or "" if it belongs to none. Only the first part of the path that
// looks like a pod's counts: a container may have named the parts below.
//
//	kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podUID.slice    systemd
//	kubepods/burstable/podUID                                                  cgroupfs
//
// Source: pkg/kubelet/cm/pod_container_manager_linux.go of Kubernetes.
func PodUID(cgroup string) string {
	below := false // kubepods
	for part := range strings.SplitSeq(cgroup, "/") {
		name, slice := strings.CutSuffix(part, sliceSuffix)
		if i := strings.LastIndex(name, "-pod"); slice && i >= 0 && strings.HasSuffix(strings.TrimSuffix(strings.TrimSuffix(name[:i], "-besteffort"), "-burstable"), "kubepods") {
			return strings.ReplaceAll(name[i+len("-pod"):], "-", "_")
		}
		if uid, ok := strings.CutPrefix(part, "pod"); ok && below && !slice && uid != "" {
			return strings.ReplaceAll(uid, "-", "_")
		}
		below = below || IsKubepods(part)
	}
	return ""
}

// IsKubepods reports whether a part of a path is the cgroup of all pods, which may be
// below another one: "kubepods", "kubepods.slice", "kubelet-kubepods.slice".
func IsKubepods(part string) bool {
	name := strings.TrimSuffix(part, sliceSuffix)
	return name == "kubepods" || strings.HasSuffix(name, "-kubepods")
}

// HoldsPods reports whether a cgroup is a pod's, or one above the pods'. No process is
// in those, only in cgroups below.
func HoldsPods(cgroup string) bool {
	return PodUID(path.Dir(cgroup)) == "" && slices.ContainsFunc(strings.Split(cgroup, "/"), IsKubepods)
}
