package runtimeconfig

import "github.com/nri-blkio/nri-blkio/blkio/hostfs"

// location is where a distribution of containerd has its files on the node.
type location struct {
	config string // of containerd
	root   string // containerd's, where the configuration names none
	socket string // of containerd's API
}

// standard is where containerd's own defaults are.
func standard() location {
	return location{defaultContainerdConfig, defaultContainerdRoot, "/run/containerd/containerd.sock"}
}

// locations returns the known locations. If several are on a node, the kubelet uses that of its distribution;
// containerd's own belongs to Docker then.
//
// Sources: pkg/agent/config and pkg/agent/containerd of k3s, whose agent RKE2 starts with another data
// directory; docs/runtime.md of k0s.
func locations() []location {
	const k3sSocket = "/run/k3s/containerd/containerd.sock"
	return []location{
		{"/var/lib/rancher/k3s/agent/etc/containerd/config.toml", "/var/lib/rancher/k3s/agent/containerd", k3sSocket},
		{"/var/lib/rancher/rke2/agent/etc/containerd/config.toml", "/var/lib/rancher/rke2/agent/containerd", k3sSocket},
		{"/etc/k0s/containerd.toml", "/var/lib/k0s/containerd", "/run/k0s/containerd.sock"},
		standard(),
	}
}

// find returns the location of the containerd that runs or, if none runs, that of the installed one. A socket
// in /run belongs to a containerd that was started since the boot.
func find(host hostfs.Root) location {
	for _, l := range locations() {
		if host.Exists(l.config) && host.Exists(l.socket) {
			return l
		}
	}
	if std := standard(); host.IsDir(std.root) || host.Exists(std.config) {
		return std
	}
	for _, l := range locations() {
		if host.Exists(l.config) {
			return l
		}
	}
	return standard()
}
