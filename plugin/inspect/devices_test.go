package inspect

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/blkio/hostfs"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
	"github.com/nri-blkio/nri-blkio/internal/fakenode"
	"github.com/nri-blkio/nri-blkio/plugin/record"
)

// devicesHost is a node with the devices of fakenode, a pod u1 with volumes of several kinds, and
// more files.
func devicesHost(t *testing.T, files map[string]string) *Host {
	t.Helper()
	root := t.TempDir()
	fakenode.WriteFiles(t, root, map[string]string{"cg/cgroup.controllers": "io\n", "cg/kubepods/burstable/podu1/cgroup.events": "populated 1\n"})
	for _, volume := range []string{"volumes/kubernetes.io~csi/pvc-1", "volumes/kubernetes.io~nfs/share", "volumes/kubernetes.io~projected/token", "volumes/kubernetes.io~empty-dir/scratch"} {
		fakenode.WriteFiles(t, root, map[string]string{filepath.Join(podsDir, "u1", volume, ".keep"): ""})
	}
	fakenode.WriteFiles(t, root, files)
	sys := fakenode.Sysfs()
	return &Host{
		Cgroups: fakenode.OpenCgroups(t, filepath.Join(root, "cg")), Storage: fakenode.OpenStorage(t, sys, root, fakenode.Mounts),
		Sysfs: storage.NewSysfs(sys), Root: hostfs.Root(root), Proc: fstest.MapFS{}, KubeletRoot: kubeletRoot, OrphanGrace: DefaultOrphanGrace,
	}
}

// children returns a line for each child of the node with this kind and name, wherever it is.
func children(list []*Node, kind, name string) (out []string) {
	for _, n := range list {
		if n.Kind == kind && n.Name == name && !n.Again {
			for _, c := range n.Children {
				out = append(out, strings.TrimSpace(c.Kind+" "+c.Name+" "+c.Plugin))
			}
		}
		out = append(out, children(n.Children, kind, name)...)
	}
	return out
}

// TestVolumesInTree verifies that a volume is on its filesystem, and one without a disk of the node is
// left out.
func TestVolumesInTree(t *testing.T) {
	r, err := devicesHost(t, nil).Devices(t.Context())
	if err != nil || r.Lost != nil {
		t.Fatal(err, r.Lost)
	}
	onDisks := []string{"volume pvc-1 kubernetes.io/csi", "volume scratch kubernetes.io/empty-dir"}
	if d := cmp.Diff(onDisks, children(r.Devices, KindFilesystem, "ext4")); d != "" {
		t.Errorf("on disks, -want +got:\n%s", d)
	}
}

// TestSwapsInTree verifies that a swap file is on its filesystem, and a swap device that is not in sysfs is a
// root of its own.
func TestSwapsInTree(t *testing.T) {
	const header = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"
	swaps := func(text string) DevicesReport {
		t.Helper()
		r, err := devicesHost(t, map[string]string{"proc/swaps": text, "swapfile": ""}).Devices(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	r := swaps(header + "/swapfile                               file\t\t1024\t\t12\t\t-2\n" +
		"/dev/sdq                                partition\t2048\t\t0\t\t-3\n")
	if len(r.Lost) > 0 || !slices.Contains(children(r.Devices, KindFilesystem, "ext4"), "swap swapfile") {
		t.Errorf("lost %q, on the root's filesystem %q", r.Lost, children(r.Devices, KindFilesystem, "ext4"))
	}
	i := slices.IndexFunc(r.Devices, func(n *Node) bool { return n.Kind == KindSwap })
	if i < 0 || r.Devices[i].Path != "/dev/sdq" || r.Devices[i].Size != 2048<<10 {
		t.Errorf("no swap on a device of its own: %d", i)
	}
	if r := swaps(header + "/swapfile file many 0 -2\n"); len(r.Lost) != 1 || len(r.Devices) == 0 {
		t.Errorf("a table that cannot be parsed: lost %q", r.Lost)
	}
}

// TestSwapOnDisk verifies that a swap device is on its disk, and a file whose place is unknown is a root.
func TestSwapOnDisk(t *testing.T) {
	const swaps = "Filename Type Size Used Priority\n/dev/sdb partition 2048 8 -2\nswapfile file 16 0 -3\n/dev/shm/f\\040(deleted) file 16 0 -3\n"
	r, err := devicesHost(t, map[string]string{"proc/swaps": swaps}).Devices(t.Context())
	if err != nil || r.Lost != nil {
		t.Fatal(err, r.Lost)
	}
	if got := children(r.Devices, "disk", "sdb"); !slices.Contains(got, "swap sdb") {
		t.Errorf("on sdb: %q", got)
	}
	var roots []string
	for _, n := range r.Devices {
		if n.Kind == KindSwap {
			roots = append(roots, n.Path)
		}
	}
	if d := cmp.Diff([]string{"swapfile", "/dev/shm/f (deleted)"}, roots); d != "" {
		t.Errorf("roots, -want +got:\n%s", d)
	}
}

// TestVolumesNamed verifies that a volume has the name of its pod, and orphans come first.
func TestVolumesNamed(t *testing.T) {
	const orphan = "12 1 259:300 /x /var/lib/kubelet/pods/gone/volume-subpaths/conf/c/0 rw - ext4 /dev/nvme0n1 rw\n"
	h := devicesHost(t, map[string]string{podsDir + "gone/.keep": "", "/var/log/pods/prod_web-0_gone/.keep": ""})
	h.OrphanGrace, h.Storage = 0, fakenode.OpenStorage(t, fakenode.Sysfs(), string(h.Root), fakenode.Mounts+orphan)
	if err := record.Write(h.Cgroups.Cgroup("kubepods/burstable/podu1"), &record.Record{Kind: record.KindPod, Namespace: "prod", Pod: "db-0", UID: "u1"}); err != nil {
		t.Fatal(err)
	}
	r, err := h.Devices(t.Context())
	if err != nil || r.Lost != nil {
		t.Fatal(err, r.Lost)
	}
	var got []string
	var visit func(list []*Node)
	visit = func(list []*Node) {
		for _, n := range list {
			if n.Kind == KindVolume {
				got = append(got, fmt.Sprintf("%s %s/%s %t", n.Name, n.Namespace, n.Pod, n.Orphan))
			}
			visit(n.Children)
		}
	}
	visit(r.Devices)
	want := []string{"pvc-1 prod/db-0 false", "conf prod/web-0 true", "scratch prod/db-0 false"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// TestDevicesFails verifies that the report has an error without io.cost's settings or the kernel's features,
// because it would report that weights do not work. Without disks it has nothing to show.
func TestDevicesFails(t *testing.T) {
	for name, change := range map[string]func(h *Host){
		"io.cost": func(h *Host) {
			fakenode.WriteFiles(t, string(h.Root), map[string]string{"cg/io.cost.qos": "8:0 enable=perhaps\n"})
		},
		"features": func(h *Host) { loop(t, filepath.Join(string(h.Root), "cg/cgroup.events")) },
		"disks":    func(h *Host) { h.Sysfs = storage.NewSysfs(fstest.MapFS{}) },
	} {
		h := devicesHost(t, nil)
		change(h)
		if r, err := h.Devices(t.Context()); err == nil || r.Devices != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestDevicesLost verifies that a part that cannot be read is noted, and the rest of the tree is shown.
func TestDevicesLost(t *testing.T) {
	h := devicesHost(t, nil)
	root := string(h.Root)
	loop(t, filepath.Join(root, "proc/swaps"))
	loop(t, filepath.Join(root, podsDir, "u2/volumes"))
	if err := record.WriteRaw(h.Cgroups.Cgroup("kubepods/burstable/podu1"), record.KindPod, []byte("{")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(root, "cg/kubepods"), filepath.Join(root, "cg/pods")); err != nil {
		t.Fatal(err)
	}
	r, err := h.Devices(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"too many levels of symbolic links", "cgroup pods/burstable/podu1: parse record", "look for volumes: ", "look for orphaned volumes: no kubepods cgroup found"} {
		if i >= len(r.Lost) || !strings.Contains(r.Lost[i], want) {
			t.Fatalf("lost %q, want %q at %d", r.Lost, want, i)
		}
	}
	onDisks := []string{"volume pvc-1 kubernetes.io/csi", "volume scratch kubernetes.io/empty-dir"}
	if d := cmp.Diff(onDisks, children(r.Devices, KindFilesystem, "ext4")); d != "" || len(r.Lost) != 4 {
		t.Errorf("lost %q; on disks, -want +got:\n%s", r.Lost, d)
	}
}

// TestClose verifies that cgroups and storage are closed, if there is one.
func TestClose(t *testing.T) {
	root := t.TempDir()
	fakenode.WriteFiles(t, root, map[string]string{"cgroup.controllers": "io\n", "mountinfo": rootMount})
	open := func() *Host {
		tree, err := cgroupfs.OpenTree(root)
		if err != nil {
			t.Fatal(err)
		}
		s, err := storage.Open(storage.Config{Sys: fakenode.Sysfs(), Mountinfo: filepath.Join(root, "mountinfo"), HostRoot: root})
		if err != nil {
			t.Fatal(err)
		}
		return &Host{Cgroups: tree, Storage: s}
	}
	open().Close() // the process keeps some files that are opened with the first one
	before := openFiles(t)
	open().Close()
	without := open()
	without.Storage.Close()
	without.Storage = nil
	without.Close()
	if after := openFiles(t); after > before {
		t.Errorf("%d files are open, and %d before", after, before)
	}
}

// openFiles returns how many files this process has open.
func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
