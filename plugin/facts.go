package plugin

import (
	"context"
	"path"
	"slices"
	"strings"

	"github.com/containerd/nri/pkg/api"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/volumepath"
	"github.com/nri-blkio/nri-blkio/policy"
)

// facts gathers what policy needs to know of a container for this request: its
// mounts and the disks below them. The caller is bounded as a whole, so that
// Resolve need not spend a goroutine on each path to be able to give up.
func (p *Plugin) facts(ctx context.Context, pod *pod, ctr *api.Container, layer *Layer) policy.Container {
	ctx = context.WithoutCancel(ctx)
	out := policy.Container{
		Name:   ctr.GetName(),
		Rootfs: layer.Backing(ctx, p.storage),
		// A later resize does not count; the warning is about what was asked for.
		MemoryLimited: hasMemoryLimit(ctr.GetLinux().GetResources()) || p.cgroups.Cgroup(pod.group.cgroup).MemoryLimited(),
		Mounts:        make([]policy.Mount, 0, len(ctr.GetMounts())),
	}
	for _, m := range ctr.GetMounts() {
		mount := policy.Mount{
			Destination: path.Clean(m.GetDestination()),
			ReadOnly:    slices.Contains(m.GetOptions(), "ro"),
			Injected:    isInjected(m, pod),
		}
		if len(pod.request.Volumes()) > 0 { // else nobody asks
			mount.Volume, mount.VolumePlugin = volumepath.NameOf(p.kubelet, pod.uid, m.GetSource())
		}
		p.find(ctx, pod.request, m, &mount)
		out.Mounts = append(out.Mounts, mount)
	}
	out.Mounts = append(out.Mounts, p.devices(ctr)...)
	return out
}

// hasMemoryLimit: memory.high is what the kubelet's MemoryQoS sets, or another
// plugin, or our own dirtyGuard. Two plugins that set it fail the create.
func hasMemoryLimit(r *api.LinuxResources) bool {
	return r.GetMemory().GetLimit().GetValue() > 0 || r.GetUnified()["memory.high"] != ""
}

// notAsked is of mounts that no target can mean.
const notAsked = "no annotation names it"

// find looks up what a mount is stored on, if a target of the request may mean
// it: each look at a path takes longer than all the rest of a decision.
func (p *Plugin) find(ctx context.Context, req *policy.Request, m *api.Mount, out *policy.Mount) {
	named := below(req.Paths(), out.Destination)
	star := req.Star() && !out.Injected
	volume := slices.Contains(req.Volumes(), out.Volume)
	switch {
	case !isBind(m):
		out.Backing = blkio.Backing{FSType: m.GetType(), Reason: m.GetType() + " is not stored on a disk"}
		return
	case !star && !volume && len(named) == 0:
		out.Backing = blkio.Backing{Reason: notAsked}
		return
	}
	out.Backing = p.storage.Resolve(ctx, m.GetSource())
	if slices.Contains(m.GetOptions(), "rbind") {
		out.Below = p.submounts(ctx, m.GetSource(), out, named, star)
	}
}

// submounts are the mounts below a volume that matter: those that hold a path
// that was named, and for "*" one for each further set of disks.
func (p *Plugin) submounts(ctx context.Context, source string, m *policy.Mount, named []string, star bool) []policy.Below {
	var out []policy.Below
	for _, name := range named {
		rel := strings.Trim(strings.TrimPrefix(name, strings.TrimSuffix(m.Destination, "/")), "/")
		if rel == "" {
			continue
		}
		if at, b, ok := p.storage.Below(ctx, source, rel); ok {
			out = append(out, policy.Below{Path: path.Join(m.Destination, at), Backing: b})
		}
	}
	if !star {
		return out
	}
	var seen [][]blkio.Disk
	if !m.ReadOnly { // which the mounts below it are not
		seen = append(seen, m.Backing.Disks)
	}
	for at, b := range p.storage.Submounts(ctx, source) {
		if len(b.Disks) == 0 || slices.ContainsFunc(seen, func(d []blkio.Disk) bool { return slices.Equal(d, b.Disks) }) {
			continue
		}
		seen = append(seen, b.Disks)
		out = append(out, policy.Below{Path: path.Join(m.Destination, at), Backing: b})
	}
	return out
}

// below returns the paths that are dir or in it.
func below(paths []string, dir string) []string {
	dir = strings.TrimSuffix(dir, "/")
	var out []string
	for _, p := range paths {
		if rest, ok := strings.CutPrefix(p, dir); ok && (rest == "" || rest[0] == '/') {
			out = append(out, p)
		}
	}
	return out
}

// devices are the raw block volumes of a container: no mount, a node in /dev.
// A privileged container has all of the host's devices instead: there a path may
// name one, and "*" does not mean each disk of the host, but those that it uses: see reach.
func (p *Plugin) devices(ctr *api.Container) []policy.Mount {
	devices := ctr.GetLinux().GetDevices()
	privileged := slices.ContainsFunc(devices, isHostOnly)
	var out []policy.Mount
	for _, d := range devices {
		if d.GetType() != "b" || d.GetMajor() < 0 || d.GetMinor() < 0 {
			continue
		}
		out = append(out, policy.Mount{
			Destination: path.Clean(d.GetPath()),
			Injected:    privileged,
			Backing:     p.storage.Device(blkio.Dev{Major: uint32(d.GetMajor()), Minor: uint32(d.GetMinor())}),
		})
	}
	return out
}

// isHostOnly is of /dev/mem and /dev/kmsg, which only the host and privileged
// containers have.
func isHostOnly(d *api.LinuxDevice) bool {
	return d.GetType() == "c" && d.GetMajor() == 1 && (d.GetMinor() == 1 || d.GetMinor() == 11)
}

// isBind tells a mount of a host directory from a new filesystem (proc,
// sysfs, tmpfs). The OCI spec allows either the type or an option to say so.
func isBind(m *api.Mount) bool {
	return m.GetType() == "bind" || slices.ContainsFunc(m.GetOptions(), func(o string) bool { return o == "bind" || o == "rbind" })
}

// tokenVolume begins the name of the projected volume that the ServiceAccount
// admission plugin adds to each pod, with the service account's token. A tenant
// may give a projected volume of its own that name: those are in memory, too.
//
// Source: ServiceAccountVolumeName in Kubernetes' plugin/pkg/admission/serviceaccount.
const tokenVolume = "kube-api-access-"

// isInjected reports whether the runtime or the kubelet puts a mount into each
// container. The mount's source on the host decides, not its path in the
// container: a tenant's volume at /etc/hosts is a volume.
func isInjected(m *api.Mount, pod *pod) bool {
	if !isBind(m) {
		return true
	}
	src, kubelet := path.Clean(m.GetSource()), "/pods/"+pod.uid+"/"
	_, token, _ := strings.Cut(src, kubelet+"volumes/kubernetes.io~projected/"+tokenVolume)
	if token != "" && !strings.Contains(token, "/") {
		return true
	}
	return strings.Contains(src, "/io.containerd.grpc.v1.cri/sandboxes/"+pod.id+"/") || // hostname, resolv.conf, hosts, shm
		strings.Contains(src, "/overlay-containers/"+pod.id+"/") || // the same of CRI-O
		strings.HasSuffix(src, kubelet+"etc-hosts") ||
		strings.Contains(src, kubelet+"containers/") // the termination log
}
