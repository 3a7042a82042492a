package inspect

import (
	"errors"
	"math"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/hostfs"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
	"github.com/nri-blkio/nri-blkio/internal/fakenode"
	"github.com/nri-blkio/nri-blkio/plugin/check"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
	"github.com/nri-blkio/nri-blkio/plugin/record"
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
	want := []string{"a limit on sdc also applies to md0, which is stored on it"}
	if d := cmp.Diff(want, n.Shared(map[string]bool{"sdc": true, "absent": true})); d != "" {
		t.Errorf("shared disks, -want +got:\n%s", d)
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
		"io.cost": {func(t *testing.T, h *Host) {
			fakenode.WriteFiles(t, string(h.Root), map[string]string{"cg/io.cost.qos": "8:0 enable=perhaps\n"})
		}, "io.cost.qos"},
		"disks": {func(_ *testing.T, h *Host) { h.Sysfs = storage.NewSysfs(fstest.MapFS{}) }, "list disks: "},
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

func TestControls(t *testing.T) {
	for _, tt := range []struct {
		name  string
		files map[string]string
		want  check.Controls
	}{
		{name: "no io.weight", files: map[string]string{"cg/pod/io.max": ""}, want: check.Controls{Missing: []string{blkio.IOWeight}, IOCost: blkio.No}},
		{
			name: "io.cost off", files: map[string]string{"cg/pod/io.weight": "", "cg/pod/io.max": "", "cg/io.cost.qos": "8:0 enable=0\n"},
			want: check.Controls{IOCost: blkio.No},
		},
		{
			name: "io.cost on, no io.max", files: map[string]string{"cg/pod/io.weight": "", "cg/io.cost.qos": "8:0 enable=0\n8:16 enable=1\n"},
			want: check.Controls{Missing: []string{blkio.IOMax}, IOCost: blkio.Yes},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := checkHost(t, tt.files).controls()
			if d := cmp.Diff(tt.want, got); d != "" || err != nil {
				t.Errorf("%v; -want +got:\n%s", err, d)
			}
		})
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
	if sda.State != "on demand" || !sda.Guess || sda.Model != nil || sda.Random != nil {
		t.Errorf("without a model: %+v", sda)
	}
	if sdb.Origin != "calibration" || sdb.Guess || sdb.Model != slowDisk || sdb.Random == nil {
		t.Errorf("calibrated: %+v", sdb)
	}
	if sdc.State != "no" || !strings.Contains(sdc.Reason, "another program") {
		t.Errorf("of another program: %+v", sdc)
	}
}

// TestCheckShare verifies that a pod that joins competes with one container, and with those that run. The
// weight of a pod as a whole is known from its record.
func TestCheckShare(t *testing.T) {
	const stat = "8:0 rbytes=4096 wbytes=0 rios=1 wios=0 dbytes=0 dios=0\n"
	files := map[string]string{}
	for _, cgroup := range []string{"kubepods", "kubepods/podu1", "kubepods/podu1/c", "kubepods/podu2", "kubepods/podu2/d"} {
		files["cg/"+cgroup+"/io.stat"], files["cg/"+cgroup+"/io.weight"], files["cg/"+cgroup+"/cgroup.controllers"] = stat, "default 100\n", "io\n"
	}
	h := checkHost(t, files)
	weight := policy.Setting{Value: blkio.Value{Address: blkio.Address{Key: blkio.Weight}, Amount: 200}}
	rec := record.Record{Kind: record.KindPod, Namespace: "prod", Pod: "db-0", UID: "u1", Settings: policy.Settings{weight}}
	if err := record.Write(h.Cgroups.Cgroup("kubepods/podu1"), &rec); err != nil {
		t.Fatal(err)
	}
	share, err := h.CheckShare()
	if err != nil {
		t.Fatal(err)
	}
	got := share(blkio.Dev{Major: 8}, check.Joining{Containers: []uint32{300, 100}})
	want := check.Shares{
		BesideOne: check.PodShares{Pod: 0.8, Containers: []float64{0.75, 0.5}},
		AtLeast:   check.PodShares{Pod: 400. / 700, Containers: []float64{300. / 700, 100. / 700}}, Rivals: 2,
	}
	if d := cmp.Diff(want, got, cmpopts.EquateApprox(0, 1e-9)); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	got = share(blkio.Dev{Major: 8, Minor: 16}, check.Joining{Weight: 50, Containers: []uint32{300, 100}})
	want = check.Shares{
		BesideOne: check.PodShares{Pod: 1. / 3, Containers: []float64{1. / 3, 1. / 3}}, AtLeast: check.PodShares{Pod: 1, Containers: []float64{0.75, 0.25}},
	}
	if d := cmp.Diff(want, got, cmpopts.EquateApprox(0, 1e-9)); d != "" {
		t.Errorf("on an unused disk: -want +got:\n%s", d)
	}
	got = share(blkio.Dev{Major: 8, Minor: 16}, check.Joining{Containers: []uint32{300, 100}, Budget: policy.WeightBudget{Weight: 50}})
	want.BesideOne.Pod = 50. / 150
	if d := cmp.Diff(want.BesideOne, got.BesideOne, cmpopts.EquateApprox(0, 1e-9)); d != "" {
		t.Errorf("with a budget: -want +got:\n%s", d)
	}
	got = share(blkio.Dev{Major: 8, Minor: 16}, check.Joining{Weight: 10, Containers: []uint32{10}, Budget: policy.WeightBudget{Guarantee: 3000, Reserve: 2500}})
	if want := 0.4; math.Abs(got.BesideOne.Pod-want) > 2e-3 { // of what the reserve leaves, in whole numbers
		t.Errorf("with a guarantee: %f, want %f", got.BesideOne.Pod, want)
	}
}

// TestCheckShareOnDisk verifies that the weight of a pod as a whole on a single disk counts there, unless it is
// cleared, or only observed.
func TestCheckShareOnDisk(t *testing.T) {
	sda, sdb := blkio.Dev{Major: 8}, blkio.Dev{Major: 8, Minor: 16}
	for name, tt := range map[string]struct {
		change func(*record.Record)
		want   float64 // the share on sda
	}{
		"in force": {func(*record.Record) {}, 0.25},
		"cleared":  {func(r *record.Record) { r.Cleared = true }, 0.5},
		"observed": {func(r *record.Record) { r.Observed = true }, 0.5},
	} {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{}
			for _, cgroup := range []string{"kubepods", "kubepods/podu1", "kubepods/podu1/c"} {
				files["cg/"+cgroup+"/io.stat"] = "8:0 rbytes=4096 wbytes=0 rios=1 wios=0 dbytes=0 dios=0\n8:16 rbytes=4096 wbytes=0 rios=1 wios=0 dbytes=0 dios=0\n"
				files["cg/"+cgroup+"/io.weight"], files["cg/"+cgroup+"/cgroup.controllers"] = "default 100\n", "io\n"
			}
			h := checkHost(t, files)
			weight := policy.Setting{Value: blkio.Value{Address: blkio.Address{Key: blkio.DiskWeight, Dev: sda}, Amount: 300}}
			rec := record.Record{Kind: record.KindPod, Namespace: "prod", Pod: "db-0", UID: "u1", Weights: policy.Settings{weight}}
			tt.change(&rec)
			if err := record.Write(h.Cgroups.Cgroup("kubepods/podu1"), &rec); err != nil {
				t.Fatal(err)
			}
			share, err := h.CheckShare()
			if err != nil {
				t.Fatal(err)
			}
			joining := check.Joining{Containers: []uint32{100}}
			if got := share(sda, joining).AtLeast.Pod; got != tt.want {
				t.Errorf("%g on the disk, want %g", got, tt.want)
			}
			if got := share(sdb, joining).AtLeast.Pod; got != 0.5 {
				t.Errorf("%g on another disk", got)
			}
		})
	}
}

// TestCheckShareSkips verifies that a pod whose cgroup cannot be read does not count, and the error names the
// cgroup.
func TestCheckShareSkips(t *testing.T) {
	files := map[string]string{}
	for _, cgroup := range []string{"kubepods", "kubepods/podu1", "kubepods/podu1/c", "kubepods/podu2"} {
		files["cg/"+cgroup+"/io.stat"], files["cg/"+cgroup+"/io.weight"] = "8:0 rbytes=4096 wbytes=0 rios=1 wios=0 dbytes=0 dios=0\n", "default 100\n"
		files["cg/"+cgroup+"/cgroup.controllers"] = "io\n"
	}
	files["cg/kubepods/podu2/io.stat"] = "nonsense\n"
	share, err := checkHost(t, files).CheckShare()
	if err == nil || !strings.Contains(err.Error(), "skip cgroup kubepods/podu2: ") {
		t.Errorf("error %v", err)
	}
	if got := share(blkio.Dev{Major: 8}, check.Joining{Containers: []uint32{100}}); got.AtLeast.Pod != 0.5 || got.Rivals != 1 {
		t.Errorf("%+v", got)
	}
}

// TestCheckShareFails verifies that the share beside one container is known even if the running containers are
// unknown.
func TestCheckShareFails(t *testing.T) {
	h := checkHost(t, map[string]string{"cg/kubepods/io.stat": "x", "cg/kubepods/cgroup.controllers": "io\n", "cg/kubepods/io.weight": "default 100\n"})
	share, err := h.CheckShare()
	if err == nil {
		t.Error("no error")
	}
	got := share(blkio.Dev{Major: 8}, check.Joining{Containers: []uint32{100}})
	if got.AtLeast.Containers != nil || got.BesideOne.Pod != 0.5 {
		t.Errorf("%+v", got)
	}
}
