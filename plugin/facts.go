package plugin

import (
	"context"
	"path"
	"slices"
	"strings"

	"github.com/containerd/nri/pkg/api"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
)

// facts gathers what policy needs to know of a container: its mounts and the
// disks below them. The caller is bounded as a whole, so that Resolve need not
// spend a goroutine on each path to be able to give up.
func (p *Plugin) facts(ctx context.Context, ctr *api.Container) policy.Container {
	ctx = context.WithoutCancel(ctx)
	out := policy.Container{
		Name:   ctr.GetName(),
		Rootfs: p.storage.Resolve(ctx, p.rootfs),
		Mounts: make([]policy.Mount, 0, len(ctr.GetMounts())),
	}
	for _, m := range ctr.GetMounts() {
		out.Mounts = append(out.Mounts, policy.Mount{
			Destination: path.Clean(m.GetDestination()),
			ReadOnly:    isReadOnly(m),
			Injected:    isInjected(m),
			Backing:     p.backing(ctx, m),
		})
	}
	return out
}

func (p *Plugin) backing(ctx context.Context, m *api.Mount) blkio.Backing {
	if !isBind(m) {
		return blkio.Backing{FSType: m.GetType(), Reason: m.GetType() + " is not stored on a disk"}
	}
	return p.storage.Resolve(ctx, m.GetSource())
}

// isBind tells a mount of a host directory from a new filesystem (proc,
// sysfs, tmpfs). The OCI spec allows either the type or an option to say so.
func isBind(m *api.Mount) bool {
	if m.GetType() == "bind" {
		return true
	}
	for _, o := range m.GetOptions() {
		if o == "bind" || o == "rbind" {
			return true
		}
	}
	return false
}

func isReadOnly(m *api.Mount) bool {
	return slices.Contains(m.GetOptions(), "ro")
}

// serviceAccountDir is where the kubelet mounts each pod's token.
const serviceAccountDir = "/var/run/secrets/kubernetes.io/serviceaccount"

// isInjected recognises what the runtime and the kubelet put into each
// container. It goes by the host side, which they name: a tenant's volume at
// /etc/hosts is a volume.
func isInjected(m *api.Mount) bool {
	if !isBind(m) || m.GetDestination() == serviceAccountDir {
		return true
	}
	src := m.GetSource()
	switch {
	case strings.Contains(src, "/io.containerd.grpc.v1.cri/sandboxes/"): // hostname, resolv.conf, hosts, shm
		return true
	case strings.Contains(src, "/overlay-containers/"): // the same of CRI-O
		return true
	case strings.HasSuffix(src, "/etc-hosts") && strings.Contains(src, "/pods/"): // the kubelet's
		return true
	}
	// .../pods/UID/containers/NAME/HASH is the termination log.
	dir := path.Dir(path.Dir(src))
	return path.Base(dir) == "containers" && path.Base(path.Dir(path.Dir(dir))) == "pods"
}
