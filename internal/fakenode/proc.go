package fakenode

import (
	"fmt"
	"io/fs"
	"strings"
	"testing/fstest"
)

// Proc returns a procfs with six processes. These are the node's first one, a service with a mount namespace of
// its own, and one with files open inside and outside a volume. Two more are of a pod that has volumes of
// OrphanMounts mounted elsewhere, and one has none of these mounts.
func Proc() fstest.MapFS {
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
	service := strings.NewReplacer("\n2", "\n302", " shared:1 ", " master:1 ").Replace(OrphanMounts)
	service = strings.ReplaceAll("301"+strings.TrimPrefix(service, "1"), " 1 ", " 301 ")
	for pid, comm := range map[int]string{60: "service", 1: "systemd", 30: "tail\n\x1b]0;evil\x07", 40: "agent", 41: "agent", 50: "nginx"} {
		p := fmt.Sprint(pid, "/")
		file(p+"mountinfo", OrphanMounts)
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
	link("30/cwd", Pods+"gone-1/volumes/kubernetes.io~csi/data/mount/dir (deleted)")
	file("41/fdinfo/9", fd(102))
	file("50/fdinfo/9", fd(21)) // passed to it, so it is not searched for
	file("self/comm", "x\n")
	return f
}
