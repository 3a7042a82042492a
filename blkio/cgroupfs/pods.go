package cgroupfs

import (
	"io/fs"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// RunningPods returns the cgroups of the kubelet's pods in which at least two containers have processes, in a fixed order. The
// first container of a pod is its sandbox, so another one has been created there. It does not find pods below a cgroup that is
// neither a slice nor kubepods.
func (h *Hierarchy) RunningPods() (out []Cgroup, _ error) {
	err := h.walk(".", func(c Cgroup, _ int, _ *unix.Stat_t) error {
		if !isPod(c.path) {
			if c.path == "." || strings.HasSuffix(c.path, sliceSuffix) || HoldsPods(c.path) {
				return nil
			}
			return fs.SkipDir
		}
		running, err := c.runsContainers()
		if err != nil {
			return err
		}
		if running {
			out = append(out, c)
		}
		return fs.SkipDir
	})
	return out, err
}

// runsContainers reports whether a pod has processes in at least two child cgroups, without those of CRI-O's monitors.
func (c Cgroup) runsContainers() (bool, error) {
	children, err := c.Children()
	if err != nil {
		return false, err
	}
	count := 0
	for _, child := range children {
		if strings.Contains(path.Base(child.path), "conmon") {
			continue
		}
		switch populated, err := child.Populated(); {
		case err != nil:
			return false, err
		case populated:
			count++
		}
	}
	return count >= 2, nil
}

// PodUID returns the UID of the pod that a cgroup belongs to, or "" if it belongs to no
// pod. With the systemd driver, the UID has "_" instead of "-". Only the first path element
// that has the form of a pod's cgroup counts, because a container may choose the names
// below its own.
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

// IsKubepods reports whether a path element is the name of the cgroup of all pods, such as
// "kubepods", "kubepods.slice" and "kubelet-kubepods.slice".
func IsKubepods(part string) bool {
	name := strings.TrimSuffix(part, sliceSuffix)
	return name == "kubepods" || strings.HasSuffix(name, "-kubepods")
}

// HoldsPods reports whether a cgroup is a pod's, or an ancestor of pods' cgroups. Such a
// cgroup has no processes of its own.
func HoldsPods(cgroup string) bool {
	return PodUID(path.Dir(cgroup)) == "" && slices.ContainsFunc(strings.Split(cgroup, "/"), IsKubepods)
}
