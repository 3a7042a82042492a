package report

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio/hostfs"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
	"github.com/nri-blkio/nri-blkio/internal/fakenode"
	"github.com/nri-blkio/nri-blkio/plugin"
	"github.com/nri-blkio/nri-blkio/plugin/inspect"
)

// hostOf is a node with these volumes' directories.
func hostOf(t *testing.T, dirs ...string) *inspect.Host {
	t.Helper()
	root := t.TempDir()
	for _, d := range dirs {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	fakenode.WriteFiles(t, root, map[string]string{
		"cg/cgroup.controllers": "io\n", "cg/io.cost.qos": "8:16 enable=1\n", "cg/a/cgroup.controllers": "io\n",
		"cg/a/io.max": "", "cg/a/io.weight": "",
		"proc/swaps": "Filename Type Size Used Priority\n/dev/zram0 partition 4096 1024 -2\n/swap\x1bfile file 1024 0 -3\n",
	})
	sys := fakenode.Sysfs()
	return &inspect.Host{
		Cgroups: fakenode.OpenCgroups(t, filepath.Join(root, "cg")), Storage: fakenode.OpenStorage(t, sys, root, fakenode.Mounts),
		Sysfs: storage.NewSysfs(sys), Root: hostfs.Root(root), Proc: os.DirFS(filepath.Join(root, "proc")),
		KubeletRoot: plugin.DefaultKubeletRoot, OrphanGrace: time.Hour,
	}
}

func devicesOf(t *testing.T, h *inspect.Host) *inspect.DevicesReport {
	t.Helper()
	r, err := h.Devices(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return &r
}

func drawn(t *testing.T, r *inspect.DevicesReport, all bool) string {
	t.Helper()
	var out bytes.Buffer
	WriteDevices(&out, r, all)
	var lines []string
	for line := range strings.SplitSeq(out.String(), "\n") {
		lines = append(lines, strings.TrimRight(line, " "))
	}
	return strings.Join(lines, "\n")
}

const podsOf = plugin.DefaultKubeletRoot + "/pods/"

func TestTree(t *testing.T) {
	long := strings.Repeat("long", 60)
	h := hostOf(t,
		podsOf+"u1/volumes/kubernetes.io~csi/pvc-1", podsOf+"u1/volumes/kubernetes.io~nfs/share",
		podsOf+"u1/volumes/kubernetes.io~projected/token", podsOf+"u1/volumes/kubernetes.io~empty-dir/tmp",
		podsOf+"u2/volumes/kubernetes.io~empty-dir/evil\x1b[2J\n", podsOf+"u2/volumes/kubernetes.io~empty-dir/"+long,
		"/var/log/pods/prod_db-0_u1/db", "/var/log/pods/odd")
	r := devicesOf(t, h)
	want, err := os.ReadFile("testdata/tree.golden")
	got := drawn(t, r, false)
	if os.Getenv("UPDATE_SCRIPTS") != "" {
		err = os.WriteFile("testdata/tree.golden", []byte(got), 0o644)
		want = []byte(got)
	}
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if strings.ContainsAny(got, "\x1b\x07\r\t") {
		t.Errorf("control characters in\n%q", got)
	}
}

// TestTreeOfMany verifies that a table of a place with hundreds of volumes stays readable, and all of them can
// be listed.
func TestTreeOfMany(t *testing.T) {
	var dirs []string
	for i := range 500 {
		dirs = append(dirs, fmt.Sprintf(podsOf+"u%03d/volumes/kubernetes.io~empty-dir/tmp", i))
	}
	r := devicesOf(t, hostOf(t, dirs...))
	few, all := drawn(t, r, false), drawn(t, r, true)
	if !strings.Contains(few, "└─and 481 more") || strings.Count(few, "\n") > 80 {
		t.Errorf("of 500 volumes and a swap file is drawn\n%s", few)
	}
	if n := strings.Count(all, "empty-dir"); n != 500 {
		t.Errorf("--all draws %d volumes of 500", n)
	}
}

// TestNodeText covers the last column of the tree. Tenants and devices choose most of it.
func TestNodeText(t *testing.T) {
	volume := func(kind string, change func(n *inspect.Node)) inspect.Node {
		n := inspect.Node{Kind: kind, Place: inspect.Place{UID: "1", Plugin: "kubernetes.io/csi"}}
		if change != nil {
			change(&n)
		}
		return n
	}
	filesystem := func(p inspect.Place, children ...*inspect.Node) inspect.Node {
		return inspect.Node{Kind: inspect.KindFilesystem, Place: p, Children: children}
	}
	for _, tt := range []struct {
		node inspect.Node
		want string
	}{
		{inspect.Node{Kind: "disk", Again: true}, "see above"},
		{inspect.Node{Kind: "disk"}, "disk"},
		{inspect.Node{Kind: "disk", Device: inspect.Device{Model: "\x1b[31m", ReadOnly: true}}, `"\x1b[31m" (read-only)`},
		{inspect.Node{Kind: "lvm", Device: inspect.Device{Model: "vg-data"}}, "lvm vg-data"},
		{inspect.Node{Kind: "raid1", Device: inspect.Device{Model: "raid1"}}, "raid1"},
		{inspect.Node{Kind: inspect.KindSwap, Device: inspect.Device{Used: 1 << 20}}, "swap, 1M used"},
		{volume(inspect.KindVolume, nil), "pod 1 csi"},
		{volume(inspect.KindVolume, func(n *inspect.Node) { n.Namespace, n.Pod, n.Orphan = "prod", "db-0", true }), "ORPHANED prod/db-0 csi"},
		{volume(inspect.KindVolume, func(n *inspect.Node) { n.Plugin = "" }), "pod 1"},
		{volume(inspect.KindBlockVolume, nil), "pod 1 csi block device"},
		{filesystem(inspect.Place{Mountpoints: []string{"/a"}}), "/a"},
		{filesystem(inspect.Place{Mountpoints: []string{"/a", "/b", "/c"}}), "/a (+2)"},
		{filesystem(inspect.Place{Mountpoints: []string{"/a", "/v"}}, &inspect.Node{Place: inspect.Place{Path: "/v"}}), "/a"},
		{filesystem(inspect.Place{Mountpoints: []string{"/a\t"}, Reason: "no such disk"}), `"/a\t" its disk is not known: no such disk`},
		{filesystem(inspect.Place{Reason: "no such disk"}), "its disk is not known: no such disk"},
	} {
		if got := nodeText(&tt.node); got != tt.want {
			t.Errorf("%+v: got %q, want %q", tt.node, got, tt.want)
		}
	}
}
