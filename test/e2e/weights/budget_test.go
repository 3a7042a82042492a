package weights

import (
	"fmt"
	"regexp"
	"testing"

	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

// TestWeightBudgets verifies that twelve pods of one tenant and one pod of another share a disk evenly under equal budgets, in all QoS
// classes and without a weight of their own. Without budgets the twelve would get 92 %.
func TestWeightBudgets(t *testing.T) {
	const pods = 12
	b := newSlowBench(t, sharedDisk)
	lab.StartPlugin(t, "--policy", lab.PolicyFile(t, weightsPolicy+"budgets: [{namespaces: ['tenant-*'], weight: 100}]\n"))
	b.awaitCost(true)
	var busy []string
	for i := range pods + 1 {
		tenant := "tenant-a"
		if i == pods {
			tenant = "tenant-b"
		}
		pod := lab.RunPodOf(t, fmt.Sprint("busy", i), cri.PodConfig{Namespace: tenant, QoS: []string{cri.BestEffort, cri.Burstable, cri.Guaranteed}[i%3]})
		k := pod.MustRun(cri.ContainerConfig{Name: "c", Args: []string{"sleep"}, Mounts: []cri.Mount{{Host: b.dir, Path: "/data"}}})
		busy = append(busy, k.Cgroup)
	}
	b.fio("--rw=randread", "--direct=1", "--runtime=1") // makes the file
	scaled := regexp.MustCompile(`tenant-a +` + sharedDisk + ` +weight +1200 +100 +12 +scaled to 8\.3%`)
	err := b.together(busy, func(rates []float64) error {
		many := 0.0
		for _, rate := range rates[:pods] {
			many += rate
		}
		if sum := many + rates[pods]; sum < 180 {
			return fmt.Errorf("the pods read %.0f/s together, want at least 180 of the model's 200", sum)
		}
		out, err := lab.Command(t, "status")
		if err == nil && !scaled.MatchString(out) {
			err = fmt.Errorf("status has no line %q:\n%s", scaled, out)
		}
		if err != nil {
			return err
		}
		return fitShares([]float64{many, rates[pods]}, 0.5, 0.5)
	}, "--rw=randread", "--direct=1", "--numjobs=4", "--thread")
	if err != nil {
		t.Errorf("shares of %d pods of one tenant, and of one pod of another: %v", pods, err)
	}
}
