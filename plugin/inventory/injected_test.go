package inventory

import "testing"

const tokenPath = "/var/run/secrets/kubernetes.io/serviceaccount"

// TestInjectedBySource verifies that the source of a mount decides whether the kubelet or the runtime adds it
// to each container. A tenant chooses the path in the container.
func TestInjectedBySource(t *testing.T) {
	const pods = "/var/lib/kubelet/pods/"
	for _, tt := range []struct {
		source, destination string
		want                bool
	}{
		{pods + "u1/volumes/kubernetes.io~projected/kube-api-access-x7x9z", tokenPath, true},
		{pods + "u1/volumes/kubernetes.io~projected/kube-api-access-x7x9z/", "/elsewhere", true},
		{pods + "u1/etc-hosts", "/etc/hosts", true},
		{pods + "u1/containers/db/8a3c5d7e", "/dev/termination-log", true},
		{"/run/containerd/io.containerd.grpc.v1.cri/sandboxes/sb1/shm", "/dev/shm", true},
		{"/var/lib/containers/storage/overlay-containers/sb1/userdata/resolv.conf", "/etc/resolv.conf", true},

		{pods + "u1/volumes/kubernetes.io~projected/kube-api-access-x7x9z/..data", tokenPath, false}, // a subPath's
		{pods + "u1/volumes/kubernetes.io~projected/kube-api-access-", tokenPath, false},
		{pods + "u1/volumes/kubernetes.io~csi/pvc-1/mount", tokenPath, false},
		{pods + "u1/volumes/kubernetes.io~empty-dir/kube-api-access-x7x9z", tokenPath, false},
		{pods + "u1/volume-subpaths/data/db/0", tokenPath, false},
		{pods + "u2/volumes/kubernetes.io~projected/kube-api-access-x7x9z", tokenPath, false},
		{pods + "u1/volumes/kubernetes.io~projected/kube-api-access-x7x9z/../../kubernetes.io~csi/pvc-1/mount", tokenPath, false},
		{"/mnt/data", tokenPath, false},
		{"/mnt/data", "/etc/hosts", false},
	} {
		own := injectedInto(&Pod{Sandbox: "sb1", UID: "u1"})
		if got := own.has(&Mount{Source: tt.source, Destination: tt.destination, Type: "bind"}); got != tt.want {
			t.Errorf("%s at %s: injected %v, want %v", tt.source, tt.destination, got, tt.want)
		}
	}
	if own := injectedInto(&Pod{UID: "u1"}); !own.has(&Mount{Type: "proc", Source: "proc", Destination: "/proc"}) {
		t.Error("/proc is not injected")
	}
}
