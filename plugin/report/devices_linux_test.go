package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
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
		"cg/a/io.max": "", "cg/a/io.weight": "", "cg/a/io.latency": "",
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
	writeDevices(&out, r, all)
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

func TestHolders(t *testing.T) {
	root := fakenode.WriteOrphans(t, "systemd")
	h := hostOf(t)
	h.Cgroups, h.Root, h.Proc, h.OrphanGrace = fakenode.OpenCgroups(t, filepath.Join(root, "cg")), hostfs.Root(root), fakenode.Proc(), 0
	h.Storage = fakenode.OpenStorage(t, fakenode.Sysfs(), root, fakenode.OrphanMounts)
	r := devicesOf(t, h)
	if r.Lost != nil {
		t.Error(r.Lost)
	}
	var out bytes.Buffer
	writeOrphans(&out, r.Orphans)
	want, err := os.ReadFile("testdata/orphans.golden")
	if os.Getenv("UPDATE_SCRIPTS") != "" {
		want = out.Bytes()
		err = os.WriteFile("testdata/orphans.golden", want, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), out.String()); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if strings.ContainsAny(out.String(), "\x1b\x07\r\t") {
		t.Errorf("control characters in\n%q", out.String())
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

// TestDevicesHere reads the machine that runs the tests, with any devices.
func TestDevicesHere(t *testing.T) {
	cgroups := t.TempDir()
	if err := os.WriteFile(filepath.Join(cgroups, "cgroup.controllers"), []byte("io\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	a := &app{stdout: &stdout, stderr: &stderr, getenv: os.Getenv, openCgroups: cgroupfs.OpenTree}
	if err := a.run(t.Context(), []string{"devices", "--all", "--cgroup-root", cgroups}); err != nil {
		t.Fatal(err, stderr.String())
	}
	disks, err := storage.NewSysfs(os.DirFS("/sys")).Disks()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range disks {
		if d.Dev.Major != 1 && !strings.Contains(stdout.String(), d.Name+" ") {
			t.Errorf("%s is not in\n%s", d.Name, stdout.String())
		}
	}
	t.Log(stdout.String(), stderr.String())
}
