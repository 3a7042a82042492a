package runtimeconfig

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/sirupsen/logrus/hooks/test"

	"github.com/nri-blkio/nri-blkio/blkio/hostfs"
	"github.com/nri-blkio/nri-blkio/internal/fakenode"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
)

// TestVerify verifies that a directory that is not on the node holds no layers. The error names each once, and
// the answer that was given is not changed.
func TestVerify(t *testing.T) {
	host := hostfs.Root(writeTree(t, map[string]string{"a/x": "", "b/x": "", "file": ""}, nil))
	dir := func(d string) inventory.Layer { return inventory.Layer{Dir: d} }
	missing := func(d string) inventory.Layer {
		return refused("the runtime stores them in " + d + ", which is not a directory on this node")
	}
	silent := errors.New("no answer")
	for _, tt := range []struct {
		name     string
		in, want inventory.Layers
		err      error
		text     string
	}{
		{"all there", inventory.Layers{Default: dir("/a"), Handlers: byHandler{"x": dir("/b")}}, inventory.Layers{Default: dir("/a"), Handlers: byHandler{"x": dir("/b")}}, nil, ""},
		{"on no disk", inventory.Layers{Default: refused("a pool")}, inventory.Layers{Default: refused("a pool")}, nil, ""},
		{"nothing known", inventory.Layers{}, inventory.Layers{}, nil, ""},
		{"nothing known, for this reason", inventory.Layers{}, inventory.Layers{Default: inventory.Layer{Unknown: "no answer"}}, silent, "no answer"},
		{"some are missing", inventory.Layers{Default: dir("/none"), Handlers: byHandler{"x": dir("/a"), "y": dir("/none"), "z": dir("/gone")}}, inventory.Layers{
			Default: missing("/none"), Handlers: byHandler{"x": dir("/a"), "y": missing("/none"), "z": missing("/gone")},
		}, nil, "/gone is not a directory on this node\n/none is not a directory on this node"},
		{"a file, from files", inventory.Layers{Default: dir("/file")}, inventory.Layers{Default: missing("/file")}, silent, "no answer\n/file is not a directory on this node"},
	} {
		given := maps.Clone(tt.in.Handlers)
		got, err := verify(host, tt.in, tt.err)
		text := ""
		if err != nil {
			text = err.Error()
		}
		if !got.Equal(tt.want) || text != tt.text || tt.err != nil && !errors.Is(err, tt.err) {
			t.Errorf("%s: %+v, %q, want %+v, %q", tt.name, got, text, tt.want, tt.text)
		}
		if d := cmp.Diff(given, tt.in.Handlers); d != "" {
			t.Errorf("%s: what was given, -before +after:\n%s", tt.name, d)
		}
	}
}

// TestFind covers the location of the containerd that runs, by its socket, and otherwise of the installed one.
func TestFind(t *testing.T) {
	const k3s, k0s = "/var/lib/rancher/k3s/agent/containerd", "/var/lib/k0s/containerd"
	const k3sConfig, k3sSocket = "var/lib/rancher/k3s/agent/etc/containerd/config.toml", "run/k3s/containerd/containerd.sock"
	const rke2Config, rke2 = "var/lib/rancher/rke2/agent/etc/containerd/config.toml", "/var/lib/rancher/rke2/agent/containerd"
	std := standard()
	for name, tt := range map[string]struct {
		files []string
		want  string // root
	}{
		"nothing":                          {nil, std.root},
		"k3s runs":                         {[]string{k3sConfig, k3sSocket}, k3s},
		"RKE2 runs":                        {[]string{rke2Config, k3sSocket}, rke2},
		"k3s was there, RKE2 runs":         {[]string{rke2Config, k3sSocket, "var/lib/rancher/k3s/agent/containerd/x"}, rke2},
		"k3s is installed":                 {[]string{k3sConfig}, k3s},
		"k0s is installed":                 {[]string{"etc/k0s/containerd.toml"}, k0s},
		"k0s, and containerd before":       {[]string{"etc/k0s/containerd.toml", std.root + "/x"}, std.root},
		"k0s, and its configuration":       {[]string{"etc/k0s/containerd.toml", std.config}, std.root},
		"k0s runs, and containerd as well": {[]string{"etc/k0s/containerd.toml", "run/k0s/containerd.sock", std.root + "/x", std.config, std.socket}, k0s},
		"a socket alone":                   {[]string{k3sSocket}, std.root},
	} {
		root := t.TempDir()
		for _, f := range tt.files {
			fakenode.WriteFiles(t, root, map[string]string{f: ""})
		}
		if got := find(hostfs.Root(root)); got.root != tt.want {
			t.Errorf("%s: %+v, want %s", name, got, tt.want)
		}
	}
}

// TestConfigOfDistribution verifies that the configuration of a distribution's containerd belongs to a
// containerd with the distribution's root, for each path that names it.
func TestConfigOfDistribution(t *testing.T) {
	const config = "/var/lib/rancher/k3s/agent/etc/containerd/config.toml"
	host := hostfs.Root(writeTree(t, map[string]string{config: "version = 3\n", "other.toml": "version = 3\n"}, nil))
	for _, named := range []string{config, "/var/lib/rancher/./k3s//agent/etc/containerd/config.toml"} {
		got, err := runtimeLayers(host, named, "containerd", "")
		if dir := "/var/lib/rancher/k3s/agent/containerd/io.containerd.snapshotter.v1.overlayfs"; err != nil || got.Default.Dir != dir {
			t.Errorf("%s: %+v, %v, want %s", named, got.Default, err, dir)
		}
	}
}

// TestWatchLogs verifies that the log has the directory of the layers with its disks, or why they are unknown.
func TestWatchLogs(t *testing.T) {
	type line struct{ level, message, directory, disks, err string }
	for name, tt := range map[string]struct {
		config Config
		files  []string
		want   line
	}{
		"a disk":  {Config{Rootfs: "/mnt"}, []string{"mnt/x="}, line{"info", "Found the disk under writable layers", "/mnt", "[nvme0n1]", ""}},
		"unknown": {Config{Endpoint: NoEndpoint}, []string{"etc/containerd/config.toml=root = \n"}, line{"warning", "Disk of writable layers unknown: limits for rootfs are delayed", "", "", "parse /etc/containerd/config.toml"}},
	} {
		tt.config.HostRoot = newNode(t, tt.files...)
		log, hook := test.NewNullLogger()
		s := fakenode.OpenStorage(t, fakenode.Sysfs(), tt.config.HostRoot, "1 0 259:300 / / rw - ext4 /dev/nvme0n1 rw\n")
		w := Watch{Config: &tt.config, Storage: s, Log: log}
		_, _ = w.Layers(t.Context(), "", "") // the same error as in the log
		if len(hook.AllEntries()) != 1 {
			t.Fatalf("%s: %d lines", name, len(hook.AllEntries()))
		}
		e := hook.LastEntry()
		got := line{level: e.Level.String(), message: e.Message}
		got.directory, _ = e.Data["directory"].(string)
		if disks, ok := e.Data["disks"].([]string); ok {
			got.disks = fmt.Sprint(disks)
		}
		if err, ok := e.Data["error"].(error); ok && tt.want.err != "" && strings.Contains(err.Error(), tt.want.err) {
			got.err = tt.want.err
		}
		if got != tt.want {
			t.Errorf("%s: %+v, want %+v", name, got, tt.want)
		}
	}
}
