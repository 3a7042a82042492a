package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/sirupsen/logrus/hooks/test"

	"github.com/nri-blkio/nri-blkio/plugin/runtimeconfig"
)

// TestLayersAreToldOnce: the configuration is read each time that the runtime
// registers us, and is said again only if it is another one.
func TestLayersAreToldOnce(t *testing.T) {
	dir := writeTree(t, map[string]string{
		"proc/1/mountinfo": "1 0 0:1 / / rw - tmpfs tmpfs rw\n",
		"var/lib/containerd/io.containerd.snapshotter.v1.native/x": "",
		layersDir + "/x":             "",
		"sys/block/x":                "",
		"etc/containerd/config.toml": "version = 3\n[plugins.'io.containerd.cri.v1.images']\nsnapshotter = 'native'\n",
	}, nil)
	o := options{hostRoot: dir, runtime: runtimeconfig.Config{HostRoot: dir}}
	s, err := o.storage()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	log, hook := test.NewNullLogger()
	w := layerWatch{opts: &o, storage: s, log: log}
	read := func(want ...string) {
		t.Helper()
		hook.Reset()
		if _, err := w.read(t.Context(), "containerd", "v2.1.0"); !errors.Is(err, runtimeconfig.ErrNoSocket) {
			t.Fatal(err)
		}
		var got []string
		for _, e := range hook.AllEntries() {
			handler, _ := e.Data["handler"].(string)
			reason, _ := e.Data["reason"].(string)
			got = append(got, handler+": "+reason)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("-want +got:\n%s", d)
		}
	}
	const thin = `containerd's snapshotter "devmapper" gives each container a thin device of its own`
	read(": " + tmpfsReason)
	read()
	const v3Runtime = "[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes."
	config := v3Runtime + "kata]\nsnapshotter = 'devmapper'\n" + v3Runtime + "runc]\nsnapshotter = 'native'\n"
	if err := os.WriteFile(filepath.Join(dir, "etc/containerd/config.toml"), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	read(": "+tmpfsReason, "kata: "+thin, "any other: "+tmpfsReason)
	read()
	o.rootfs = "/mnt"
	hook.Reset()
	if _, err := w.read(t.Context(), "containerd", "v2.1.0"); err != nil || len(hook.AllEntries()) != 1 {
		t.Errorf("--rootfs: %v, %d lines", err, len(hook.AllEntries()))
	}
}

// TestLayersAfterSilence: a runtime that does not answer in time does not keep the
// plugin from finding the disk under the layers.
func TestLayersAfterSilence(t *testing.T) {
	dir := writeTree(t, map[string]string{
		"proc/1/mountinfo": "1 0 0:1 / / rw - tmpfs tmpfs rw\n", "mnt/x": "", "sys/block/x": "",
	}, nil)
	o := options{hostRoot: dir, rootfs: "/mnt"}
	s, err := o.storage()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	log, hook := test.NewNullLogger()
	w := layerWatch{opts: &o, storage: s, log: log}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.read(over, "", ""); err != nil {
		t.Fatal(err)
	}
	entries := hook.AllEntries()
	if len(entries) != 1 || entries[0].Data["reason"] != tmpfsReason {
		t.Errorf("logged %v", entries)
	}
}

// tmpfsReason is why a tmpfs cannot be limited.
const tmpfsReason = "tmpfs is memory, not a disk"
