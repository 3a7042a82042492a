package cgroupfs

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// ContainerCgroup returns the path below the cgroup root, without a leading slash, for the
// linux.cgroupsPath of an OCI spec. It accepts the forms of both cgroup drivers:
//
//	kubepods-besteffort-pod1.slice:cri-containerd:ID    systemd
//	/kubepods/besteffort/pod1/ID                        cgroupfs
//
// podParent is the pod's cgroup_parent, or "". If its last element is the slice in
// cgroupsPath, it is the path of that slice. Otherwise the path follows from systemd's
// rule.
//
// Source: runc, docs/systemd.md, "systemd unit name and placement".
func ContainerCgroup(cgroupsPath, podParent string) (string, error) {
	p, err := containerCgroup(cgroupsPath, podParent)
	if err != nil {
		return "", fmt.Errorf("cgroups path %.200q: %w", cgroupsPath, err)
	}
	return p, nil
}

func containerCgroup(cgroupsPath, podParent string) (string, error) {
	if strings.HasPrefix(cgroupsPath, "/") {
		return cleanCgroup(cgroupsPath)
	}
	slice, name, hasPrefix := strings.Cut(cgroupsPath, ":")
	prefix, id, hasID := strings.Cut(name, ":")
	if !hasPrefix || !hasID || strings.Contains(id, ":") {
		return "", fmt.Errorf("neither SLICE:PREFIX:ID nor absolute")
	}
	if id == "" || strings.Contains(prefix, "/") || strings.Contains(id, "/") {
		return "", fmt.Errorf("no unit name in %.80q", prefix+":"+id)
	}
	if slice == "" {
		slice = "system.slice"
	}
	parent := ""
	if path.Base(podParent) == slice && slice != podParent {
		parent = podParent
	} else {
		var err error
		if parent, err = expandSlice(slice); err != nil {
			return "", err
		}
	}
	if strings.HasSuffix(id, sliceSuffix) { // an ID that is a slice is the unit itself
		return cleanCgroup(parent + "/" + id)
	}
	return cleanCgroup(parent + "/" + prefix + "-" + id + ".scope")
}

// PodCgroup returns the path below the cgroup root, without a leading slash, for a pod's
// cgroup_parent. The kubelet sends a path; some other CRI clients send the name of a slice.
func PodCgroup(cgroupParent string) (string, error) {
	p := cgroupParent
	var err error
	if !strings.Contains(p, "/") && strings.HasSuffix(p, sliceSuffix) {
		p, err = expandSlice(p)
	}
	if err == nil {
		p, err = cleanCgroup(p)
	}
	if err != nil {
		return "", fmt.Errorf("cgroup parent %.200q: %w", cgroupParent, err)
	}
	return p, nil
}

const sliceSuffix = ".slice"

// expandSlice spells out where systemd puts a slice, "/a.slice/a-b.slice" for
// "a-b.slice". "-.slice" is the root.
//
// Source: systemd.slice(5).
func expandSlice(slice string) (string, error) {
	name, ok := strings.CutSuffix(slice, sliceSuffix)
	if !ok || strings.Contains(name, "/") {
		return "", fmt.Errorf("invalid slice name %.80q", slice)
	}
	if name == "-" {
		return "", nil
	}
	var b strings.Builder
	for i := 0; i <= len(name); i++ {
		if i < len(name) && name[i] != '-' {
			continue
		}
		if i == 0 || name[i-1] == '-' {
			return "", fmt.Errorf("invalid slice name %.80q: empty part", slice)
		}
		b.WriteString("/" + name[:i] + sliceSuffix)
	}
	return b.String(), nil
}

// cleanCgroup checks and cleans a path below the cgroup root.
func cleanCgroup(p string) (string, error) {
	if strings.ContainsFunc(p, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return "", fmt.Errorf("contains a control character")
	}
	if rel := strings.TrimPrefix(p, "/"); rel != "." && fs.ValidPath(rel) { // it is clean, as mostly
		return rel, nil
	}
	if slices.Contains(strings.Split(p, "/"), "..") {
		return "", fmt.Errorf("contains \"..\"")
	}
	if p = path.Clean("/" + p)[1:]; p == "" {
		return "", fmt.Errorf("is the root cgroup")
	}
	return p, nil
}

// isContainer reports whether a cgroup is a container's, by the names that the kubelet and systemd give to the
// cgroups above it.
func isContainer(p string) bool {
	return strings.HasSuffix(p, ".scope") || isPod(path.Dir(p))
}

// isPod reports whether a cgroup is a pod's:
//
//	kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podUID.slice    systemd
//	kubepods/burstable/podUID                                                  cgroupfs
func isPod(p string) bool {
	dir, name := path.Split(p)
	if slice, ok := strings.CutSuffix(name, sliceSuffix); ok {
		return strings.Contains(slice, "kubepods") && strings.Contains(slice, "-pod")
	}
	return strings.HasPrefix(name, "pod") && strings.Contains(dir, "kubepods")
}
