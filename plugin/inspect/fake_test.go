package inspect

import (
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/nri-blkio/nri-blkio/internal/fakenode"
)

// podsDir is the directory of the pods in the kubelet's directory.
const podsDir = "/var/lib/kubelet/pods/"

// writeOrphans writes a node with orphanMounts below a temporary directory, and returns the root. The node has
// the kubelet's directories, and the cgroups of its pods in the directory cg. driver, systemd or cgroupfs,
// decides on the names of the cgroups.
func writeOrphans(t testing.TB, driver string) (root string) {
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
		files[podsDir+uid+"/plugins/.keep"] = ""
	}
	files[podsDir+"left-1/containers/db/1234"] = ""
	files["/var/log/pods/prod_db-0_gone-1/.keep"] = ""
	files["/var/log/pods/kube-system_agent-x_live-1/.keep"] = ""
	fakenode.WriteFiles(t, root, files)
	return root
}

// orphanMounts is a mountinfo with volumes of pods. The pod live-1 runs, waits-1 waits for
// its first container, and the others have ended.
const orphanMounts = `1 0 259:300 / / rw shared:1 - ext4 /dev/nvme0n1 rw
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

// procOf returns a procfs with six processes. These are the node's first one, a service with a mount namespace of
// its own, and one with files open inside and outside a volume. Two more are of a pod that has volumes of
// orphanMounts mounted elsewhere, and one has none of these mounts.
func procOf() fstest.MapFS {
	f := fstest.MapFS{}
	file := func(name, data string) { f[name] = &fstest.MapFile{Data: []byte(data)} }
	link := func(name, target string) {
		f[name] = &fstest.MapFile{Data: []byte(target), Mode: fs.ModeSymlink | 0o777}
	}
	fd := func(mount int) string { return fmt.Sprintf("pos:\t0\nflags:\t02\nmnt_id:\t%d\nino:\t7\n", mount) }
	const pod = "101 100 259:300 / / rw - overlay overlay rw\n" +
		"102 101 253:1 / /host/data\\033[2J rw - xfs /dev/mapper/luks rw\n" +
		"103 101 259:300 /srv /elsewhere rw - ext4 /dev/nvme0n1 rw\n" +
		"104 101 259:300 /srv/sub/deep /conf rw - ext4 /dev/nvme0n1 rw\n"
	// A service has the node's mounts, and loses those that the node unmounts.
	service := strings.NewReplacer("\n2", "\n302", " shared:1 ", " master:1 ").Replace(orphanMounts)
	service = strings.ReplaceAll("301"+strings.TrimPrefix(service, "1"), " 1 ", " 301 ")
	for pid, comm := range map[int]string{60: "service", 1: "systemd", 30: "tail\n\x1b]0;evil\x07", 40: "agent", 41: "agent", 50: "nginx"} {
		p := fmt.Sprint(pid, "/")
		file(p+"mountinfo", orphanMounts)
		file(p+"comm", comm+"\n")
		file(p+"cgroup", "0::/system.slice\n")
		link(p+"cwd", "/")
		link(p+"root", "/")
		if pid == 40 || pid == 41 {
			file(p+"mountinfo", pod)
			file(p+"cgroup", "0::/kubepods.slice/kubepods-podlive_1.slice/cri-containerd-1.scope\n")
		}
	}
	file("60/mountinfo", service)
	file("60/fdinfo/3", fd(3025))
	file("50/mountinfo", "200 100 0:99 / / rw - overlay overlay rw\n")
	file("30/fdinfo/0", fd(1))
	file("30/fdinfo/3", fd(21))
	file("30/fdinfo/4", fd(21))
	file("30/fdinfo/5", "pos:\t0\n")
	link("30/cwd", podsDir+"gone-1/volumes/kubernetes.io~csi/data/mount/dir (deleted)")
	file("41/fdinfo/9", fd(102))
	file("50/fdinfo/9", fd(21)) // passed to it, so it is not searched for
	file("self/comm", "x\n")
	return f
}
