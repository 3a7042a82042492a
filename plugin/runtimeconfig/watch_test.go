package runtimeconfig

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/sirupsen/logrus/hooks/test"

	"github.com/nri-blkio/nri-blkio/blkio/storage"
	"github.com/nri-blkio/nri-blkio/internal/fakenode"
)

// tmpfsReason is why a tmpfs cannot be limited.
const tmpfsReason = "tmpfs is memory, not a disk"

// newWatch returns a watch of a node whose files are all on one tmpfs. The mount table is not read yet, as at the start of the
// program.
func newWatch(t *testing.T, c *Config) (*Watch, *test.Hook) {
	t.Helper()
	log, hook := test.NewNullLogger()
	table := filepath.Join(t.TempDir(), "mountinfo")
	if err := os.WriteFile(table, []byte("1 0 0:1 / / rw - tmpfs tmpfs rw\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	s, err := storage.OpenUnread(storage.Config{Sys: fakenode.Sysfs(), Mountinfo: table, HostRoot: c.HostRoot})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return &Watch{Config: c, Storage: s, Log: log}, hook
}

// TestWatchLogsChanges verifies that the configuration is read each time that the runtime connects, and logged
// only if it has changed.
func TestWatchLogsChanges(t *testing.T) {
	const native = "version = 3\n[plugins.'io.containerd.cri.v1.images']\nsnapshotter = 'native'\n"
	node := newNode(t, "var/lib/containerd/io.containerd.snapshotter.v1.native/x=", overlayfs+"/x=", "mnt/x=", "etc/containerd/config.toml="+native)
	config := Config{HostRoot: node}
	w, hook := newWatch(t, &config)
	read := func(want ...string) {
		t.Helper()
		hook.Reset()
		if _, err := w.Layers(t.Context(), "containerd", "v2.1.0"); !errors.Is(err, ErrNoSocket) {
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
	handlers := v3Runtime + "kata]\nsnapshotter = 'devmapper'\n" + v3Runtime + "runc]\nsnapshotter = 'native'\n"
	if err := os.WriteFile(filepath.Join(node, "etc/containerd/config.toml"), []byte(handlers), 0o644); err != nil {
		t.Fatal(err)
	}
	read(": "+tmpfsReason, "kata: "+thin, "any other: "+tmpfsReason)
	read()
	config.Rootfs = "/mnt"
	hook.Reset()
	if _, err := w.Layers(t.Context(), "containerd", "v2.1.0"); err != nil || len(hook.AllEntries()) != 1 {
		t.Errorf("with Rootfs: %v, %d lines", err, len(hook.AllEntries()))
	}
}

// TestWatchAfterSilence verifies that a runtime that does not answer in time does not keep the watch from
// finding the disk under the layers.
func TestWatchAfterSilence(t *testing.T) {
	w, hook := newWatch(t, &Config{HostRoot: newNode(t, "mnt/x="), Rootfs: "/mnt"})
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.Layers(over, "", ""); err != nil {
		t.Fatal(err)
	}
	entries := hook.AllEntries()
	if len(entries) != 1 || entries[0].Data["reason"] != tmpfsReason {
		t.Errorf("logged %v", entries)
	}
}
