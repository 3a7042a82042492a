// Package fakenode provides the files of a fictitious node for tests: sysfs, mounts, the
// directories and cgroups of pods, and processes.
package fakenode

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
)

// Pods is the directory of the pods in the kubelet's directory.
const Pods = "/var/lib/kubelet/pods/"

// WriteFiles writes files below a directory.
func WriteFiles(t testing.TB, root string, files map[string]string) {
	t.Helper()
	for name, data := range files {
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// OpenCgroups opens a directory as a cgroup v2 tree.
func OpenCgroups(t testing.TB, dir string) *cgroupfs.Hierarchy {
	t.Helper()
	tree, err := cgroupfs.OpenTree(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tree.Close() })
	return tree
}

// WriteOrphans writes a node with OrphanMounts below a temporary directory, and returns the root. The node has
// the kubelet's directories, and the cgroups of its pods in the directory cg. driver, systemd or cgroupfs,
// decides on the names of the cgroups.
func WriteOrphans(t testing.TB, driver string) (root string) {
	t.Helper()
	root = t.TempDir()
	cgroups := map[string]string{"live-1": "populated 1\n", "left-1": "populated 0\n", "waits-1": "populated 0\n"}
	files := map[string]string{"cg/cgroup.controllers": "io\n"}
	for uid, events := range cgroups {
		dir := "cg/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + strings.ReplaceAll(uid, "-", "_") + ".slice"
		if driver == "cgroupfs" {
			dir = "cg/kubepods/burstable/pod" + uid
		}
		files[dir+"/cgroup.events"] = events
		files[dir+"/container/cgroup.events"] = events
	}
	for _, uid := range []string{"gone-1", "gone-2", "live-1", "left-1", "waits-1"} {
		files[Pods+uid+"/plugins/.keep"] = ""
	}
	files[Pods+"left-1/containers/db/1234"] = ""
	files["/var/log/pods/prod_db-0_gone-1/.keep"] = ""
	files["/var/log/pods/kube-system_agent-x_live-1/.keep"] = ""
	WriteFiles(t, root, files)
	return root
}

// OpenStorage opens the storage of a node with these mounts and this sysfs. root is the
// node's root directory.
func OpenStorage(t testing.TB, sys fs.FS, root, mounts string) *storage.Storage {
	t.Helper()
	table := filepath.Join(t.TempDir(), "mountinfo")
	if err := os.WriteFile(table, []byte(mounts), 0o644); err != nil {
		t.Fatal(err)
	}
	s, err := storage.Open(storage.Config{Sys: sys, Mountinfo: table, HostRoot: root})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// OrphanMounts is a mountinfo with volumes of pods. The pod live-1 runs, waits-1 waits for
// its first container, and the others have ended.
const OrphanMounts = `1 0 259:300 / / rw shared:1 - ext4 /dev/nvme0n1 rw
20 1 253:1 / /var/lib/kubelet/plugins/kubernetes.io/csi/x/globalmount rw - xfs /dev/mapper/luks rw
21 1 253:1 / /var/lib/kubelet/pods/gone-1/volumes/kubernetes.io~csi/data/mount rw - xfs /dev/mapper/luks rw
22 1 259:300 /srv/sub /var/lib/kubelet/pods/gone-1/volume-subpaths/conf/app/0 rw - ext4 /dev/nvme0n1 rw
23 1 0:60 / /var/lib/kubelet/pods/gone-2/volumes/kubernetes.io~nfs/evil\033[2J rw - nfs4 filer:/ rw
24 1 9:0 / /var/lib/kubelet/pods/live-1/volumes/kubernetes.io~csi/data/mount rw - ext4 /dev/md0 rw
25 1 253:2 / /var/lib/kubelet/pods/left-1/volumes/kubernetes.io~csi/data/mount rw - ext4 /dev/dm-2 rw
26 1 253:2 /a /var/lib/kubelet/pods/waits-1/volumes/kubernetes.io~csi/data/mount rw - ext4 /dev/dm-2 rw
27 1 0:70 / /var/lib/kubelet/pods/remote/ rw - nfs4 filer:/ rw
28 27 0:71 / /var/lib/kubelet/pods/remote/volumes/kubernetes.io~projected/token rw - tmpfs tmpfs rw
29 1 0:72 / /var/lib/kubelet/pods/gone-1/etc-hosts rw - tmpfs tmpfs rw
30 1 0:6 /dm-2 /var/lib/kubelet/pods/gone-1/volumeDevices/kubernetes.io~csi/raw rw - devtmpfs devtmpfs rw
`
