package deploy

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/nri-blkio/nri-blkio/plugin/repair"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

// Where containerd looks for plugins to start itself.
const (
	preinstalled       = "/opt/nri/plugins/90-nri-blkio"
	preinstalledConfig = "/etc/nri/conf.d/90-nri-blkio.conf"
)

// TestPreinstalled verifies that the runtime starts the plugin, passes its policy, and starts it again after a
// restart of the runtime. On containerd 1.7 such a plugin ends, and leaves the node to another instance.
func TestPreinstalled(t *testing.T) {
	t.Cleanup(func() { lab.RestartRuntime(t) }) // without it again
	copyProgram(t, preinstalled)
	lab.MustMkdir(t, filepath.Dir(preinstalledConfig))
	lab.WritePolicy(t, preinstalledConfig, "floors: {bps: 512Ki}\nwriteback: {repair: false}\n")
	t.Cleanup(func() { os.Remove(preinstalledConfig) })
	pod := lab.RunPod(t, "pod", lab.Annotations{
		lab.Limits + "containers":    "/data wbps=1Mi",
		lab.Limits + "container.low": "/data wbps=256Ki",
	})
	lab.RestartRuntime(t)
	if lab.Node.Engine == "containerd-1.7" {
		lab.StartPlugin(t)
		lab.WantIOMax(t, pod.MustRun(lab.Sleeper("c", "/data", "ext4")).Cgroup, lab.LimitedDisk)
		return
	}
	for _, name := range []string{"first", "second"} {
		if name == "second" {
			lab.RestartRuntime(t)
		}
		k := pod.MustRun(lab.Sleeper(name, "/data", "ext4"))
		lab.WantIOMax(t, k.Cgroup, lab.LimitedDisk)
		lab.WantRefusal(t, pod, "low", lab.Limits+"container.low",
			`entry 1 "/data wbps=256Ki": wbps=256Ki is under this node's floor (write at least 512Ki)`)
	}
	lab.WantIOMax(t, pod.Cgroup, lab.TwiceDisk)
	lab.Eventually(t, "the writeback part has the policy of the runtime", func() error {
		if mode := lab.Report(t).Mode; mode != repair.ModeObserve {
			return fmt.Errorf("the mode of the writeback part is %q, want %q", mode, repair.ModeObserve)
		}
		return nil
	})
}

func copyProgram(t *testing.T, to string) {
	t.Helper()
	from, err := os.Open(filepath.Join(lab.Node.Payload, "nri-blkio"))
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	lab.MustMkdir(t, filepath.Dir(to))
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
