package inspect

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio/hostfs"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
	"github.com/nri-blkio/nri-blkio/internal/fakenode"
)

// devicesHost is a node with the devices of fakenode, a pod u1 with volumes of several kinds, and
// more files.
func devicesHost(t *testing.T, files map[string]string) *Host {
	t.Helper()
	root := t.TempDir()
	fakenode.WriteFiles(t, root, map[string]string{"cg/cgroup.controllers": "io\n", "cg/kubepods/burstable/podu1/cgroup.events": "populated 1\n"})
	for _, volume := range []string{"volumes/kubernetes.io~csi/pvc-1", "volumes/kubernetes.io~nfs/share", "volumes/kubernetes.io~projected/token", "volumes/kubernetes.io~empty-dir/scratch"} {
		fakenode.WriteFiles(t, root, map[string]string{filepath.Join(fakenode.Pods, "u1", volume, ".keep"): ""})
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

// TestVolumesInTree: a volume is on its filesystem, and one without a disk of the node is
// elsewhere, with the reason.
func TestVolumesInTree(t *testing.T) {
	r, err := devicesHost(t, nil).Devices(t.Context())
	if err != nil || r.Lost != nil {
		t.Fatal(err, r.Lost)
	}
	onDisks := []string{"volume pvc-1 kubernetes.io/csi", "volume scratch kubernetes.io/empty-dir"}
	if d := cmp.Diff(onDisks, children(r.Devices, KindFilesystem, "ext4")); d != "" {
		t.Errorf("on disks, -want +got:\n%s", d)
	}
	var elsewhere []string
	for _, n := range r.Elsewhere {
		elsewhere = append(elsewhere, fmt.Sprintf("%s, in memory %v: %s", n.Name, n.InMemory, n.Reason))
	}
	want := []string{
		"share, in memory false: nfs4 is a network filesystem: there is no local disk to limit",
		"token, in memory true: tmpfs is memory, not a disk",
	}
	if d := cmp.Diff(want, elsewhere); d != "" {
		t.Errorf("elsewhere, -want +got:\n%s", d)
	}
}

// TestSwapsInTree: a swap file is on its filesystem, and a swap device that is not in sysfs is a
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

// TestDevicesFails: without io.cost's settings the report would say that weights do not work.
func TestDevicesFails(t *testing.T) {
	if _, err := devicesHost(t, map[string]string{"cg/io.cost.qos": "8:0 enable=perhaps\n"}).Devices(t.Context()); err == nil {
		t.Error("a file that cannot be parsed is no error")
	}
}
