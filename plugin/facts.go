package plugin

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
	"github.com/nri-blkio/nri-blkio/plugin/volumepath"
	"github.com/nri-blkio/nri-blkio/policy"
)

// facts gathers what policy needs to know of a container for this request: its
// mounts and the disks below them. The caller is bounded as a whole, so that Resolve
// need not spend a goroutine on each path to be able to give up. The error is the end
// of ctx, before all was looked up.
func (p *Plugin) facts(ctx context.Context, pod *pod, spec *containerSpec, layer *inventory.Layer) (policy.Container, error) {
	unhurried := context.WithoutCancel(ctx)
	rootfs := layer.Backing(unhurried, p.storage)
	if !pod.request().Rootfs() {
		rootfs.Err = nil // no target means it
	}
	out := policy.Container{
		Name:   spec.Name,
		Rootfs: rootfs,
		// A later resize does not count; the warning is about what was asked for.
		MemoryLimited: policy.MemoryBoundsDirty(spec.MemoryLimit, p.nodeMemory) ||
			policy.MemoryBoundsDirty(p.cgroups.Cgroup(pod.group.cgroup).MemoryMax(), p.nodeMemory),
		Mounts: p.declaredMounts(pod, spec),
	}
	named := make([][]string, len(out.Mounts)) // the paths that each mount is asked for
	if paths := pod.request().Paths(); len(paths) > 0 {
		index := policy.IndexMounts(out.Mounts)
		for _, path := range paths {
			if i := index.Find(path); i >= 0 {
				named[i] = append(named[i], path)
			}
		}
	}
	s := search{p: p, star: pod.request().Star(), volumes: pod.request().Volumes()}
	for i := range spec.Mounts {
		// Not after the last one: a disk that answers late has answered.
		if err := ctx.Err(); err != nil {
			return out, fmt.Errorf("look up the disks of %d mounts: %w", len(out.Mounts)-i, err)
		}
		s.find(unhurried, &spec.Mounts[i], &out.Mounts[i], named[i])
	}
	return out, nil
}

// declaredMounts are the mounts and the raw block volumes of a container, in the
// order of the runtime. The disks of the mounts are not looked up yet.
func (p *Plugin) declaredMounts(pod *pod, spec *containerSpec) []policy.Mount {
	own := injectedInto(pod)
	out := make([]policy.Mount, 0, len(spec.Mounts)+len(spec.Devices))
	for i := range spec.Mounts {
		m := &spec.Mounts[i]
		mount := policy.Mount{
			Destination: path.Clean(m.Destination),
			ReadOnly:    m.IsReadOnly(),
			Injected:    own.has(m),
		}
		if len(pod.request().Volumes()) > 0 { // otherwise the name is not needed
			mount.Volume, mount.VolumePlugin = volumepath.NameOf(p.kubelet, pod.uid, m.Source)
		}
		out = append(out, mount)
	}
	return append(out, p.devices(spec)...)
}

// search looks up the disks of a container's mounts, each set of disks and each
// directory of the host once: a tenant may mount the same volume a thousand times.
type search struct {
	p       *Plugin
	star    bool
	volumes []string                  // sorted
	looked  map[string]*blkio.Backing // by source, of its first mount
	// For "*": the sets of disks that it has already, and the directories whose
	// submounts have been looked through.
	found   [][]blkio.Disk
	through map[string]bool
}

// find looks up what a mount is stored on, if a target of the request may mean it:
// each look at a path takes longer than all the rest of a decision.
func (s *search) find(ctx context.Context, m *specMount, out *policy.Mount, named []string) {
	star := s.star && !out.Injected
	_, volume := slices.BinarySearch(s.volumes, out.Volume)
	switch {
	case !m.IsBind():
		out.Backing = blkio.Backing{FSType: m.Type, Reason: m.Type + " is not stored on a disk"}
		return
	case !star && !volume && len(named) == 0:
		out.Backing, out.NotAsked = blkio.Backing{Reason: "not resolved: no annotation names it"}, true
		return
	}
	s.resolve(ctx, m.Source, &out.Backing)
	if star && !out.ReadOnly { // The mounts below it are not read-only.
		s.isNew(out.Backing.Disks)
	}
	if m.IsRecursive() {
		s.named(ctx, m.Source, out, named)
		if star {
			s.submounts(ctx, m.Source, out)
		}
	}
}

func (s *search) resolve(ctx context.Context, source string, out *blkio.Backing) {
	if known := s.looked[source]; known != nil {
		*out = *known
		return
	}
	if s.looked == nil {
		s.looked = map[string]*blkio.Backing{}
	}
	*out = s.p.storage.Resolve(ctx, source)
	s.looked[source] = out
}

// named adds the mounts below a volume that hold a path that was named.
func (s *search) named(ctx context.Context, source string, m *policy.Mount, named []string) {
	known := map[string]bool{}
	for _, name := range named {
		rel := strings.Trim(strings.TrimPrefix(name, strings.TrimSuffix(m.Destination, "/")), "/")
		if rel == "" {
			continue
		}
		if at, b, ok := s.p.storage.Below(ctx, source, rel); ok && !known[at] {
			known[at] = true
			m.Below = append(m.Below, policy.Below{Path: path.Join(m.Destination, at), Backing: b})
		}
	}
}

// submounts adds for "*" one of the mounts below a volume for each further set of
// disks.
func (s *search) submounts(ctx context.Context, source string, m *policy.Mount) {
	if source = path.Clean(source); s.through[source] {
		return
	}
	if s.through == nil {
		s.through = map[string]bool{}
	}
	s.through[source] = true
	for at, b := range s.p.storage.Submounts(ctx, source) {
		if len(b.Disks) > 0 && s.isNew(b.Disks) {
			m.Below = append(m.Below, policy.Below{Path: path.Join(m.Destination, at), Backing: b})
		}
	}
}

// isNew reports whether a set of disks was not there before, and adds it. There are
// as many of them as the node has disks, and not as mounts.
func (s *search) isNew(disks []blkio.Disk) bool {
	for _, known := range s.found {
		if slices.Equal(known, disks) {
			return false
		}
	}
	s.found = append(s.found, disks)
	return true
}

// hasPathIn reports whether one of these paths, which are sorted and clean, is a
// clean directory or in it.
func hasPathIn(paths []string, dir string) bool {
	dir = strings.TrimSuffix(dir, "/")
	if _, ok := slices.BinarySearch(paths, dir); ok {
		return true
	}
	i, _ := slices.BinarySearch(paths, dir+"/")
	return i < len(paths) && strings.HasPrefix(paths[i], dir+"/")
}

// devices are the raw block volumes of a container: no mount, a node in /dev.
// A privileged container has all of the host's devices instead: there a path may
// name one, and "*" does not mean each disk of the host, but those that it uses: see reach.
func (p *Plugin) devices(spec *containerSpec) []policy.Mount {
	privileged := slices.ContainsFunc(spec.Devices, func(d specDevice) bool { return d.IsHostOnly() })
	var out []policy.Mount
	for _, d := range spec.Devices {
		if d.Type == "b" {
			out = append(out, policy.Mount{Destination: path.Clean(d.Path), Injected: privileged, Backing: p.storage.Device(d.Dev)})
		}
	}
	return out
}

// tokenVolume begins the name of the projected volume that the ServiceAccount
// admission plugin adds to each pod, with the service account's token. A tenant
// may give a projected volume of its own that name: those are in memory as well.
//
// Source: ServiceAccountVolumeName in Kubernetes' plugin/pkg/admission/serviceaccount.
const tokenVolume = "kube-api-access-"

// injected are parts of the sources of what the runtime and the kubelet mount into each
// container of a pod. A mount's source on the host decides, not its path in the
// container: a tenant's volume at /etc/hosts is a volume.
type injected struct{ token, sandbox, overlay, hosts, termination string }

func injectedInto(pod *pod) injected {
	kubelet := "/pods/" + pod.uid + "/"
	return injected{
		token:       kubelet + "volumes/kubernetes.io~projected/" + tokenVolume,
		sandbox:     "/io.containerd.grpc.v1.cri/sandboxes/" + pod.id + "/", // hostname, resolv.conf, hosts, shm
		overlay:     "/overlay-containers/" + pod.id + "/",                  // the same of CRI-O
		hosts:       kubelet + "etc-hosts",
		termination: kubelet + "containers/", // the termination log
	}
}

func (in *injected) has(m *specMount) bool {
	if !m.IsBind() {
		return true
	}
	src := path.Clean(m.Source)
	_, token, _ := strings.Cut(src, in.token)
	return token != "" && !strings.Contains(token, "/") || strings.Contains(src, in.sandbox) || strings.Contains(src, in.overlay) ||
		strings.HasSuffix(src, in.hosts) || strings.Contains(src, in.termination)
}
