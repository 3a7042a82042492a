package runtimeconfig

import (
	"os"
	"path/filepath"
	"testing"
)

// TestBlockioFile covers the file of blockio classes in the configurations of both runtimes.
func TestBlockioFile(t *testing.T) {
	const (
		containerd = "etc/containerd/config.toml"
		crio       = "etc/crio/crio.conf"
		tasks      = "[plugins.'io.containerd.service.v1.tasks-service']\nblockio_config_file = "
	)
	for _, tt := range []struct {
		name, runtime string
		files         map[string]string
		want          string
	}{
		{"containerd 2", "containerd", map[string]string{containerd: "version = 3\n" + tasks + "'/etc/a.yaml'\n"}, "/etc/a.yaml"},
		{"containerd 1.7", "containerd", map[string]string{containerd: "version = 2\n" + tasks + "'/etc/a.yaml'\n"}, "/etc/a.yaml"},
		{"an import", "containerd", map[string]string{containerd: "version = 3\nimports = ['x.toml']\n" + tasks + "'/etc/a.yaml'\n", "etc/containerd/x.toml": "version = 3\n" + tasks + "'/etc/b.yaml'\n"}, "/etc/b.yaml"},
		{"empty", "containerd", map[string]string{containerd: "version = 3\n" + tasks + "''\n"}, ""},
		{"no string", "containerd", map[string]string{containerd: "version = 3\n" + tasks + "5\n"}, ""},
		{"no TOML", "containerd", map[string]string{containerd: tasks}, ""},
		{"no file", "containerd", nil, ""},
		{"CRI-O", "cri-o", map[string]string{crio: "[crio.runtime]\nblockio_config_file = '/etc/a.yaml'\n"}, "/etc/a.yaml"},
		{"a drop-in of CRI-O", "cri-o", map[string]string{crio: "[crio.runtime]\nblockio_config_file = '/etc/a.yaml'\n", "etc/crio/crio.conf.d/x": "[crio.runtime]\nblockio_config_file = '/etc/b.yaml'\n"}, "/etc/b.yaml"},
		{"CRI-O without", "cri-o", map[string]string{crio: "", containerd: "version = 3\n" + tasks + "'/etc/a.yaml'\n"}, ""},
		{"CRI-O, not known yet", "", map[string]string{"etc/crio/crio.conf.d/x": "[crio.runtime]\nblockio_config_file = '/etc/b.yaml'\n"}, "/etc/b.yaml"},
	} {
		c := Config{HostRoot: writeTree(t, tt.files, nil)}
		if got := c.BlockioFile(tt.runtime, ""); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// TestWatchLogsBlockio verifies that classes of the runtime are logged once, and again if they are back.
func TestWatchLogsBlockio(t *testing.T) {
	node := newNode(t, "mnt/x=", "etc/containerd/config.toml=")
	w, hook := newWatch(t, &Config{HostRoot: node, Rootfs: "/mnt"})
	for i, step := range []struct {
		text  string
		lines int
	}{{"", 0}, {"'/etc/a.yaml'", 1}, {"'/etc/a.yaml'", 0}, {"''", 0}, {"'/etc/a.yaml'", 1}} {
		text := "version = 3\n"
		if step.text != "" {
			text += "[plugins.'io.containerd.service.v1.tasks-service']\nblockio_config_file = " + step.text + "\n"
		}
		if err := os.WriteFile(filepath.Join(node, "etc/containerd/config.toml"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		hook.Reset()
		if _, err := w.Layers(t.Context(), "containerd", "v2.1.0"); err != nil {
			t.Fatal(err)
		}
		lines := 0
		for _, e := range hook.AllEntries() {
			if e.Data["file"] == "/etc/a.yaml" {
				lines++
			}
		}
		if lines != step.lines {
			t.Errorf("step %d: %d lines, want %d", i, lines, step.lines)
		}
	}
}
