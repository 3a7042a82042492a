package e2e

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/nri-blkio/nri-blkio/plugin/repair"
)

// Where containerd looks for plugins to start itself.
const (
	preinstalled       = "/opt/nri/plugins/90-nri-blkio"
	preinstalledConfig = "/etc/nri/conf.d/90-nri-blkio.conf"
)

// TestPreinstalled verifies that the runtime starts the plugin, passes its policy, and starts it again after a
// restart of the runtime. On containerd 1.7 such a plugin ends, and leaves the node to another instance.
func TestPreinstalled(t *testing.T) {
	t.Cleanup(func() { restartRuntime(t) }) // without it again
	copyProgram(t, preinstalled)
	mustMkdir(t, filepath.Dir(preinstalledConfig))
	writePolicy(t, preinstalledConfig, "floors: {bps: 512Ki}\nwriteback: {repair: false}\n")
	t.Cleanup(func() { os.Remove(preinstalledConfig) })
	pod := runPod(t, "pod", annotations{
		limits + "containers":    "/data wbps=1Mi",
		limits + "container.low": "/data wbps=256Ki",
	})
	restartRuntime(t)
	if node.containerd == "1.7" {
		startPlugin(t)
		wantIOMax(t, pod.run(sleeper("c", "/data", "ext4")).Cgroup, limitedDisk)
		return
	}
	for _, name := range []string{"first", "second"} {
		if name == "second" {
			restartRuntime(t)
		}
		k := pod.run(sleeper(name, "/data", "ext4"))
		wantIOMax(t, k.Cgroup, limitedDisk)
		wantRefusal(t, pod, "low", limits+"container.low",
			`entry 1 "/data wbps=256Ki": wbps=256Ki is under this node's floor (write at least 512Ki)`)
	}
	wantIOMax(t, pod.Cgroup, twiceDisk)
	eventually(t, "the writeback part has the policy of the runtime", func() error {
		if mode := report(t).Mode; mode != repair.ModeObserve {
			return fmt.Errorf("the mode of the writeback part is %q, want %q", mode, repair.ModeObserve)
		}
		return nil
	})
}

func copyProgram(t *testing.T, to string) {
	t.Helper()
	from, err := os.Open(filepath.Join(node.payload, "nri-blkio"))
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	mustMkdir(t, filepath.Dir(to))
	f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(to) })
	if _, err := io.Copy(f, from); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func mustMkdir(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
}

func writeFile(t *testing.T, file, content string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}
