// Package node builds and boots a disposable Kubernetes node in QEMU, for tests that need
// a real kernel.
//
// All nodes have the same Debian trixie root image, except those with CRI-O and small ones. [Config] chooses the kernel, containerd,
// OCI runtime and cgroup driver, and whether a Kubernetes control plane runs. The parts are
// built from Debian packages and Go modules into a cache, see [Build]. A part is built again
// if the hash of its sources changes.
//
// A node is reached by ssh as root at 127.0.0.1. Its disks, besides the root disk vda, are:
//
//	vdb   ext4 on the whole disk, at /mnt/ext4
//	vdc   GPT; vdc1 is ext4, at /mnt/part
//	vdd   XFS, at /mnt/xfs
//	vde   btrfs, at /mnt/btrfs
//	vdf   raw, for a test to use
//
// Each is a sparse file of 4 GiB, which is removed when the node stops. containerd has the
// images local/pause:1 and local/busybox:1; the latter has every busybox applet in /bin. A
// test that needs another image imports it with `ctr -n k8s.io image import --local FILE`.
// The kubelet is configured but not started: run `systemctl start kubelet`, and then put
// static pods into /etc/kubernetes/manifests.
package node
