package main

import (
	"context"
	"fmt"
	"iter"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/volumepath"
	"github.com/nri-blkio/nri-blkio/policy"
)

// resolver finds what a path of the node is stored on; a *storage.Storage.
type resolver interface {
	Resolve(ctx context.Context, hostPath string) blkio.Backing
	Submounts(ctx context.Context, hostPath string) iter.Seq2[string, blkio.Backing]
}

// volumes derives from a pod's manifest what the runtime would be told of its
// containers' mounts.
type volumes struct {
	storage     resolver
	kubeletRoot string
	rootfs      blkio.Backing
	targets     []string // the paths in a container that annotations name
}

// unknownMajor is the major number of placeholders for the disks of volumes
// that are not mounted yet. The kernel's are 12 bits.
const unknownMajor = 1 << 31

func isUnknown(d blkio.Disk) bool { return d.Dev.Major == unknownMajor }

const tmpfsReason = "tmpfs is memory, not a disk"

// containers returns the pod's containers, init containers first, and what is
// wrong with their volumes.
func (v *volumes) containers(ctx context.Context, spec *corev1.PodSpec) ([]policy.Container, []string) {
	backings := make(map[string]volume, len(spec.Volumes))
	for i := range spec.Volumes {
		vol := &spec.Volumes[i]
		found := v.volume(ctx, vol, uint32(i))
		found.told = toldBy(&vol.VolumeSource)
		backings[vol.Name] = found
	}
	var (
		out      []policy.Container
		problems []string
	)
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			c, missing := v.container(ctx, &list[i], backings)
			out = append(out, c)
			problems = append(problems, missing...)
		}
	}
	return out, problems
}

func (v *volumes) container(ctx context.Context, c *corev1.Container, backings map[string]volume) (policy.Container, []string) {
	out := policy.Container{Name: c.Name, Rootfs: v.rootfs, Mounts: v.injected(ctx)}
	var problems []string
	for _, m := range c.VolumeMounts {
		vol, ok := backings[m.Name]
		if !ok {
			problems = append(problems, fmt.Sprintf("container %s: unknown volume %q", c.Name, m.Name))
			continue
		}
		mount := policy.Mount{Destination: path.Clean(m.MountPath), ReadOnly: m.ReadOnly || vol.readOnly, Backing: vol.backing}
		if isSub := m.SubPath != "" || m.SubPathExpr != ""; vol.told == always || vol.told == bySubPath && isSub {
			mount.Volume = m.Name
		}
		switch {
		case vol.hostPath == "":
		case m.SubPath != "": // the kubelet binds it without the mounts below
			mount.Backing = v.storage.Resolve(ctx, path.Join(vol.hostPath, m.SubPath))
		default:
			mount.Below = v.below(ctx, vol.hostPath, mount.Destination)
		}
		// The kubelet and the runtime inject nothing at a path that the pod has a volume at.
		out.Mounts = slices.DeleteFunc(out.Mounts, func(m policy.Mount) bool { return m.Injected && m.Destination == mount.Destination })
		out.Mounts = append(out.Mounts, mount)
	}
	for _, d := range c.VolumeDevices {
		vol, ok := backings[d.Name]
		if !ok {
			problems = append(problems, fmt.Sprintf("container %s: unknown volume device %q", c.Name, d.Name))
			continue
		}
		out.Mounts = append(out.Mounts, policy.Mount{
			Destination: path.Clean(d.DevicePath), Injected: isPrivileged(c), Backing: vol.backing,
		})
	}
	return out, problems
}

// below returns what is mounted below a directory of the node, and so below dir
// in a container. What has no disk matters only where a target names it.
func (v *volumes) below(ctx context.Context, hostPath, dir string) []policy.Below {
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

// isPrivileged says that a container gets all of the node's devices, of which
// "*" means none.
func isPrivileged(c *corev1.Container) bool {
	return c.SecurityContext != nil && c.SecurityContext.Privileged != nil && *c.SecurityContext.Privileged
}

// injected is what containerd and the kubelet mount into each container.
func (v *volumes) injected(ctx context.Context) []policy.Mount {
	kubelet := v.storage.Resolve(ctx, volumepath.Pods(v.kubeletRoot))
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

// volume is what is known of one volume before it is mounted.
type volume struct {
	backing  blkio.Backing
	hostPath string // where a subPath can be looked up
	readOnly bool
	told     told
}

// told says whether the plugin will know the volume's name by the kubelet's
// directories, as volumepath.NameOf has it.
type told uint8

const (
	never told = iota
	bySubPath
	always
)

// toldBy: a claim's directories have the name of its PersistentVolume, and so has
// what a generic ephemeral volume is.
func toldBy(src *corev1.VolumeSource) told {
	switch {
	case src.EmptyDir != nil, src.ConfigMap != nil, src.Secret != nil, src.Projected != nil, src.DownwardAPI != nil,
		src.GitRepo != nil, src.CSI != nil:
		return always
	case src.PersistentVolumeClaim != nil, src.Ephemeral != nil, src.Image != nil:
		return never
	}
	return bySubPath
}

// volume finds out what a volume will be stored on. Where that is known only
// once it is mounted, it gets a disk of its own that stands for it, number n:
// what asks for limits there can then be read and compared all the same.
func (v *volumes) volume(ctx context.Context, vol *corev1.Volume, n uint32) volume {
	memory := volume{backing: blkio.Backing{FSType: "tmpfs", Reason: tmpfsReason}, readOnly: true}
	src := &vol.VolumeSource
	switch {
	case src.HostPath != nil:
		return volume{backing: v.storage.Resolve(ctx, src.HostPath.Path), hostPath: src.HostPath.Path}
	case src.EmptyDir != nil && src.EmptyDir.Medium == corev1.StorageMediumDefault, src.GitRepo != nil:
		return volume{backing: v.storage.Resolve(ctx, volumepath.Pods(v.kubeletRoot))}
	case src.EmptyDir != nil && src.EmptyDir.Medium == corev1.StorageMediumMemory:
		return volume{backing: memory.backing}
	case src.EmptyDir != nil:
		return volume{backing: blkio.Backing{FSType: "hugetlbfs", Reason: "hugetlbfs is memory, not a disk"}}
	case src.ConfigMap != nil, src.Secret != nil, src.Projected != nil, src.DownwardAPI != nil:
		return memory
	case src.Image != nil:
		return volume{backing: v.rootfs, readOnly: true}
	case src.NFS != nil:
		return volume{backing: network("nfs")}
	case src.CephFS != nil:
		return volume{backing: network("ceph")}
	case src.AzureFile != nil:
		return volume{backing: network("cifs")}
	}
	return volume{backing: blkio.Backing{
		Disks:   []blkio.Disk{{Dev: blkio.Dev{Major: unknownMajor, Minor: n}, Name: unknownName(vol)}},
		Warning: &blkio.Warning{Text: "its disk is known only once the volume is mounted; the container is refused then if it has none on this node"},
	}}
}

func network(fstype string) blkio.Backing {
	return blkio.Backing{FSType: fstype, Reason: fstype + " is a network filesystem: there is no local disk to limit"}
}

func unknownName(vol *corev1.Volume) string {
	switch {
	case vol.PersistentVolumeClaim != nil:
		return "disk of claim " + vol.PersistentVolumeClaim.ClaimName
	case vol.CSI != nil:
		return "disk of CSI volume " + vol.Name
	}
	return "disk of volume " + vol.Name
}
