package inspect

import (
	"errors"
	"path/filepath"
	"testing"

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
			got.BFQ = nil
			if d := cmp.Diff(tt.want, got); d != "" || err != nil {
				t.Errorf("%v; -want +got:\n%s", err, d)
			}
		})
	}
}
