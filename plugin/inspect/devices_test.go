package inspect

import (
	"context"
	"fmt"
	"io/fs"
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

// TestSortDead: by pod, container, time and disk; rows of unknown pods come last.
func TestSortDead(t *testing.T) {
	row := func(namespace, pod, container, at, disk string) DeadRow {
		return DeadRow{Owner: Owner{Namespace: namespace, Pod: pod, Container: container}, Since: at, Disk: disk}
	}
	want := []DeadRow{
		row("a", "p", "c", "1", "sda"), row("a", "p", "c", "1", "sdb"), row("a", "p", "c", "2", "sda"),
		row("a", "p", "d", "1", "sda"), row("a", "q", "c", "1", "sda"), row("b", "a", "a", "1", "sda"),
		row("", unknownPod, "", "", "sda"), row("", unknownPod, "", "", "sdb"),
	}
	got := slices.Clone(want)
	slices.Reverse(got)
	sortDead(got)
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// deniedFS denies the list of open files of all processes.
type deniedFS struct{ fs.FS }

func (d deniedFS) Open(name string) (fs.File, error) {
	if strings.HasSuffix(name, "/fdinfo") {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
	}
	return d.FS.Open(name)
}

func (d deniedFS) ReadLink(name string) (string, error) { return fs.ReadLink(d.FS, name) }

func (d deniedFS) Lstat(name string) (fs.FileInfo, error) { return fs.Lstat(d.FS, name) }

// TestHolderNotes: what was not read of the processes is a note, and the rest is reported.
func TestHolderNotes(t *testing.T) {
	const partial = "not all processes and open files were read"
	// many has more open files than are read of one process.
	many := fakenode.Proc()
	for i := range maxFDs + 1 {
		many[fmt.Sprintf("30/fdinfo/%d", 1000+i)] = &fstest.MapFile{Data: []byte("mnt_id:\t21\n")}
	}
	hostile := fakenode.Proc()
	hostile["50/mountinfo"] = &fstest.MapFile{Data: []byte("200 100 none\n")}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tt := range []struct {
		name  string
		ctx   context.Context
		proc  fs.FS
		notes []string
		found bool
	}{
		{"all", t.Context(), fakenode.Proc(), nil, true},
		{"files denied", t.Context(), deniedFS{fakenode.Proc()}, []string{"open files of 5 processes are unreadable (requires CAP_SYS_PTRACE)"}, true},
		{"many files", t.Context(), many, []string{partial}, true},
		{"a line of mountinfo that cannot be parsed", t.Context(), hostile, nil, true},
		{"canceled", canceled, fakenode.Proc(), []string{partial}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			table, err := storage.ParseMountTable(strings.NewReader(fakenode.OrphanMounts))
			if err != nil {
				t.Fatal(err)
			}
			const data = fakenode.Pods + "gone-1/volumes/kubernetes.io~csi/data/mount"
			m, _ := table.Find(data)
			orphans := []Orphan{{mount: m}}
			orphans[0].Mountpoint = data
			f := holderFinder{proc: tt.proc}
			if d := cmp.Diff(tt.notes, f.find(tt.ctx, table, orphans)); d != "" {
				t.Errorf("notes, -want +got:\n%s", d)
			}
			if found := len(orphans[0].Holders) > 0; found != tt.found {
				t.Errorf("holders: %+v", orphans[0].Holders)
			}
		})
	}
}
