package deploy

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

// notKubelets is in the log, and in status, while the runtime at NRI's socket is not the kubelet's.
const notKubelets = "the runtime at NRI's socket is not the kubelet's"

const nriSocket = "/var/run/nri/nri.sock"

// TestOtherRuntime verifies that the plugin stays connected to the kubelet's runtime while another one takes the socket, that it
// reports within 30 s that the other one registered it, and that it is connected again once the kubelet's runtime has the socket.
//
//e2e:proof
func TestOtherRuntime(t *testing.T) {
	p := lab.StartPlugin(t)
	pod := lab.RunPod(t, "pod", lab.Limited)
	lab.WantIOMax(t, pod.MustRun(lab.Sleeper("first", "/data", "ext4")).Cgroup, lab.LimitedDisk)
	lab.Eventually(t, "connected", ready(t))

	other := startOtherRuntime(t)
	time.Sleep(30 * time.Second)
	if err := ready(t)(); err != nil {
		t.Errorf("beside another runtime: %v", err)
	}
	lab.WantIOMax(t, pod.MustRun(lab.Sleeper("second", "/data", "ext4")).Cgroup, lab.LimitedDisk)

	p.Kill(t)
	p = lab.StartPlugin(t)
	began := time.Now()
	lab.Within(t, 40*time.Second, "the other runtime is reported", func() error {
		if out, err := lab.Command(t, "status", "--ready=limits"); err == nil || !strings.Contains(out, notKubelets) {
			return errors.New(out)
		}
		return nil
	})
	t.Logf("reported after %v", time.Since(began))
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("reported after %v", took)
	}
	unlimited := pod.MustRun(lab.Sleeper("third", "/data", "ext4"))
	lab.WantIOMax(t, unlimited.Cgroup, lab.Disks{})

	lab.RestartRuntime(t)
	began = time.Now()
	lab.Eventually(t, "connected to the kubelet's runtime", ready(t))
	t.Logf("connected after %v", time.Since(began))
	lab.Eventually(t, "the container is limited late", func() error { return lab.CheckIOMax(unlimited.Cgroup, lab.LimitedDisk) })
	lab.WantIOMax(t, pod.MustRun(lab.Sleeper("fourth", "/data", "ext4")).Cgroup, lab.LimitedDisk)
	if n := p.Count(notKubelets); n != 1 {
		t.Errorf("the log has it %d times", n)
	}
	other()
}

// ready returns the answer of the readiness probe.
func ready(t *testing.T) func() error {
	return func() error {
		out, err := lab.Command(t, "status", "--ready=limits")
		if err != nil {
			err = errors.New(out)
		}
		return err
	}
}

// startOtherRuntime starts a second containerd with its CRI and NRI on, which takes NRI's socket. The function that it returns kills it,
// and so does the end of the test. A containerd that is not killed removes the socket at its end, also if another runtime owns it.
func startOtherRuntime(t *testing.T) (end func()) {
	t.Helper()
	before, err := os.Stat(nriSocket)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	config := filepath.Join(dir, "config.toml")
	lab.WriteFile(t, config, `version = 2
root = "`+dir+`/root"
state = "`+dir+`/state"
[grpc]
  address = "`+dir+`/c.sock"
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "/usr/lib/cni"
  conf_dir = "/etc/cni/net.d"
[plugins."io.containerd.nri.v1.nri"]
  disable = false
`)
	cmd := exec.Command("containerd", "--config", config)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	log := &lab.LogBuffer{}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end = func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill() // an error means that it is gone
			_ = cmd.Wait()
		}
	}
	t.Cleanup(func() {
		end()
		if t.Failed() {
			t.Logf("end of the log of the other runtime:\n%s", log.Tail())
		}
		lab.RestartRuntime(t)
	})
	lab.Eventually(t, "the other runtime has NRI's socket", func() error {
		if now, err := os.Stat(nriSocket); err != nil || os.SameFile(before, now) {
			return errors.Join(errors.New("it is still that of the kubelet's runtime"), err)
		}
		return nil
	})
	return end
}
