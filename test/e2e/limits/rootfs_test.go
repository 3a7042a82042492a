package limits

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

// layersDir is where the snapshotter of TestRootfsElsewhere keeps layers: on vdd.
const layersDir = "/mnt/xfs/e2e-native"

// TestRootfsElsewhere verifies that the plugin finds writable layers whose snapshotter has its root on another
// disk than containerd's. containerd is restarted with that configuration while the plugin runs, and the plugin
// has to ask containerd, because the file does not have the answer.
func TestRootfsElsewhere(t *testing.T) {
	if cri.IsCRIO() {
		rootfsOfStorage(t)
		return
	}
	p := lab.StartPlugin(t)
	before := lab.RunPod(t, "before", lab.Annotations{lab.Limits + "container.c": "rootfs wbps=2Mi; /data wbps=2Mi"})
	follows := lab.Sleeper("c", "/data", "ext4")
	follows.Mounts[0].Propagated = true // it is looked into again and again
	old := before.MustRun(follows)
	useNativeSnapshotter(t)
	p.Await(t, lab.LogServing, 2)

	pod := lab.RunPod(t, "after", lab.Annotations{lab.Limits + "container.c": "rootfs wbps=1Mi"})
	writesSlowly(t, pod, "vdd")
	lab.WantIOMax(t, old.Cgroup, lab.Disks{"vda": "wbps=2097152", "vdb": "wbps=2097152"}) // its layer is where it was

	// Like the plugin, check goes by the pod's handler.
	manifest := filepath.Join(t.TempDir(), "pod.yaml")
	lab.WriteFile(t, manifest, "apiVersion: v1\nkind: Pod\nmetadata:\n  name: checked\n  annotations:\n    "+
		lab.Limits+"container.c: rootfs wbps=1Mi\nspec:\n  containers: [{name: c, image: local/iotool:1}]\n")
	other := map[string]string{"runc": "crun", "crun": "runc"}[lab.Node.Runtime]
	for handler, disk := range map[string]string{"": "vdd", lab.Node.Runtime: "vdd", other: "vda"} {
		out, err := lab.Command(t, "check", "-f", manifest, "--handler", handler, "-o", "wide")
		if err != nil || !strings.Contains(out, lab.Node.Disks[disk]+" wbps=1048576") {
			t.Errorf("check --handler %q: want %s, got (%v)\n%s", handler, disk, err, out)
		}
	}
}

// rootfsOfStorage is TestRootfsElsewhere for CRI-O, which has one storage for all handlers, with the images. A directory in
// storage.conf is on another disk than the default one.
func rootfsOfStorage(t *testing.T) {
	t.Helper()
	const file = "/etc/containers/storage.conf"
	t.Cleanup(func() { // after the pod has ended
		os.Remove(file)
		lab.RestartRuntime(t)
		// The storage mounts a directory onto itself, and does not always unmount it.
		if err := unix.Unmount(filepath.Join(layersDir, "overlay"), 0); err != nil && !errors.Is(err, unix.EINVAL) {
			t.Error(err)
		}
		if err := os.RemoveAll(layersDir); err != nil {
			t.Error(err)
		}
	})
	lab.WriteFile(t, file, "[storage]\ndriver = 'overlay'\ngraphroot = '"+layersDir+"'\nrunroot = '/run/containers/e2e'\n")
	lab.RestartRuntime(t)
	lab.Administer(t, "nri-node-images", "/usr/local/share/nri-node/pause.tar")
	if err := lab.ImportImage(t.Context(), "iotool.tar"); err != nil {
		t.Fatal(err)
	}
	lab.StartPlugin(t)
	pod := lab.RunPod(t, "pod", lab.Annotations{lab.Limits + "container.c": "rootfs wbps=1Mi"})
	writesSlowly(t, pod, "vdd")
}

// writesSlowly verifies that the writes of a container c into its layer are limited, on a disk.
func writesSlowly(t *testing.T, pod lab.PodOf, disk string) {
	t.Helper()
	k := pod.MustRun(cri.ContainerConfig{
		Name: "c", Memory: lab.MemoryLimit,
		Args: []string{"write", "--block", "64Ki", "--direct", "--path", "/tmp/file"},
	})
	lab.WantIOMax(t, k.Cgroup, lab.Disks{disk: "wbps=1048576"})
	lab.WantRate(t, k.Cgroup, disk, "wbytes", lab.MiB)
}

// useNativeSnapshotter has the default runtime use it until the end of the test.
// The CRI unpacks an image that it finds missing there. The snapshotter has to be
// another one: containerd's database has the snapshots by its name.
func useNativeSnapshotter(t *testing.T) {
	t.Helper()
	config := lab.ReadConfig(t)
	mark := "containerd.runtimes." + lab.Node.Runtime + "]\n"
	if strings.Count(config, mark) != 1 {
		t.Fatalf("%s: want one section %q", lab.RuntimeConfig(), mark)
	}
	changed := strings.Replace(config, mark, mark+"  snapshotter = \"native\"\n", 1) +
		"\n[plugins.\"io.containerd.snapshotter.v1.native\"]\n  root_path = \"" + layersDir + "\"\n"

	// In the reverse order: the snapshots, the configuration, what is left.
	t.Cleanup(func() { os.RemoveAll(layersDir) })
	t.Cleanup(func() { lab.ConfigureRuntime(t, config) })
	t.Cleanup(func() { removeSnapshots(t) })
	lab.MustMkdir(t, layersDir)
	lab.ConfigureRuntime(t, changed)
	// containerd runs with what it has read. The file says otherwise now, so that only
	// containerd itself knows where layers are.
	lab.WriteFile(t, lab.RuntimeConfig(), config)
}

// removeSnapshots takes the unpacked images out of containerd's database too,
// or the next run would build on layers whose files are gone.
func removeSnapshots(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*lab.Deadline) // t's own has ended
	defer cancel()
	snapshots := func(args ...string) ([]byte, error) {
		return exec.CommandContext(ctx, "ctr", append([]string{"-n", "k8s.io", "snapshots", "--snapshotter", "native"}, args...)...).Output()
	}
	for {
		out, err := snapshots("ls")
		if err != nil {
			t.Errorf("list snapshots: %v", err)
			return
		}
		keys, removed := 0, 0
		for i, line := range strings.Split(strings.TrimSpace(string(out)), "\n") {
			if fields := strings.Fields(line); i > 0 && len(fields) > 0 { // below the heading
				keys++
				if _, err := snapshots("rm", fields[0]); err == nil { // else another one builds on it
					removed++
				}
			}
		}
		switch {
		case keys == 0:
			return
		case removed == 0:
			t.Errorf("%d snapshots cannot be removed:\n%s", keys, out)
			return
		}
	}
}

// TestRootfsOfOtherRuntime verifies that a limit for rootfs is on the disk of the container's own layer if the configuration that the
// plugin reads is that of another runtime, whose layers are on another disk.
func TestRootfsOfOtherRuntime(t *testing.T) {
	lab.NeedsContainerd(t, "of the node reports no processes, so that the plugin cannot look at a container's root mount")
	const root = "/mnt/xfs/e2e-other"
	lab.MustMkdir(t, filepath.Join(root, "io.containerd.snapshotter.v1.overlayfs"))
	t.Cleanup(func() { os.RemoveAll(root) })
	config := filepath.Join(t.TempDir(), "config.toml")
	lab.WriteFile(t, config, "version = 2\nroot = '"+root+"'\n")
	p := lab.StartPlugin(t, "--runtime-endpoint=none", "--containerd-config="+config)
	writesSlowly(t, lab.RunPod(t, "pod", lab.Annotations{lab.Limits + "container.c": "rootfs wbps=1Mi"}), "vda")
	p.Await(t, "Writable layers are on another disk than the runtime or its configuration says", 1)
	out, err := lab.Command(t, "status")
	if err != nil || !strings.Contains(out, "writable layers are on another disk") {
		t.Errorf("status: %v\n%s", err, out)
	}
}
