package check

import (
	"context"
	"path"
	"slices"
	"strings"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/manifest"
	"github.com/nri-blkio/nri-blkio/plugin/volumepath"
	"github.com/nri-blkio/nri-blkio/policy"
)

// volumes derives from a pod's manifest what the runtime would get of its
// containers' mounts.
type volumes struct {
	storage     Storage // nil if nothing is known of the node
	kubeletRoot string
	rootfs      blkio.Backing
	targets     []string // the paths in a container that annotations name
	unknowns    []string // names of the disks that are unknown; the index is the number
}

// unknown returns the backing that stands for an unknown disk. The same name is the same disk.
// What asks for limits there can be read and compared all the same.
func (v *volumes) unknown(name string) blkio.Backing {
	i := slices.Index(v.unknowns, name)
	if i < 0 {
		i = len(v.unknowns)
		v.unknowns = append(v.unknowns, name)
	}
	return blkio.Backing{Disks: []blkio.Disk{blkio.UnknownDisk(uint32(i), name)}}
}

// resolve returns what a path of the node is stored on.
func (v *volumes) resolve(ctx context.Context, hostPath string) blkio.Backing {
	if v.storage == nil {
		return v.unknown("disk of " + path.Clean(hostPath))
	}
	return v.storage.Resolve(ctx, hostPath)
}

const tmpfsReason = "tmpfs is memory, not a disk"

// containers returns the pod's containers, init containers first. A mount of a volume that the
// pod does not have is left out: reading the manifest has reported it.
func (v *volumes) containers(ctx context.Context, pod *manifest.Pod) []policy.Container {
	found := make(map[string]volume, len(pod.Volumes))
	for i := range pod.Volumes {
		found[pod.Volumes[i].Name] = v.volume(ctx, &pod.Volumes[i])
	}
	out := make([]policy.Container, 0, len(pod.Containers))
	for i := range pod.Containers {
		out = append(out, v.container(ctx, &pod.Containers[i], found))
	}
	return out
}

func (v *volumes) container(ctx context.Context, c *manifest.Container, found map[string]volume) policy.Container {
	out := policy.Container{Name: c.Name, Rootfs: v.rootfs, Mounts: v.injected(ctx)}
	for _, m := range c.Mounts {
		vol, ok := found[m.Volume]
		if !ok {
			continue
		}
		mount := v.mount(ctx, &m, &vol)
		// The kubelet and the runtime inject nothing at a path that the pod has a volume at.
		out.Mounts = slices.DeleteFunc(out.Mounts, func(m policy.Mount) bool { return m.Injected && m.Destination == mount.Destination })
		out.Mounts = append(out.Mounts, mount)
	}
	for _, d := range c.Devices {
		if vol, ok := found[d.Volume]; ok {
			// "*" means none of the devices of a privileged container, which has all of the node's.
			out.Mounts = append(out.Mounts, policy.Mount{Destination: absolute(d.Path), Injected: c.Privileged, Backing: vol.backing})
		}
	}
	return out
}

func (v *volumes) mount(ctx context.Context, m *manifest.Mount, vol *volume) policy.Mount {
	out := policy.Mount{Destination: absolute(m.Path), ReadOnly: m.ReadOnly || vol.readOnly, Backing: vol.backing}
	if vol.nameKnown == always || vol.nameKnown == bySubPath && m.SubPath != "" {
		out.Volume = m.Volume
	}
	isExpression := strings.Contains(m.SubPath, "$(")
	switch {
	case vol.hostPath == "":
	case m.SubPath == "" || isExpression:
		out.Below = v.below(ctx, vol.hostPath, out.Destination)
	default: // the kubelet binds it without the mounts below
		out.Backing = v.resolve(ctx, path.Join(vol.hostPath, m.SubPath))
	}
	return out
}

// absolute returns a path in a container as the kubelet gives it to the runtime
// (MakeAbsolutePath in pkg/volume/util/util.go).
func absolute(p string) string { return path.Join("/", p) }

// below returns what is mounted below a directory of the node, and so below dir
// in a container. What has no disk matters only where a target names it.
func (v *volumes) below(ctx context.Context, hostPath, dir string) []policy.Below {
	if v.storage == nil {
		return nil
	}
	var out []policy.Below
	for at, b := range v.storage.Submounts(ctx, hostPath) {
		p := path.Join(dir, at)
		named := slices.ContainsFunc(v.targets, func(t string) bool { return t == p || strings.HasPrefix(t, p+"/") })
		if named || len(b.Disks) > 0 {
			out = append(out, policy.Below{Path: p, Backing: b})
		}
	}
	return out
}

// injected is what containerd and the kubelet mount into each container.
func (v *volumes) injected(ctx context.Context) []policy.Mount {
	kubelet := v.kubelets(ctx)
	kernel := func(fstype string) blkio.Backing {
		return blkio.Backing{FSType: fstype, Reason: fstype + " is not stored on a disk"}
	}
	memory := blkio.Backing{FSType: "tmpfs", Reason: tmpfsReason}
	mounts := []policy.Mount{
		{Destination: "/proc", Backing: kernel("proc")},
		{Destination: "/dev", Backing: kernel("tmpfs")},
		{Destination: "/dev/pts", Backing: kernel("devpts")},
		{Destination: "/dev/mqueue", Backing: kernel("mqueue")},
		{Destination: "/dev/shm", Backing: memory},
		{Destination: "/sys", Backing: kernel("sysfs"), ReadOnly: true},
		{Destination: "/sys/fs/cgroup", Backing: kernel("cgroup"), ReadOnly: true},
		{Destination: "/etc/hosts", Backing: kubelet},
		{Destination: "/dev/termination-log", Backing: kubelet},
		{Destination: "/etc/hostname", Backing: v.rootfs},
		{Destination: "/etc/resolv.conf", Backing: v.rootfs},
		{Destination: "/var/run/secrets/kubernetes.io/serviceaccount", Backing: memory, ReadOnly: true},
	}
	for i := range mounts {
		mounts[i].Injected = true
	}
	return mounts
}

// volume has the facts about a volume that is not mounted yet.
type volume struct {
	backing   blkio.Backing
	hostPath  string // path in which a subPath can be looked up
	readOnly  bool
	nameKnown nameKnown
}

// nameKnown is whether the plugin will know the volume's name from the kubelet's directories,
// see volumepath.NameOf.
type nameKnown uint8

const (
	never nameKnown = iota
	bySubPath
	always
)

// nameKnownBy returns that for a source. The directories of claims, and of generic
// ephemeral volumes, have the name of the PersistentVolume.
func nameKnownBy(source string) nameKnown {
	switch source {
	case manifest.EmptyDir, manifest.CSI, "configMap", "secret", "projected", "downwardAPI", "gitRepo":
		return always
	case manifest.PersistentVolumeClaim, "ephemeral", "image":
		return never
	}
	return bySubPath
}

// unmounted is the warning for a volume without a path on the node before it is mounted.
const unmounted = "disk unknown until the volume is mounted; if it then has no disk on this node, the container is rejected"

// volume finds out what a volume will be stored on.
func (v *volumes) volume(ctx context.Context, vol *manifest.Volume) volume {
	out := volume{nameKnown: nameKnownBy(vol.Source), readOnly: vol.ReadOnly}
	switch vol.Source {
	case manifest.HostPath:
		out.backing, out.hostPath = v.resolve(ctx, vol.Path), vol.Path
	case manifest.EmptyDir:
		out.backing = v.emptyDir(ctx, vol.Medium)
	case "gitRepo":
		out.backing = v.kubelets(ctx)
	case "configMap": // on the kubelet's disk, while the kubelet mounts a tmpfs for the others
		out.backing, out.readOnly = v.kubelets(ctx), true
	case "secret", "projected", "downwardAPI":
		out.backing, out.readOnly = blkio.Backing{FSType: "tmpfs", Reason: tmpfsReason}, true
	case "image":
		out.backing, out.readOnly = v.rootfs, true
	case "nfs":
		out.backing = network("nfs")
	case "cephfs":
		out.backing = network("ceph")
	case "azureFile":
		out.backing = network("cifs")
	default:
		out.backing = v.unknown(unknownName(vol))
		if v.storage != nil {
			out.backing.Warning = &blkio.Warning{Text: unmounted}
		}
	}
	return out
}

// kubelets is where the kubelet keeps the volumes that it makes itself.
func (v *volumes) kubelets(ctx context.Context) blkio.Backing {
	if v.storage == nil {
		return v.unknown("disk of the kubelet's directory")
	}
	return v.storage.Resolve(ctx, volumepath.Pods(v.kubeletRoot))
}

func (v *volumes) emptyDir(ctx context.Context, medium string) blkio.Backing {
	switch medium {
	case "":
		return v.kubelets(ctx)
	case "Memory":
		return blkio.Backing{FSType: "tmpfs", Reason: tmpfsReason}
	}
	return blkio.Backing{FSType: "hugetlbfs", Reason: "hugetlbfs is memory, not a disk"}
}

func network(fstype string) blkio.Backing {
	return blkio.Backing{FSType: fstype, Reason: fstype + " is a network filesystem: there is no local disk to limit"}
}

func unknownName(vol *manifest.Volume) string {
	switch vol.Source {
	case manifest.PersistentVolumeClaim:
		return "disk of claim " + vol.Claim
	case manifest.CSI:
		return "disk of CSI volume " + vol.Name
	}
	return "disk of volume " + vol.Name
}
