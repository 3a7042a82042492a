package storage

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
)

// busyNode returns the mountinfo of a node with 250 pods and about 5,000 mounts. It also returns the paths of
// 15 mounts of one container: five volumes that are mounts, ten directories on two disks.
func busyNode() (mounts string, paths []string) {
	var b strings.Builder
	b.WriteString("29 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro\n" +
		"26 29 0:24 / /run rw,nosuid,nodev shared:5 - tmpfs tmpfs rw,size=401100k,mode=755,inode64\n" +
		"40 29 8:17 / /var/lib/containerd rw,relatime shared:30 - xfs /dev/sdb1 rw,attr2,inode64,noquota\n")
	const layers = "/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs/snapshots/"
	for pod := range 250 {
		uid := fmt.Sprintf("%08x-98b4-4e53-8c3e-7d8d2d5a5b1b", pod)
		volumes := "/var/lib/kubelet/pods/" + uid + "/volumes/"
		for i := range 20 {
			id, minor := 1000+pod*20+i, 100+pod*20+i
			switch {
			case i < 8:
				fmt.Fprintf(&b, "%d 29 0:%d / %skubernetes.io~projected/token-%d rw,relatime shared:%d - tmpfs tmpfs rw,size=170000k,inode64,noswap\n",
					id, minor, volumes, i, minor)
			case i < 14:
				fmt.Fprintf(&b, "%d 26 0:%d / /run/containerd/io.containerd.runtime.v2.task/k8s.io/%064x/rootfs rw,relatime shared:%d - overlay overlay "+
					"rw,lowerdir=%s%d/fs:%s%d/fs:%s%d/fs,upperdir=%s%d/fs,workdir=%s%d/work,uuid=on,nouserxattr\n",
					id, minor, id, minor, layers, i, layers, i+1, layers, i+2, layers, minor, layers, minor)
			default:
				fmt.Fprintf(&b, "%d 29 8:%d / %skubernetes.io~csi/pvc-%d/mount rw,relatime shared:%d - ext4 /dev/sdc rw\n",
					id, []int{32, 48}[i%2], volumes, i, minor)
			}
		}
	}
	volumes := "/var/lib/kubelet/pods/000000f0-98b4-4e53-8c3e-7d8d2d5a5b1b/volumes/"
	for i := range 5 {
		paths = append(paths, fmt.Sprintf("%skubernetes.io~csi/pvc-%d/mount", volumes, 14+i))
		paths = append(paths, fmt.Sprintf("%skubernetes.io~empty-dir/scratch-%d", volumes, i))
		paths = append(paths, fmt.Sprintf("/var/lib/containerd/io.containerd.grpc.v1.cri/containers/%064x/volumes/%d", i, i))
	}
	return b.String(), paths
}

func newBusyNode(b *testing.B) (*fakeNode, []string) {
	mounts, paths := busyNode()
	n := newFakeNode(b, mounts)
	for _, p := range paths {
		n.mkdir(b, p)
		if got := n.Resolve(b.Context(), p); len(got.Disks) != 1 {
			b.Fatalf("%s: %+v", p, got)
		}
	}
	return n, paths
}

func BenchmarkParseMountTable(b *testing.B) {
	mounts, _ := busyNode()
	b.SetBytes(int64(len(mounts)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ParseMountTable(strings.NewReader(mounts)); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRefreshChanged reads a changed table, and resolves the known devices again.
func BenchmarkRefreshChanged(b *testing.B) {
	n, _ := newBusyNode(b)
	b.ReportAllocs()
	for b.Loop() {
		n.stale = true
		if err := n.Refresh(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRefreshUnchangedProc measures the read of the kernel's text on this machine.
func BenchmarkRefreshUnchangedProc(b *testing.B) {
	s, err := Open(Config{Sys: os.DirFS("/sys"), Mountinfo: "/proc/self/mountinfo", HostRoot: "/"})
	if err != nil {
		b.Skip(err)
	}
	defer s.Close()
	b.ReportAllocs()
	for b.Loop() {
		if err := s.Refresh(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkFind finds a directory in a volume, a volume, and a directory of the root.
func BenchmarkFind(b *testing.B) {
	mounts, paths := busyNode()
	table := parseTable(b, mounts)
	b.ReportAllocs()
	for b.Loop() {
		for _, p := range paths[:3] {
			table.find(p)
		}
	}
}

func BenchmarkResolve15Known(b *testing.B) {
	n, paths := newBusyNode(b)
	b.ReportAllocs()
	for b.Loop() {
		for _, p := range paths {
			n.Resolve(b.Context(), p)
		}
	}
}

// BenchmarkResolve15Fresh measures the first resolution of 15 paths by a fresh table.
func BenchmarkResolve15Fresh(b *testing.B) {
	for _, deadline := range []bool{false, true} {
		b.Run(fmt.Sprintf("deadline=%t", deadline), func(b *testing.B) {
			n, paths := newBusyNode(b)
			ctx := context.Background()
			if deadline {
				ctx = b.Context()
			}
			b.ReportAllocs()
			for b.Loop() {
				old := n.current.Load()
				fresh := newSnapshot(old.table, n.Storage.sys, old.host)
				fresh.devices.all = old.devices.copy()
				n.current.Store(fresh)
				for _, p := range paths {
					n.Resolve(ctx, p)
				}
			}
		})
	}
}

func BenchmarkWholeDisk(b *testing.B) {
	sys := NewSysfs(os.DirFS("/sys"))
	disks, err := sys.Disks()
	if err != nil || len(disks) == 0 {
		b.Skip("no disk here")
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := sys.WholeDisk(disks[len(disks)-1].Dev); err != nil {
			b.Fatal(err)
		}
	}
}

// 250 pods with two containers each.
