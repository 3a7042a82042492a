package cgroupfs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/blkio"
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

// kernfsHandle is the type of a handle that is a number of kernfs (FILEID_KERNFS
// in include/linux/exportfs.h, Linux 5.5).
const kernfsHandle = 0xfe

// ByID returns the cgroup with an ID, see [Cgroup.ID]. The error is ErrGone if it was
// removed. If the cgroup's path is too long for the kernel to report, ByID returns its
// nearest ancestor with a shorter path. It requires CAP_DAC_READ_SEARCH. It finds cgroups
// of another cgroup namespace only if they are below the hierarchy's root.
func (h *Hierarchy) ByID(id uint64) (Cgroup, error) {
	path, err := h.pathOf(id)
	if err != nil {
		return Cgroup{}, fmt.Errorf("find cgroup %d: %w", id, err)
	}
	return h.Cgroup(path), nil
}

func (h *Hierarchy) pathOf(id uint64) (string, error) {
	if id == rootID {
		return ".", nil
	}
	root, err := unix.Open(h.dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(root)
	handle := unix.NewFileHandle(kernfsHandle, binary.NativeEndian.AppendUint64(nil, id))
	fd, err := ignoreEINTR(func() (int, error) {
		return unix.OpenByHandleAt(root, handle, unix.O_PATH|unix.O_CLOEXEC)
	})
	if errors.Is(err, unix.ESTALE) {
		return "", blkio.ErrGone
	}
	if err != nil {
		return "", err
	}
	defer func() { unix.Close(fd) }()
	dir, err := nameOf(root)
	if err != nil {
		return "", err
	}
	name, err := nameOf(fd)
	for range maxUp {
		if !errors.Is(err, unix.ENAMETOOLONG) {
			break
		}
		up, openErr := unix.Openat(fd, "..", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if openErr != nil {
			return "", openErr
		}
		unix.Close(fd)
		fd = up
		name, err = nameOf(fd)
	}
	if err != nil {
		return "", err
	}
	below, ok := strings.CutPrefix(name, strings.TrimSuffix(dir, "/")+"/")
	if !ok {
		return "", fmt.Errorf("cgroup is at %q, outside %s", name, dir)
	}
	return below, nil
}

// maxUp bounds the search for an ancestor whose path is short enough.
const maxUp = 256

func nameOf(fd int) (string, error) { return os.Readlink("/proc/self/fd/" + strconv.Itoa(fd)) }

// Processes returns the process IDs in the cgroup, without those of its descendants. The ID
// of a process that the reader's PID namespace does not show is 0.
func (c Cgroup) Processes() ([]int, error) {
	data, err := c.h.readToEnd(c.path + "/cgroup.procs")
	if err != nil {
		return nil, c.fileError("read", "cgroup.procs", "", err)
	}
	var out []int
	for field := range strings.FieldsSeq(string(data)) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			return nil, c.fileError("read", "cgroup.procs", "", err)
		}
		out = append(out, pid)
	}
	return out, nil
}
