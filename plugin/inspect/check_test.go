package inspect

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/hostfs"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
	"github.com/nri-blkio/nri-blkio/internal/fakenode"
	"github.com/nri-blkio/nri-blkio/plugin/check"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
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

// TestCheckNodeFails: without one of the facts the decisions of check would be others than those of
// run.
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

// TestBFQ: the disks with the scheduler bfq, whose weights are its own.
func TestBFQ(t *testing.T) {
	h := checkHost(t, nil)
	sys := fstest.MapFS{}
	for name, scheduler := range map[string]string{"sda": "none [mq-deadline] bfq", "sdb": "mq-deadline [bfq]", "sdc": "[none]", "sdd": "[bfq] none"} {
		dir := "block/" + name + "/"
		sys[dir+"dev"] = &fstest.MapFile{Data: fmt.Appendf(nil, "8:%d\n", 16*int(name[2]-'a'))}
		sys[dir+"size"], sys[dir+"queue/scheduler"] = &fstest.MapFile{Data: []byte("8\n")}, &fstest.MapFile{Data: []byte(scheduler + "\n")}
	}
	h.Sysfs = storage.NewSysfs(sys)
	w, err := h.weights()
	if d := cmp.Diff([]string{"sdb", "sdd"}, w.BFQ); d != "" || err != nil {
		t.Errorf("%v; -want +got:\n%s", err, d)
	}
}

func TestWeights(t *testing.T) {
	for _, tt := range []struct {
		name  string
		files map[string]string
		want  check.Weights
	}{
		{name: "no io.weight", files: map[string]string{"cg/pod/io.max": ""}, want: check.Weights{Kernel: blkio.No, IOCost: blkio.No}},
		{
			name: "io.cost off", files: map[string]string{"cg/pod/io.weight": "", "cg/io.cost.qos": "8:0 enable=0\n"},
			want: check.Weights{Kernel: blkio.Yes, IOCost: blkio.No},
		},
		{
			name: "io.cost on", files: map[string]string{"cg/pod/io.weight": "", "cg/io.cost.qos": "8:0 enable=0\n8:16 enable=1\n"},
			want: check.Weights{Kernel: blkio.Yes, IOCost: blkio.Yes},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := checkHost(t, tt.files).weights()
			if d := cmp.Diff(tt.want, got); d != "" || err != nil {
				t.Errorf("%v; -want +got:\n%s", err, d)
			}
		})
	}
}
