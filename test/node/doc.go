// Package node builds and boots a disposable Kubernetes node in QEMU, because
// what only a kernel can say has to be asked of one.
//
// One Debian trixie root image serves all nodes; which kernel, containerd, OCI
// runtime and cgroup driver a node has, and whether a Kubernetes control plane runs
// on it, is chosen as it boots (see [Config]). The parts are built from Debian packages and Go modules into a cache (see [Build])
// and are found there again by a hash of what they are made from.
//
// A node is root at 127.0.0.1 over ssh. Its disks, beside the root vda:
//
//	vdb   ext4 on the whole disk, at /mnt/ext4
//	vdc   GPT; vdc1 is ext4, at /mnt/part
//	vdd   XFS, at /mnt/xfs
//	vde   btrfs, at /mnt/btrfs
//	vdf   raw, for a test to use
//
// Each is a sparse file of its own with 4 GiB, lost when the node stops. The
// images local/pause:1 and local/busybox:1 are imported; local/busybox:1 has
// every busybox applet in /bin. A test that needs more brings its own archive and
// imports it with `ctr -n k8s.io image import --local FILE`. The kubelet is
// configured but not started: `systemctl start kubelet`, then drop static pods in
// /etc/kubernetes/manifests.
package node
