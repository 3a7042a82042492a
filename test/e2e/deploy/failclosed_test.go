package deploy

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/test/e2e/cgroup"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

// requiredPlugins has containerd's own validator refuse a container if a plugin is missing.
const requiredPlugins = "required-plugins.noderesource.dev"

// TestFailClosed verifies that, with both plugins required, no container of an annotated pod runs without its
// limits, whatever happens to the plugin. Other pods start, and annotated ones start again when the plugin
// returns.
func TestFailClosed(t *testing.T) {
	lab.NeedsContainerd(t, "of the node has nri 0.9.1, which validates no adjustments")
	if lab.Node.Engine == "containerd-1.7" {
		t.Skip("containerd 1.7 has no validation of adjustments")
	}
	requirePlugins(t)
	f := &failClosed{T: t, main: lab.StartPlugin(t), tries: 5}
	if *lab.Proof {
		f.tries = 200
	}
	validator := lab.Launch(t, "--only", "validator")
	validator.Await(t, lab.LogServing, 1)
	f.plain = lab.RunPod(t, "plain", nil)
	f.limited = lab.RunPod(t, "limited", lab.Annotations{
		lab.Limits + "containers": "/data wbps=1Mi", requiredPlugins: "[nri-blkio, nri-blkio-validator]",
	})
	f.recovers()
	f.during("killed", func() { f.main.Kill(t) }, func() { f.main = lab.StartPlugin(t) })
	f.during("stopped", func() { f.main.Signal(t, syscall.SIGSTOP) }, func() { f.main.Signal(t, syscall.SIGCONT) })
	starve := starve(t, f.main)
	f.during("starved", func() { starve("1000 1000000") }, func() { starve("max 1000000") })
	if *lab.Proof {
		f.flaps()
	}
	// The validator alone rejects containers without a decision of the plugin, also without the annotation.
	f.main.Kill(t)
	alone := lab.RunPod(t, "alone", lab.Limited)
	if _, err := alone.Create(t.Context(), lab.Sleeper("c", "/data", "ext4")); err == nil || !strings.Contains(err.Error(), "nri-blkio-validator") {
		t.Errorf("create a container without the plugin: error %v, want a rejection by nri-blkio-validator", err)
	}
	// Without the validator, and after a start of the runtime, it is containerd that refuses.
	f.main = lab.StartPlugin(t)
	validator.Kill(t)
	if *lab.Proof {
		f.during("the validator killed", func() {}, func() {
			validator = lab.Launch(t, "--only", "validator")
			validator.Await(t, lab.LogServing, 1)
		})
		validator.Kill(t)
	}
	log := startUnit(t, "nri-blkio-validator")
	lab.Eventually(t, "the validator's unit serves", logHas(log, lab.LogServing))
	wantQuiet(t, log)
	f.during("the runtime restarted", func() {
		f.main.Kill(t)
		lab.RestartRuntime(t)
	}, func() { f.main = lab.StartPlugin(t) })
}

// failClosed is a node with both plugins, and a pod that requires them.
type failClosed struct {
	*testing.T
	main           *lab.Instance
	limited, plain lab.PodOf
	tries, created int
}

// during creates containers while something is wrong, and waits until it is well again.
func (f *failClosed) during(what string, begin, end func()) {
	f.Helper()
	begin()
	refused, limited := 0, 0
	var took, others []time.Duration
	for i := range f.tries {
		began := time.Now()
		if f.try() != nil {
			refused++
		} else {
			limited++
		}
		took = append(took, time.Since(began))
		if i%5 == 0 {
			began = time.Now()
			f.startsPlain(what)
			others = append(others, time.Since(began))
		}
	}
	end()
	began := time.Now()
	f.recovers()
	f.Logf("%s: %d containers refused, %d limited; %s for a refusal, %s for a container of another pod; limited again after %v",
		what, refused, limited, spread(took), spread(others), time.Since(began).Round(10*time.Millisecond))
	if what != "starved" && limited > 0 { // starved, the plugin may answer in time
		f.Errorf("%s: %d containers of the annotated pod were created, want none", what, limited)
	}
}

// try creates and starts a container of the pod that requires the plugins. It returns
// why it was refused, and fails the test if the container runs without its limits.
func (f *failClosed) try() error {
	f.Helper()
	f.created++
	k, err := f.limited.Create(f.Context(), lab.Sleeper("c"+strconv.Itoa(f.created), "/data", "ext4"))
	if err != nil {
		if !strings.Contains(err.Error(), "nri-blkio") {
			f.Errorf("the creation failed with an error that does not name nri-blkio: %v", err)
		}
		return err
	}
	if err := k.Start(f.Context()); err != nil {
		f.Error(err)
	}
	if err := lab.CheckIOMax(k.Cgroup, lab.LimitedDisk); err != nil {
		f.Errorf("a container of the annotated pod runs without its limits: %v", err)
	}
	if err := k.Remove(f.Context()); err != nil {
		f.Error(err)
	}
	return nil
}

func (f *failClosed) recovers() {
	f.Helper()
	lab.Eventually(f.T, "a container of the pod is limited", f.try)
}

// startsPlain starts a container of a pod without annotations.
func (f *failClosed) startsPlain(what string) {
	f.Helper()
	f.created++
	k, err := f.plain.Run(f.Context(), lab.Sleeper("c"+strconv.Itoa(f.created)))
	if err != nil {
		f.Errorf("%s: a container of a pod without annotations does not start: %v", what, err)
		return
	}
	if err := k.Remove(f.Context()); err != nil {
		f.Errorf("%s: a container of a pod without annotations cannot be removed: %v", what, err)
	}
}

// flaps creates containers while the plugin is killed and started again and again.
func (f *failClosed) flaps() {
	f.Helper()
	end, ended := make(chan struct{}), make(chan int)
	go func() {
		kills := 0
		for {
			f.main.Kill(f.T)
			kills++
			f.main = lab.Launch(f.T)
			select {
			case <-end:
				ended <- kills
				return
			case <-time.After(rand.N(4 * time.Second)):
			}
		}
	}()
	refused := 0
	for range f.tries {
		if f.try() != nil {
			refused++
		}
	}
	close(end)
	f.Logf("killed %d times meanwhile: %d of %d containers refused, the others limited", <-ended, refused, f.tries)
	f.recovers()
}

// spread returns the text of the median and of the largest of some times.
func spread(all []time.Duration) string {
	slices.Sort(all)
	return fmt.Sprintf("%v (at most %v)", all[len(all)/2].Round(time.Millisecond), all[len(all)-1].Round(time.Millisecond))
}

// requirePlugins switches containerd's own validator on for the time of the test, with
// timeouts that are nearly the default.
func requirePlugins(t *testing.T) {
	t.Helper()
	before := lab.ReadConfig(t)
	text := strings.Replace(before, `plugin_request_timeout = "`+lab.RequestTimeout+`"`, `plugin_request_timeout = "3s"`, 1)
	t.Cleanup(func() { lab.ConfigureRuntime(t, before) })
	lab.ConfigureRuntime(t, text+"\n[plugins.'io.containerd.nri.v1.nri'.default_validator]\n  enable = true\n")
}

// starve puts a process into a cgroup, and returns what sets the CPU time that it gets.
func starve(t *testing.T, p *lab.Instance) func(max string) {
	t.Helper()
	dir := filepath.Join(cgroup.Root, "e2e-starved")
	pid := strconv.Itoa(p.Cmd.Process.Pid)
	err := errors.Join(
		os.WriteFile(filepath.Join(cgroup.Root, "cgroup.subtree_control"), []byte("+cpu"), 0),
		os.Mkdir(dir, 0o755),
		os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(pid), 0),
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Kill(t)
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
	})
	return func(most string) {
		if err := os.WriteFile(filepath.Join(dir, "cpu.max"), []byte(most), 0); err != nil {
			t.Fatal(err)
		}
	}
}
