package inspect

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/hostfs"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
	"github.com/nri-blkio/nri-blkio/internal/fakenode"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
	"github.com/nri-blkio/nri-blkio/policy"
)

// checkHost is a node whose root cgroup has these files.
func checkHost(t *testing.T, files map[string]string) *Host {
	t.Helper()
	root := t.TempDir()
	fakenode.WriteFiles(t, filepath.Join(root, "cg"), map[string]string{"cgroup.controllers": "io\n", "pod/cgroup.controllers": "io\n"})
	fakenode.WriteFiles(t, root, files)
	sys := fakenode.Sysfs()
	return &Host{
		Cgroups: fakenode.OpenCgroups(t, filepath.Join(root, "cg")), Storage: fakenode.OpenStorage(t, sys, root, fakenode.Mounts),
		Sysfs: storage.NewSysfs(sys), Root: hostfs.Root(root), KubeletRoot: kubeletRoot,
	}
}

func TestCheckNode(t *testing.T) {
	h := checkHost(t, map[string]string{
		"proc/meminfo": "MemTotal: 1024 kB\n", "cg/pod/io.max": "", "cg/pod/io.weight": "default 100\n", "cg/io.cost.qos": "8:16 enable=1\n",
	})
	layers := inventory.Layers{
		Default:  inventory.Layer{Reason: "no disk"},
		Handlers: map[string]inventory.Layer{"kata": {Unknown: "not read"}},
	}
	n, err := h.CheckNode(layers)
	if err != nil {
		t.Fatal(err)
	}
	if n.Memory != 1<<20 || n.KubeletRoot != kubeletRoot || n.Storage == nil {
		t.Errorf("%+v", n)
	}
	if !n.Layers.Equal(layers) {
		t.Errorf("layers: %+v", n.Layers)
	}

	if _, err := (&Host{StorageErr: errNoMounts}).CheckNode(layers); !errors.Is(err, errNoMounts) {
		t.Errorf("without storage: %v", err)
	}
	if _, err := (&Host{StorageErr: errNoMounts}).Devices(t.Context()); !errors.Is(err, errNoMounts) {
		t.Errorf("devices without storage: %v", err)
	}
}

var errNoMounts = errors.New("no mount table")

// TestCheckNodeFails verifies that without one of the facts the decisions of check would be others than those
// of run.
func TestCheckNodeFails(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(t *testing.T, h *Host)
		want   string
	}{
		"memory": {func(t *testing.T, h *Host) {
			fakenode.WriteFiles(t, string(h.Root), map[string]string{"proc/meminfo": "MemTotal: x kB\n"})
		}, "meminfo"},
		"features": {func(t *testing.T, h *Host) { loop(t, filepath.Join(string(h.Root), "cg/cgroup.events")) }, "probe cgroups: "},
	} {
		h := checkHost(t, nil)
		tt.change(t, h)
		if _, err := h.CheckNode(inventory.Layers{}); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n, err := checkHost(t, nil).CheckNode(inventory.Layers{}); err != nil || n.Memory != 0 {
		t.Errorf("without /proc/meminfo: %d, %v", n.Memory, err)
	}
}

// TestMissing verifies that check knows the control files that the kernel does not have.
func TestMissing(t *testing.T) {
	for file, missing := range map[string]string{blkio.IOMax: blkio.IOWeight, blkio.IOWeight: blkio.IOMax} {
		n, err := checkHost(t, map[string]string{"cg/pod/" + file: ""}).CheckNode(inventory.Layers{})
		if d := cmp.Diff([]string{missing}, n.Missing); d != "" || err != nil {
			t.Errorf("%v; -want +got:\n%s", err, d)
		}
	}
}

// TestCheckDisks covers io.cost of each disk, by the decision of run, for the decisions of check.
func TestCheckDisks(t *testing.T) {
	h := checkHost(t, map[string]string{"cg/io.cost.qos": "8:32 enable=0 ctrl=user\n", "cg/io.cost.model": ""})
	lost := errors.New("no answer")
	disks, err := h.CheckDisks(policy.Default(), knownDisks{noUdev: lost})
	if !errors.Is(err, lost) {
		t.Errorf("error %v", err)
	}
	sda, sdb, sdc := disks[blkio.Dev{Major: 8}], disks[blkio.Dev{Major: 8, Minor: 16}], disks[blkio.Dev{Major: 8, Minor: 32}]
	if sda.State != "on demand" || !sda.Guess {
		t.Errorf("without a model: %+v", sda)
	}
	if sdb.Origin != "calibration" || sdb.Guess {
		t.Errorf("calibrated: %+v", sdb)
	}
	if sdc.State != "no" || !strings.Contains(sdc.Reason, "another program") {
		t.Errorf("of another program: %+v", sdc)
	}
}
