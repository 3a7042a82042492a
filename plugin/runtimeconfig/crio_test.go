package runtimeconfig

import (
	"maps"
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio/hostfs"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
)

// crioTest is a configuration of CRI-O, and where it keeps writable layers.
type crioTest struct {
	name  string
	files map[string]string
	want  inventory.Layer
	err   string
}

func (tt *crioTest) run(t *testing.T) {
	got, err := runtimeLayers(hostfs.Root(writeTree(t, tt.files, nil)), "", "cri-o", "1.33.0")
	if tt.err != "" {
		if err == nil || !strings.Contains(err.Error(), tt.err) {
			t.Fatalf("got %v, want an error with %q", err, tt.err)
		}
		return
	}
	if err != nil || !got.Equal(inventory.Layers{Default: tt.want}) {
		t.Fatalf("got %+v, %v, want %+v", got, err, tt.want)
	}
}

func TestCRIOLayers(t *testing.T) {
	const storage, vendor = "etc/containers/storage.conf", "usr/share/containers/storage.conf"
	dir := func(d string) inventory.Layer { return inventory.Layer{Dir: d} }
	const byProcess = `CRI-O's storage driver "overlay" has a process write them (mount_program), and its I/O counts as that process's`
	for _, tt := range []crioTest{
		{name: "nothing said", want: dir("/var/lib/containers/storage/overlay")},
		{name: "storage.conf", files: map[string]string{storage: "[storage]\ndriver = 'btrfs'\ngraphroot = '/data'\n"}, want: dir("/data/btrfs")},
		{
			name: "nothing is inherited from the vendor's", want: dir("/var/lib/containers/storage/vfs"),
			files: map[string]string{storage: "[storage]\ndriver = 'vfs'\n", vendor: "[storage]\ngraphroot = '/no'\n"},
		},
		{name: "the vendor's", files: map[string]string{vendor: "[storage]\ngraphroot = '/vendor'\n"}, want: dir("/vendor/overlay")},
		{
			name: "CRI-O's own wins, the last drop-in most", want: dir("/c/vfs"),
			files: map[string]string{
				storage:                           "[storage]\ndriver = 'btrfs'\ngraphroot = '/data'\n",
				"etc/crio/crio.conf":              "[crio]\nroot = '/a'\nstorage_driver = 'vfs'\n[crio.api]\nlisten = 'x'\n",
				"etc/crio/crio.conf.d/10-b.conf":  "[crio]\nroot = '/b'\n",
				"etc/crio/crio.conf.d/20-c":       "[crio]\nroot = '/c'\n",
				"etc/crio/crio.conf.d/30-no.conf": "[crio]\nroot = ''\n[crio.nri]\nenable_nri = true\n",
			},
		},
		{
			name: "thin devices", want: refused(`CRI-O's storage driver "devicemapper" gives each container a thin device of its own`),
			files: map[string]string{"etc/crio/crio.conf": "[crio]\nstorage_driver = 'devicemapper'\n"},
		},
		{
			name: "zfs", want: refused(`CRI-O's storage driver "zfs" keeps them in a zfs pool, whose I/O belongs to no container`),
			files: map[string]string{storage: "[storage]\ndriver = 'zfs'\n"},
		},
		{name: "mount_program", want: refused(byProcess), files: map[string]string{storage: "[storage.options.overlay]\nmount_program = '/usr/bin/fuse-overlayfs'\n"}},
		{name: "mount_program, of old", want: refused(byProcess), files: map[string]string{storage: "[storage.options]\nmount_program = '/usr/bin/fuse-overlayfs'\n"}},
		{
			name: "mount_program as an option of CRI-O", want: refused(byProcess),
			files: map[string]string{"etc/crio/crio.conf.d/x": "[crio]\nstorage_option = ['overlay.mountopt=nodev', 'overlay.mount_program=/usr/bin/fuse-overlayfs']\n"},
		},
		{name: "mount_program is overlay's", want: dir("/var/lib/containers/storage/vfs"), files: map[string]string{storage: "[storage]\ndriver = 'vfs'\n[storage.options]\nmount_program = 'x'\n"}},
		{name: "no TOML", files: map[string]string{"etc/crio/crio.conf.d/x.conf": "root\n"}, err: "read CRI-O's configuration: parse /etc/crio/crio.conf.d/x.conf: "},
		{name: "no TOML in storage.conf", files: map[string]string{storage: "[storage\n"}, err: "read CRI-O's configuration: parse /etc/containers/storage.conf: "},
		{name: "a file without end", files: map[string]string{storage: "#" + strings.Repeat("x", hostfs.MaxFile)}, err: "read /etc/containers/storage.conf: larger than"},
	} {
		t.Run(tt.name, tt.run)
	}
}

// TestWhichRuntime verifies that the files on the node decide which runtime runs until the runtime has
// registered the plugin.
func TestWhichRuntime(t *testing.T) {
	const crio, ctd = "/var/lib/containers/storage/overlay", "/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs"
	config := map[string]string{"etc/containerd/config.toml": "version = 3\n", "etc/crio/crio.conf": ""}
	tests := []struct {
		name          string
		files         map[string]string
		config, asked string
		want          string
	}{
		{name: "a configuration of CRI-O", files: map[string]string{"etc/crio/crio.conf.d/x": ""}, want: crio},
		{name: "podman's alone", files: map[string]string{"etc/containers/storage.conf": ""}, want: ctd},
		{name: "both are configured", files: config, want: ctd},
		{name: "both are configured, and it is CRI-O", files: config, asked: "cri-o", want: crio},
		{name: "both are configured, and CRI-O runs", files: with(config, "run/crio/crio.sock"), want: crio},
		{name: "both run", files: with(config, "run/crio/crio.sock", "run/containerd/containerd.sock"), want: ctd},
		{name: "CRI-O was there before, and it is containerd", files: map[string]string{"etc/crio/crio.conf": ""}, asked: "containerd", want: ctd},
		{name: "the flag wins", files: config, config: "/etc/containerd/config.toml", asked: "cri-o", want: ctd},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := runtimeLayers(hostfs.Root(writeTree(t, tt.files, nil)), tt.config, tt.asked, "")
			if err != nil || got.Default.Dir != tt.want {
				t.Fatalf("got %+v, %v, want %s", got.Default, err, tt.want)
			}
		})
	}
}

// with returns the files, and empty ones.
func with(files map[string]string, empty ...string) map[string]string {
	out := maps.Clone(files)
	for _, name := range empty {
		out[name] = ""
	}
	return out
}
