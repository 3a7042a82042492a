package inventory

import (
	"errors"
	"path"
	"slices"
	"strings"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// Spec has those parts of a container's OCI spec that its disks depend on.
type Spec struct {
	Name    string
	Mounts  []Mount
	Devices []Device
	LeftOut int // the number of mounts and devices that the container has besides, see Reduce
	// TooMany is true if there was no room for those beside the other containers of the pod, see NewContainerWithin.
	TooMany bool
}

// Mount is a mount of the OCI spec.
type Mount struct {
	Source, Destination, Type string
	Options                   Options
	// IsCut is true if the spec lacks a mount or a device at the destination or below it, see Reduce.
	IsCut bool
}

// Device is a device node of the OCI spec.
type Device struct {
	Path string
	Type string // "b" for a block device, "c" for a character device
	Dev  blkio.Dev
}

// Options are those options of a mount that a decision depends on. The others are a tenant's text and are not kept.
type Options uint8

// The options. Each of the first two makes the mount a bind.
const (
	bindOption Options = 1 << iota
	recursiveOption
	readOnlyOption
	propagatedOption
)

// ParseOptions returns the options that a decision depends on.
func ParseOptions(options ...string) (out Options) {
	for _, o := range options {
		switch o {
		case "bind":
			out |= bindOption
		case "rbind":
			out |= recursiveOption
		case "ro":
			out |= readOnlyOption
		case "slave", "rslave", "shared", "rshared":
			out |= propagatedOption
		}
	}
	return out
}

// IsBind reports whether the mount shows a path of the host, and is no new filesystem such
// as proc or tmpfs. In an OCI spec either the type or an option has that.
func (m *Mount) IsBind() bool {
	return m.Type == "bind" || m.Options&(bindOption|recursiveOption) != 0
}

// IsRecursive reports whether the mount includes the mounts below its source.
func (m *Mount) IsRecursive() bool { return m.Options&recursiveOption != 0 }

// IsReadOnly reports whether the mount itself is read-only. Mounts below its source may be
// writable.
func (m *Mount) IsReadOnly() bool { return m.Options&readOnlyOption != 0 }

// IsPropagated reports whether later mounts of the host, at the source or below it, appear
// in the container. The options are rslave for mountPropagation HostToContainer, and
// rshared for Bidirectional.
func (m *Mount) IsPropagated() bool { return m.Options&propagatedOption != 0 }

// IsHostOnly reports whether the device is /dev/mem or /dev/kmsg, which only the host and
// privileged containers have.
func (d Device) IsHostOnly() bool {
	return d.Type == "c" && (d.Dev == blkio.Dev{Major: 1, Minor: 1} || d.Dev == blkio.Dev{Major: 1, Minor: 11})
}

// Reduce drops those facts that no decision depends on, and the mounts and devices that do not fit into room: LeftOut has their
// number. Targets that can select one of them are errors then. It returns the memory in bytes that the spec takes.
func (s *Spec) Reduce(room int) (size int) {
	var missing []string
	fits := func(more int, destination string) bool {
		if size+more > room {
			missing = append(missing, destination)
			return false
		}
		size += more
		return true
	}
	mounts := s.Mounts[:0]
	for i := range s.Mounts {
		if m := &s.Mounts[i]; fits(m.size(), m.Destination) {
			mounts = append(mounts, m.essential())
		}
	}
	var devices []Device
	for _, d := range s.Devices {
		isHostOnly := d.IsHostOnly() && !slices.ContainsFunc(devices, Device.IsHostOnly) // one stands for all of them
		if isHostOnly || d.Type == "b" && fits(deviceSize+len(d.Path), d.Path) {
			devices = append(devices, d)
		}
	}
	if s.Devices = devices; len(missing) > 0 {
		s.Mounts = slices.Clone(mounts) // without the memory of those that are left out
		s.LeftOut += len(missing)
		s.cut(missing)
	}
	return size
}

// essential returns the mount with only those facts that a decision depends on.
func (m *Mount) essential() Mount {
	if !m.IsBind() {
		return Mount{Destination: m.Destination, Type: m.Type, IsCut: m.IsCut}
	}
	return Mount{Source: m.Source, Destination: m.Destination, Type: "bind", Options: m.Options &^ bindOption, IsCut: m.IsCut}
}

// The memory in bytes that a string, a Mount and a Device take without their text.
const (
	stringSize = 16
	mountSize  = 3*stringSize + 8
	deviceSize = 2*stringSize + 8
)

// size returns the memory in bytes that the essential part of the mount takes.
func (m *Mount) size() int {
	out := mountSize + len(m.Destination)
	if !m.IsBind() {
		return out + len(m.Type)
	}
	return out + len(m.Source)
}

// mostMissing is the length in bytes of the paths that are searched for at most: a tenant decides
// how long they are.
const mostMissing = 64 << 10

// cut sets IsCut of the mounts that are around one of these paths.
func (s *Spec) cut(missing []string) {
	around := make([]policy.Mount, len(s.Mounts))
	for i := range s.Mounts {
		around[i].Destination = path.Clean(s.Mounts[i].Destination)
	}
	index, length := policy.IndexMounts(around), 0
	for _, p := range missing {
		if length += len(p); length > mostMissing {
			for i := range s.Mounts {
				s.Mounts[i].IsCut = true
			}
			return
		}
		if i := index.Find(path.Clean("/" + p)); i >= 0 {
			s.Mounts[i].IsCut = true
		}
	}
}

// errLeftOut is the error about disks that cannot be found, now or later.
var errLeftOut = errors.New("some mounts of the container are not kept")

// addLeftOut adds an error for each target that can select a mount or device that the spec lacks. These are
// "*", a path that is in no mount or in one with IsCut, and a volume without a mount.
func (s *Spec) addLeftOut(facts *policy.Container, t *annotation.Targets) {
	if s.LeftOut == 0 {
		return
	}
	unknown := policy.Mount{Destination: "/", Backing: &blkio.Backing{
		Err:    errLeftOut,
		Reason: "the plugin did not keep all of the container's mounts while the node policy had no class for it; restart the container",
	}}
	if s.TooMany {
		unknown.Backing.Reason = "the plugin did not keep all of the container's mounts, because the pod has too many"
	}
	index, everywhere := policy.IndexMounts(facts.Mounts), t.HasStar()
	for _, p := range t.Paths {
		i := index.Find(p)
		if everywhere = everywhere || i < 0; i >= 0 && i < len(s.Mounts) && s.Mounts[i].IsCut {
			m := &facts.Mounts[i]
			others := slices.DeleteFunc(slices.Clone(m.Below), func(b policy.Below) bool { return b.Path == p })
			m.Below = append(others, policy.Below{Path: p, Backing: unknown.Backing})
		}
	}
	declared := len(facts.Mounts)
	for _, v := range t.Volumes {
		if !slices.ContainsFunc(facts.Mounts[:declared], func(m policy.Mount) bool { return m.Volume == v }) {
			ofVolume := unknown
			ofVolume.Volume = v
			facts.Mounts, everywhere = append(facts.Mounts, ofVolume), false
		}
	}
	if everywhere {
		facts.Mounts = append(facts.Mounts, unknown)
	}
}

// isLeftOut reports whether the disks of a backing are not known for good.
func isLeftOut(b *blkio.Backing) bool { return errors.Is(b.Err, errLeftOut) }

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
