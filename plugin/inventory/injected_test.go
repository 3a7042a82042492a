package inventory

import "testing"

const tokenPath = "/var/run/secrets/kubernetes.io/serviceaccount"

// TestInjectedBySource verifies that the source of a mount decides whether the kubelet or the runtime adds it
// to each container. A tenant chooses the path in the container.
func TestInjectedBySource(t *testing.T) {
	const pods = "/var/lib/kubelet/pods/"
	f := Finder{KubeletRoot: "/var/lib/kubelet"}
	own := f.injectedInto(&Pod{Sandbox: "sb1", UID: "u1"}, Layer{Dir: "/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs/snapshots"})
	for _, tt := range []struct {
		source, destination string
		want                bool
	}{
		{pods + "u1/volumes/kubernetes.io~projected/kube-api-access-x7x9z", tokenPath, true},
		{pods + "u1/volumes/kubernetes.io~projected/kube-api-access-x7x9z/", "/elsewhere", true},
		{pods + "u1/etc-hosts", "/etc/hosts", true},
		{pods + "u1/containers/db/8a3c5d7e", "/dev/termination-log", true},
		{"/run/containerd/io.containerd.grpc.v1.cri/sandboxes/sb1/shm", "/dev/shm", true},
		{"/run/containers/storage/overlay-containers/sb1/userdata/resolv.conf", "/etc/resolv.conf", true},
		{"/var/lib/containerd/io.containerd.grpc.v1.cri/sandboxes/sb1/hostname", "/etc/hostname", true},

		{pods + "u1/volumes/kubernetes.io~projected/kube-api-access-x7x9z/..data", tokenPath, false}, // a subPath's
		{pods + "u1/volumes/kubernetes.io~projected/kube-api-access-", tokenPath, false},
		{pods + "u1/volumes/kubernetes.io~csi/pvc-1/mount", tokenPath, false},
		{pods + "u1/volumes/kubernetes.io~empty-dir/kube-api-access-x7x9z", tokenPath, false},
		{pods + "u1/volume-subpaths/data/db/0", tokenPath, false},
		{pods + "u2/volumes/kubernetes.io~projected/kube-api-access-x7x9z", tokenPath, false},
		{pods + "u1/volumes/kubernetes.io~projected/kube-api-access-x7x9z/../../kubernetes.io~csi/pvc-1/mount", tokenPath, false},
		{pods + "u1/containers/db", "/data", false},
		{pods + "u1/containers/db/8a3c5d7e/x", "/data", false},
		// A directory of a tenant that has the pod's IDs in its path, through a link of a hostPath volume.
		{"/mnt/data/pods/u1/volumes/kubernetes.io~projected/kube-api-access-x7x9z", "/data", false},
		{"/mnt/data" + pods + "u1/volumes/kubernetes.io~projected/kube-api-access-x7x9z", "/data", false},
		{"/mnt/data/pods/u1/containers/db/8a3c5d7e", "/data", false},
		{"/mnt/data/pods/u1/etc-hosts", "/etc/hosts", false},
		{"/mnt/data/io.containerd.grpc.v1.cri/sandboxes/sb1/shm", "/dev/shm", false},
		{"/mnt/data/run/containerd/io.containerd.grpc.v1.cri/sandboxes/sb1/shm", "/dev/shm", false},
		{"/run/tenant/io.containerd.grpc.v1.cri/sandboxes/sb1/shm", "/dev/shm", false},
		{"/mnt/data/overlay-containers/sb1/userdata/resolv.conf", "/etc/resolv.conf", false},
		{pods + "u1/volumes/kubernetes.io~empty-dir/d/pods/u1/containers/db", "/data", false},
		{pods + "u1/volumes/kubernetes.io~empty-dir/d/io.containerd.grpc.v1.cri/sandboxes/sb1/x", "/data", false},
		{pods + "u1/volumes/kubernetes.io~csi/pvc-1/mount/pods/u1/etc-hosts", "/data", false},
		{pods + "u1/volume-subpaths/d/db/0/pods/u1/etc-hosts", "/data", false},
		{pods + "u2/volumes/kubernetes.io~csi/pvc-1/mount/pods/u1/etc-hosts", "/data", false},
		{"/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs/snapshots/7/fs/overlay-containers/sb1/x", "/data", false},

		{"/mnt/data", tokenPath, false},
		{"/mnt/data", "/etc/hosts", false},
	} {
		if got := own.has(&Mount{Source: tt.source, Destination: tt.destination, Type: "bind"}); got != tt.want {
			t.Errorf("%s at %s: injected %v, want %v", tt.source, tt.destination, got, tt.want)
		}
	}
	atRoot := (&Finder{KubeletRoot: "/"}).injectedInto(&Pod{Sandbox: "sb1", UID: "u1"}, Layer{}) // check knows no directory
	if !atRoot.has(&Mount{Source: "/pods/u1/etc-hosts", Type: "bind"}) || atRoot.has(&Mount{Source: "/pods/u2/etc-hosts", Type: "bind"}) {
		t.Error("only the pod's own file below the root is injected")
	}
	if !own.has(&Mount{Type: "proc", Source: "proc", Destination: "/proc"}) {
		t.Error("/proc is not injected")
	}
}

// TestInjectedOfRuntime verifies that the runtime's directory is recognized by that of the writable layers, wherever it is.
func TestInjectedOfRuntime(t *testing.T) {
	for _, tt := range []struct {
		layers, source string
		want           bool
	}{
		{"/var/lib/containers/storage/overlay", "/var/lib/containers/storage/overlay-containers/sb1/userdata/resolv.conf", true},
		{"/data/k3s/agent/containerd/io.containerd.snapshotter.v1.overlayfs", "/data/k3s/agent/containerd/io.containerd.grpc.v1.cri/sandboxes/sb1/hosts", true},
		{"/data/k3s/agent/containerd/io.containerd.snapshotter.v1.overlayfs", "/data/k3s/agent/containerd/io.containerd.grpc.v1.cri/sandboxes/sb2/hosts", false},
		{"/data/k3s/agent/containerd", "/data/k3s/agent/containerd-tenant/io.containerd.grpc.v1.cri/sandboxes/sb1/hosts", false},
		{"", "/data/k3s/agent/containerd/io.containerd.grpc.v1.cri/sandboxes/sb1/hosts", false}, // not known
		{"", "/var/lib/containerd/io.containerd.grpc.v1.cri/sandboxes/sb1/hosts", true},
		{"", "/mnt/data/io.containerd.grpc.v1.cri/sandboxes/sb1/hosts", false},
	} {
		own := (&Finder{}).injectedInto(&Pod{Sandbox: "sb1", UID: "u1"}, Layer{Dir: tt.layers})
		if got := own.has(&Mount{Source: tt.source, Type: "bind"}); got != tt.want {
			t.Errorf("layers at %q, %s: injected %v, want %v", tt.layers, tt.source, got, tt.want)
		}
	}
}

// TestFindInjectedByLink verifies that "*" covers the disk of a hostPath volume that a tenant's link leads to a directory with the
// kubelet's names.
func TestFindInjectedByLink(t *testing.T) {
	h := newHost()
	h.Find = twoDisks
	f := Finder{Storage: h, KubeletRoot: "/var/lib/kubelet"}
	for _, source := range []string{
		"/mnt/data/pods/u1/containers/db", "/mnt/data/pods/u1/etc-hosts", "/mnt/data/pods/u1/volumes/kubernetes.io~projected/kube-api-access-a",
		"/mnt/data/overlay-containers/sb1/a", "/mnt/data/io.containerd.grpc.v1.cri/sandboxes/sb1/a",
	} {
		c := NewContainer(&Spec{Mounts: []Mount{bind(source, "/data", "rbind")}})
		pod := podWith("* wbps=1Mi")
		pod.UID, pod.Sandbox = "u1", "sb1"
		if err := f.Find(t.Context(), pod, Layer{Dir: "/layers"}, &c); err != nil {
			t.Fatal(err)
		}
		if m := c.Facts.Mounts[0]; m.Injected || len(m.Backing.Disks) != 1 || m.Backing.Disks[0] != dataDisk {
			t.Errorf("%s: %+v", source, m)
		}
	}
}
