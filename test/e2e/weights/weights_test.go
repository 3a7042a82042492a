package weights

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/test/e2e/cgroup"
	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

// weightsPolicy lets pods have any weight, and gives io.cost a model of the shared disk that is
// less than it can do. So io.cost decides what each gets, and not the processors of the node.
const weightsPolicy = `bounds: {weight: {max: 10000}}
disks:
- match: {names: [` + sharedDisk + `]}
  model: {rbps: 60Mi, rseqiops: 200, rrandiops: 200, wbps: 60Mi, wseqiops: 200, wrandiops: 200}
`

// weighted runs a pod with a container that has the shared disk and does nothing. A weight of "" is
// none.
func (b *slowBench) weighted(name, qos, value string) *cri.Container {
	b.Helper()
	a := lab.Annotations{}
	if value != "" {
		a[lab.Weight+"containers"] = value
	}
	pod := lab.RunPodOf(b.T, name, cri.PodConfig{QoS: qos, Annotations: a})
	return pod.MustRun(cri.ContainerConfig{Name: "c", Args: []string{"sleep"}, Mounts: []cri.Mount{{Host: b.dir, Path: "/data"}}})
}

// costLine returns the shared disk's line in a file of io.cost, without the number; "" for none.
func (b *slowBench) costLine(file string) string {
	b.Helper()
	line, err := b.disk().CostLine(file)
	if err != nil {
		b.Fatal(err)
	}
	return line
}

// awaitCost waits until io.cost is enabled on the shared disk, or is not.
func (b *slowBench) awaitCost(enabled bool) {
	b.Helper()
	want := map[bool]string{true: "enable=1", false: "enable=0"}[enabled]
	lab.Eventually(b.T, "io.cost has "+want, func() error {
		if line := b.costLine("io.cost.qos"); !strings.HasPrefix(line, want) && (enabled || line != "") {
			return fmt.Errorf("io.cost.qos has %q, want %s", line, want)
		}
		return nil
	})
}

// disableCost disables io.cost on the shared disk. The plugin leaves it enabled when it ends, and
// for some time after the last pod with a weight.
func (b *slowBench) disableCost() {
	b.Helper()
	if !strings.HasPrefix(b.costLine("io.cost.qos"), "enable=1") {
		return
	}
	for _, file := range []string{"io.cost.qos", "io.cost.model"} {
		line := b.number + map[string]string{"io.cost.qos": " enable=0 ctrl=auto", "io.cost.model": " ctrl=auto"}[file]
		if err := os.WriteFile(filepath.Join(cgroup.Root, file), []byte(line), 0); err != nil {
			b.Error(err)
		}
	}
}

// TestFlatShares verifies that three busy pods in three QoS classes share a disk by their weights, beside idle
// pods in the same classes.
func TestFlatShares(t *testing.T) {
	b := newSlowBench(t, sharedDisk)
	lab.StartPlugin(t, "--policy", lab.PolicyFile(t, weightsPolicy))
	idle := 3
	if *lab.Proof {
		idle = 30
	}
	for i := range idle {
		b.weighted(fmt.Sprint("idle", i), []string{cri.BestEffort, cri.Burstable, cri.Guaranteed}[i%3], "1000")
	}
	busy := []string{
		b.weighted("one", cri.BestEffort, "").Cgroup,
		b.weighted("two", cri.Burstable, "200").Cgroup,
		b.weighted("three", cri.Guaranteed, "300").Cgroup,
	}
	b.awaitCost(true)
	b.fio("--rw=randread", "--direct=1", "--runtime=1") // makes the file
	err := b.together(busy, func(rates []float64) error {
		if sum := rates[0] + rates[1] + rates[2]; sum < 180 {
			return fmt.Errorf("the three pods read %.0f/s together, want at least 180 of the model's 200", sum)
		}
		return fitShares(rates, 1./6, 2./6, 3./6)
	}, "--rw=randread", "--direct=1", "--numjobs=4")
	if err != nil {
		t.Errorf("shares of weights 100, 200 and 300: %v", err)
	}
}

// fitShares returns an error unless rates are shares of their sum as wanted, within a tenth. A
// share of 0 may have what is left.
func fitShares(rates []float64, want ...float64) error {
	sum := 0.0
	for _, rate := range rates {
		sum += rate
	}
	for i, share := range want {
		if got := rates[i] / sum; share != 0 && math.Abs(got-share) > 0.1*share {
			return fmt.Errorf("cgroup %d gets %.1f %% of the reads, want %.1f %% within a tenth", i+1, 100*got, 100*share)
		}
	}
	return nil
}

// TestWeightsSetUp verifies that io.cost is enabled with the first container with a weight, stays enabled when
// the plugin ends, and is disabled after the last such container. Weights stay in force after changes by
// systemd, by the kubelet, and by an update of the container. Settings of other programs are unchanged.
func TestWeightsSetUp(t *testing.T) {
	b := newSlowBench(t, sharedDisk)
	p := lab.StartPlugin(t, "--policy", lab.PolicyFile(t, weightsPolicy))
	b.awaitCost(false)
	pod := lab.RunPodOf(t, "first", cri.PodConfig{QoS: cri.Burstable, Annotations: lab.Annotations{lab.Weight + "containers": "/data 500"}})
	k := pod.MustRun(cri.ContainerConfig{Name: "c", Args: []string{"sleep"}, Mounts: []cri.Mount{{Host: b.dir, Path: "/data"}}})
	b.awaitCost(true)
	if got := b.costLine("io.cost.model"); !strings.Contains(got, "ctrl=user") || !strings.Contains(got, "rrandiops=194") {
		t.Errorf("io.cost.model has %q, want ctrl=user and 97 %% of the policy's rrandiops=200", got)
	}
	b.await500(k.Cgroup)
	p.Signal(t, syscall.SIGTERM)
	p.Wait(t)
	lab.StartPlugin(t, "--policy", lab.PolicyFile(t, weightsPolicy))
	b.staysEnabled("a restart of the plugin")
	lab.Administer(t, "systemctl", "daemon-reload")
	b.await500(k.Cgroup)
	updateQOSClass(t, filepath.Dir(filepath.Dir(k.Cgroup)))
	b.await500(k.Cgroup)
	if err := k.Update(t.Context(), cri.Resources{CPUQuota: 50_000}); err != nil {
		t.Fatal(err)
	}
	lab.WantFile(t, k.Cgroup, "cpu.max", "50000 100000")
	b.staysEnabled("an update of the container") // meanwhile systemd has done what it was asked for
	b.await500(k.Cgroup)
	if err := pod.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.awaitCost(false)
	lab.Eventually(t, "io.cost has the kernel's model again", func() error { // it is written after io.cost.qos
		if got := b.costLine("io.cost.model"); got != "" && !strings.Contains(got, "ctrl=auto") {
			return fmt.Errorf("io.cost.model has %q, want ctrl=auto or no line", got)
		}
		return nil
	})
	lab.Eventually(t, "the weight of the QoS class is removed", func() error {
		slice, err := os.ReadFile(filepath.Join(cgroup.Root, filepath.Dir(filepath.Dir(k.Cgroup)), "io.weight"))
		if !errors.Is(err, os.ErrNotExist) && strings.TrimSpace(string(slice)) != "default 100" { // systemd removes the slice as well
			return fmt.Errorf("io.weight of the QoS class is %q (%w), want default 100", slice, err)
		}
		return nil
	})
}

// TestReserve verifies that processes outside pods get the reserved share of the disk although no pod has a
// weight.
func TestReserve(t *testing.T) {
	b := newSlowBench(t, sharedDisk)
	lab.StartPlugin(t, "--policy", lab.PolicyFile(t, weightsPolicy+"reserve: {system: 75%}\n"))
	b.awaitCost(true)
	busy := []string{b.weighted("one", cri.BestEffort, "").Cgroup, b.weighted("two", cri.Guaranteed, "").Cgroup, b.victim.Name}
	b.fio("--rw=randread", "--direct=1", "--runtime=1") // makes the file
	err := b.together(busy, func(rates []float64) error { return fitShares(rates, 0, 0, 0.75) }, "--rw=randread", "--direct=1", "--numjobs=4")
	if err != nil {
		t.Errorf("share of the reserve, which the third cgroup is in, outside pods: %v", err)
	}
}

// updateQOSClass does to the cgroup of a QoS class what the kubelet does when it starts, and each minute
// after that: it sets its CPU weight, by systemd unless it uses cgroupfs itself.
func updateQOSClass(t *testing.T, dir string) {
	t.Helper()
	if lab.Node.Driver == "cgroupfs" {
		if err := os.WriteFile(filepath.Join(cgroup.Root, dir, "cpu.weight"), []byte("100"), 0); err != nil {
			t.Fatal(err)
		}
		return
	}
	lab.Administer(t, "systemctl", "set-property", "--runtime", filepath.Base(dir), "CPUWeight=100")
}

// await500 waits until the weights of a container, of its pod and of its QoS class on the shared disk
// are 500.
func (b *slowBench) await500(container string) {
	b.Helper()
	pod := filepath.Dir(container)
	for _, dir := range []string{container, pod, filepath.Dir(pod)} {
		lab.Eventually(b.T, "the weight of "+dir, func() error {
			data, err := os.ReadFile(filepath.Join(cgroup.Root, dir, "io.weight"))
			if err != nil {
				return err
			}
			for line := range strings.Lines(string(data)) {
				if strings.TrimSpace(line) == b.number+" 500" {
					return nil
				}
			}
			return fmt.Errorf("io.weight is %q, want the line %s 500", data, b.number)
		})
	}
}

// staysEnabled fails the test if io.cost is disabled on the shared disk, or a weight on the way to
// the container is removed, within two passes.
func (b *slowBench) staysEnabled(after string) {
	b.Helper()
	var err error
	for end := time.Now().Add(2*lab.Resync + time.Second); time.Now().Before(end) && err == nil; time.Sleep(50 * time.Millisecond) {
		if line := b.costLine("io.cost.qos"); !strings.HasPrefix(line, "enable=1") {
			err = errors.New(line)
		}
	}
	if err != nil {
		b.Errorf("after %[2]s io.cost.qos has %[1]q, want enable=1", err, after)
	}
}
