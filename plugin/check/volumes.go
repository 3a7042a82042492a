package check

import (
	"cmp"
	"context"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
	"github.com/nri-blkio/nri-blkio/plugin/manifest"
	"github.com/nri-blkio/nri-blkio/plugin/volumepath"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
	"github.com/nri-blkio/nri-blkio/policy/quote"
	"github.com/nri-blkio/nri-blkio/policy/spelling"
)

// These stand for the IDs that a pod gets when it is created.
const (
	podUID    = "00000000-0000-0000-0000-000000000000"
	sandboxID = "0000000000000000000000000000000000000000000000000000000000000000"
)

// unknownLayers stands for the directory of the writable layers of an unknown node.
const unknownLayers = "/writable-layers"

// find returns the pod's containers with their disks, init containers first. The disks are found
// by the plugin's own Finder, in the OCI specs that the runtime would get.
func (n *Node) find(ctx context.Context, handler string, pod *manifest.Pod, targets annotation.Targets) ([]policy.Container, error) {
	v := volumes{storage: newStorage(n.Storage), kubeletRoot: cmp.Or(n.KubeletRoot, "/")}
	layer := n.Layers.Of(handler)
	if n.Storage == nil {
		layer = inventory.Layer{Dir: unknownLayers}
		v.storage.sources[unknownLayers] = source{backing: v.storage.unknownDisk("disk of the writable layers")}
		v.kubelet = v.storage.unknownDisk("disk of the kubelet's directory")
	} else {
		v.kubelet = n.Storage.Resolve(ctx, volumepath.Pods(v.kubeletRoot))
	}
	v.rootfs = layer.Backing(ctx, v.storage)
	finder := inventory.Finder{Storage: v.storage, KubeletRoot: v.kubeletRoot}
	id := inventory.Pod{UID: podUID, Sandbox: sandboxID, Targets: targets}
	out := make([]policy.Container, 0, len(pod.Containers))
	for i := range pod.Containers {
		c := inventory.NewContainer(v.spec(pod, &pod.Containers[i]))
		if err := finder.Find(ctx, &id, layer, &c); err != nil {
			return nil, err
		}
		finder.FindLowest(&c)
		out = append(out, c.Facts)
	}
	return out, nil
}

// volumes derives the OCI specs of a pod's containers from its manifest. The sources of mounts
// are those that the kubelet and the runtime would choose.
type volumes struct {
	storage     *storage // gets the data of each source
	kubeletRoot string
	rootfs      *blkio.Backing // of the writable layers
	kubelet     *blkio.Backing // of the volumes that the kubelet makes itself
}

// spec returns the OCI spec of a container. A mount of a volume that the pod does not have is
// left out: reading the manifest has reported it.
func (v *volumes) spec(pod *manifest.Pod, c *manifest.Container) *inventory.Spec {
	out := &inventory.Spec{Name: c.Name}
	for i := range c.Mounts {
		if vol := volumeOf(pod, c.Mounts[i].Volume); vol != nil {
			out.Mounts = append(out.Mounts, v.mount(vol, c, i))
		}
	}
	// The kubelet and the runtime inject nothing at a path that the pod has a volume at.
	injected := slices.DeleteFunc(v.injected(), func(in inventory.Mount) bool {
		return slices.ContainsFunc(out.Mounts, func(m inventory.Mount) bool { return m.Destination == in.Destination })
	})
	out.Mounts = append(injected, out.Mounts...)
	if c.Privileged { // it has all devices of the node, of which this one decides
		out.Devices = []inventory.Device{{Path: "/dev/kmsg", Type: "c", Dev: blkio.Dev{Major: 1, Minor: 11}}}
	}
	for _, d := range c.Devices {
		if vol := volumeOf(pod, d.Volume); vol != nil {
			out.Devices = append(out.Devices, inventory.Device{Path: absolute(d.Path), Type: "b", Dev: v.storage.addDevice(v.source(vol).backing)})
		}
	}
	return out
}

// podVolumes returns the volumes of a pod whose name the runtime does not see, with the limits that the manifests have for claims.
func podVolumes(pod *manifest.Pod) []policy.Volume {
	out := []policy.Volume{}
	for i := range pod.Volumes {
		v := &pod.Volumes[i]
		if isSeen(v.Source) {
			continue
		}
		c := policy.Volume{Name: v.Name, Claim: v.Claim, Limits: v.Limits, Size: v.Request.Size}
		if v.Request.Parameters != nil {
			c.Class = &policy.ClaimClass{Name: v.Request.Class, Rates: v.Request.Parameters}
		}
		for _, ctr := range pod.Containers {
			place := func(volume, path string) {
				if volume == v.Name {
					c.Places = append(c.Places, policy.Place{Container: ctr.Name, Path: absolute(path)})
				}
			}
			for _, m := range ctr.Mounts {
				place(m.Volume, m.Path)
			}
			for _, d := range ctr.Devices {
				place(d.Volume, d.Path)
			}
		}
		out = append(out, c)
	}
	return out
}

// needsCluster returns what of a pod needs the cluster part of the plugin, "" for nothing.
func needsCluster(m *manifest.Pod, pol *policy.Pod) string {
	var names []string
	for _, name := range pol.Targets().Volumes {
		if v := volumeOf(m, name); v != nil && !isSeen(v.Source) && v.Source != manifest.CSI {
			names = append(names, "@"+name)
		}
	}
	if pol.HasClaimLimits() {
		names = append(names, "limits of claims")
	}
	switch {
	case len(names) == 0:
		return ""
	case len(names) == 1 && names[0][0] == '@':
		return names[0] + " needs it"
	}
	return strings.Join(names, ", ") + " need it"
}

func volumeOf(pod *manifest.Pod, name string) *manifest.Volume {
	if i := slices.IndexFunc(pod.Volumes, func(v manifest.Volume) bool { return v.Name == name }); i >= 0 {
		return &pod.Volumes[i]
	}
	return nil
}

// mount returns a mount of the OCI spec, and adds the data of its source to the storage.
func (v *volumes) mount(vol *manifest.Volume, c *manifest.Container, index int) inventory.Mount {
	m := &c.Mounts[index]
	src, dir, option := v.source(vol), v.inPod("volumes", pluginDir(vol.Source), vol.Name), "rbind"
	switch vol.Source {
	case manifest.CSI:
		dir = path.Join(dir, "mount")
	case manifest.HostPath:
		dir = src.path
	}
	if m.SubPath != "" && !volumeKinds[vol.Source].isClaim {
		dir = v.inPod("volume-subpaths", vol.Name, cmp.Or(c.Name, "-"), strconv.Itoa(index))
		if src.path != "" && !strings.Contains(m.SubPath, "$(") {
			// The kubelet binds the directory without the mounts below it.
			src.path, option = path.Join(src.path, m.SubPath), "bind"
		}
	}
	v.storage.sources[dir] = src
	access := "rw"
	if m.ReadOnly || vol.ReadOnly || volumeKinds[vol.Source].readOnly {
		access = "ro"
	}
	return inventory.Mount{Source: dir, Destination: absolute(m.Path), Type: "bind", Options: inventory.ParseOptions(option, access)}
}

func (v *volumes) inPod(elem ...string) string {
	return path.Join(append([]string{volumepath.Pods(v.kubeletRoot), podUID}, elem...)...)
}

// absolute returns a path in a container as the kubelet gives it to the runtime
// (MakeAbsolutePath in pkg/volume/util/util.go).
func absolute(p string) string { return path.Join("/", p) }

// injected returns the mounts that containerd and the kubelet add to each container.
func (v *volumes) injected() []inventory.Mount {
	mounts := []inventory.Mount{
		{Destination: "/proc", Type: "proc"},
		{Destination: "/dev", Type: "tmpfs"},
		{Destination: "/dev/pts", Type: "devpts"},
		{Destination: "/dev/mqueue", Type: "mqueue"},
		{Destination: "/sys", Type: "sysfs", Options: inventory.ParseOptions("ro")},
		{Destination: "/sys/fs/cgroup", Type: "cgroup", Options: inventory.ParseOptions("ro")},
	}
	bind := func(destination, path, access string, b *blkio.Backing) {
		v.storage.sources[path] = source{backing: b}
		mounts = append(mounts, inventory.Mount{Source: path, Destination: destination, Type: "bind", Options: inventory.ParseOptions("rbind", access)})
	}
	const ofSandbox = "/io.containerd.grpc.v1.cri/sandboxes/" + sandboxID + "/"
	memory := inMemory("tmpfs")
	bind("/dev/shm", ofSandbox+"shm", "rw", memory)
	bind("/etc/hosts", v.inPod("etc-hosts"), "rw", v.kubelet)
	bind("/dev/termination-log", v.inPod("containers", "name", "log"), "rw", v.kubelet)
	bind("/etc/hostname", ofSandbox+"hostname", "rw", v.rootfs)
	bind("/etc/resolv.conf", ofSandbox+"resolv.conf", "rw", v.rootfs)
	bind("/var/run/secrets/kubernetes.io/serviceaccount", v.inPod("volumes", pluginDir("projected"), "kube-api-access-0"), "ro", memory)
	return mounts
}

// volumeKind is what the kubelet does with the volumes of one source. Without dir and data, it is a disk that is unknown until it is
// mounted.
type volumeKind struct {
	// dir is the kubelet's directory for volumes with a source in the pod's own spec, after "kubernetes.io~". The directories of
	// the others have the name of the PersistentVolume, if any.
	dir string
	// isClaim is true if the directories have the name of the PersistentVolume, or none, also for a subPath.
	isClaim  bool
	readOnly bool
	data     func(*volumes) *blkio.Backing
}

func (v *volumes) ofKubelet() *blkio.Backing { return v.kubelet }
func (v *volumes) ofRootfs() *blkio.Backing  { return v.rootfs }
func (*volumes) ofMemory() *blkio.Backing    { return inMemory("tmpfs") }

func network(fstype string) func(*volumes) *blkio.Backing {
	b := &blkio.Backing{FSType: fstype, Reason: fstype + " is a network filesystem: there is no local disk to limit"}
	return func(*volumes) *blkio.Backing { return b }
}

var volumeKinds = map[string]volumeKind{ // constant
	manifest.EmptyDir:              {dir: "empty-dir", data: (*volumes).ofKubelet},
	"gitRepo":                      {dir: "git-repo", data: (*volumes).ofKubelet},
	"configMap":                    {dir: "configmap", readOnly: true, data: (*volumes).ofKubelet},
	"secret":                       {dir: "secret", readOnly: true, data: (*volumes).ofMemory},
	"projected":                    {dir: "projected", readOnly: true, data: (*volumes).ofMemory},
	"downwardAPI":                  {dir: "downward-api", readOnly: true, data: (*volumes).ofMemory},
	"image":                        {isClaim: true, readOnly: true, data: (*volumes).ofRootfs},
	"nfs":                          {data: network("nfs")},
	"cephfs":                       {data: network("ceph")},
	"azureFile":                    {data: network("cifs")},
	manifest.CSI:                   {dir: "csi"},
	manifest.PersistentVolumeClaim: {isClaim: true},
	"ephemeral":                    {isClaim: true},
}

// pluginDir returns the name of the kubelet's directory for volumes of a source. If they do not have their own names there, it is one
// from which no volume takes its name, see [volumepath.NameOf].
func pluginDir(source string) string {
	if dir := volumeKinds[source].dir; dir != "" {
		return "kubernetes.io~" + dir
	}
	return "unknown~" + source
}

// isSeen reports whether the paths of a volume on the node have its name.
func isSeen(source string) bool { return volumeKinds[source].dir != "" && source != manifest.CSI }

// unmounted is the warning for a volume without a path on the node before it is mounted.
const unmounted = "disk unknown until the volume is mounted; if it then has no disk on this node, the container is rejected"

func (v *volumes) source(vol *manifest.Volume) source {
	kind := volumeKinds[vol.Source]
	switch {
	case vol.Source == manifest.HostPath:
		return source{path: path.Clean(vol.Path)}
	case vol.Medium == "Memory":
		return source{backing: inMemory("tmpfs")}
	case vol.Medium != "":
		return source{backing: inMemory("hugetlbfs")}
	case kind.data != nil:
		return source{backing: kind.data(v)}
	}
	name := "disk of volume " + vol.Name
	switch vol.Source {
	case manifest.PersistentVolumeClaim:
		name = "disk of claim " + vol.Claim
	case manifest.CSI:
		name = "disk of CSI volume " + vol.Name
	}
	b := v.storage.unknownDisk(name)
	if v.storage.node != nil {
		b.Warning = &blkio.Warning{Text: unmounted}
	}
	return source{backing: b}
}

func inMemory(fstype string) *blkio.Backing {
	return &blkio.Backing{FSType: fstype, Reason: fstype + " is memory, not a disk"}
}

// claimFindings returns the mistakes in the limits of claims and of classes of claims. On a node such limits do not count at all.
func claimFindings(set *manifest.Set) (out []manifest.Finding) {
	for i := range set.Claims {
		c := &set.Claims[i]
		if c.Limits == nil {
			continue
		}
		if _, err := annotation.ParseClaim(c.Name, *c.Limits, cmp.Or(c.Request.Size, anySize)); err != nil {
			field := c.Template
			if field == "" {
				field = "metadata.annotations"
			}
			severity := manifest.Error
			if err.Reason == annotation.OfPod { // operators copy annotations to pods and claims alike
				severity = manifest.Warning
			}
			out = append(out, manifest.Finding{Position: c.Position, Object: c.Object, Field: field, Severity: severity, Text: err.WithoutOrigin()})
		}
	}
	for i := range set.Classes {
		out = append(out, classFindings(&set.Classes[i])...)
	}
	return out
}

// anySize is the size of a claim for limits that are checked for their grammar only: those of a class, and of a claim without a size.
// Claims of all sizes and namespaces can have a class, so no bounds are certain to apply to it.
const anySize = 1

// classFindings returns the mistakes in the parameters of a class. One in a parameter without the prefix is a warning: another program
// may read it.
func classFindings(c *manifest.VolumeClass) (out []manifest.Finding) {
	known, own := annotation.Parameters(), annotation.OwnParameters()
	valid := map[string]string{} // so far
	add := func(key string, severity manifest.Severity, text string) {
		at := c.Position
		at.Line = c.Lines[key]
		out = append(out, manifest.Finding{Position: at, Object: c.Object, Field: "parameters", Severity: severity, Text: text})
	}
	for _, key := range slices.Sorted(maps.Keys(c.Parameters)) {
		isOwn := strings.HasPrefix(key, annotation.OwnPrefix)
		severity := manifest.Warning
		if isOwn {
			severity = manifest.Error
		}
		if !slices.Contains(known, key) {
			hint := spelling.Hint(key, own...)
			switch {
			case isOwn && hint == "":
				hint = "there are " + strings.Join(own, ", ")
			case !isOwn && (hint == "" || !strings.Contains(key, "/")):
				continue // of the driver
			}
			add(key, manifest.Error, "unknown parameter "+quote.Text(key)+" ("+hint+")")
			continue
		}
		valid[key] = c.Parameters[key]
		if _, err := annotation.ParseRates("", c.Name, valid, anySize); err != nil {
			add(key, severity, err.WithoutOrigin())
			delete(valid, key)
		}
	}
	return out
}
