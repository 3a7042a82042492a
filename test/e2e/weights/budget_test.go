package weights

import (
	"fmt"
	"math"
	"regexp"
	"testing"

	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

// TestWeightBudgets verifies that twelve pods of one tenant and one pod of another share a disk evenly under equal budgets, in all QoS
// classes and without a weight of their own. Without budgets the twelve would get 92 %.
//
//e2e:proof
func TestWeightBudgets(t *testing.T) {
	const pods = 12
	b := newSlowBench(t, sharedDisk)
	lab.StartPlugin(t, "--policy", lab.PolicyFile(t, weightsPolicy+"budgets: [{namespaces: ['tenant-*'], weight: 100}]\n"))
	b.awaitCost(true)
	busy := b.tenants(pods, "tenant-a", "tenant-b")
	err := b.together(busy, func(rates []float64) error {
		if err := b.budgetIs(`tenant-a +` + sharedDisk + ` +weight +1200 +100 +12 +scaled to 8\.3%`); err != nil {
			return err
		}
		many, err := manyAndAll(rates, pods)
		if err != nil {
			return err
		}
		return fitShares([]float64{many, rates[pods]}, 0.5, 0.5)
	}, "--rw=randread", "--direct=1", "--numjobs=4", "--thread")
	if err != nil {
		t.Errorf("shares of %d pods of one tenant, and of one pod of another: %v", pods, err)
	}
}

// TestGuarantee verifies that a namespace or a class with one pod has what it is guaranteed of a disk, within three points, beside ten pods
// of another namespace and a process outside pods. Without the guarantee it would get 8 %. The guarantee of the class is that of the pod,
// not the one of its namespace.
//
//e2e:proof
func TestGuarantee(t *testing.T) {
	for group, promise := range map[string]string{
		"gold":       "budgets: [{namespaces: [gold], guarantee: 40%}]\n",
		"class/fast": "classes: {fast: {guarantee: 40%}}\nrules: [{name: fast, match: {namespaces: [gold]}, class: fast}]\nbudgets: [{namespaces: [gold], guarantee: 10%}]\n",
	} {
		t.Run(group, func(t *testing.T) { guarantees(t, group, promise) })
	}
}

// guarantees verifies a policy that guarantees 40 % to a group.
func guarantees(t *testing.T, group, promise string) {
	t.Helper()
	const pods = 10
	b := newSlowBench(t, sharedDisk)
	lab.StartPlugin(t, "--policy", lab.PolicyFile(t, weightsPolicy+"reserve: {system: 10%}\n"+promise))
	b.awaitCost(true)
	busy := append(b.tenants(pods, "tenant-a", "gold"), b.victim.Name)
	err := b.together(busy, func(rates []float64) error {
		if err := b.budgetIs(group + ` +` + sharedDisk + ` +guarantee +40% +40% +1 +scaled to 800\.0%`); err != nil {
			return err
		}
		many, err := manyAndAll(rates, pods)
		gold, outside := rates[pods], rates[pods+1]
		all := many + gold + outside
		b.Logf("parts of the disk: guaranteed %.1f %%, ten pods %.1f %%, outside pods %.1f %%", 100*gold/all, 100*many/all, 100*outside/all)
		if err == nil && math.Abs(gold/all-0.4) > 0.03 {
			err = fmt.Errorf("the group has %.1f %% of the disk, want 40 %% within three points", 100*gold/all)
		}
		return err
	}, "--rw=randread", "--direct=1", "--numjobs=4", "--thread")
	if err != nil {
		t.Errorf("guarantee beside %d pods of another namespace, and a process outside pods: %v", pods, err)
	}
}

// tenants runs idle pods of a namespace, and one of another namespace, in all QoS classes. It returns the cgroups of their containers.
func (b *slowBench) tenants(pods int, many, one string) (cgroups []string) {
	b.Helper()
	for i := range pods + 1 {
		namespace := many
		if i == pods {
			namespace = one
		}
		pod := lab.RunPodOf(b.T, fmt.Sprint("busy", i), cri.PodConfig{Namespace: namespace, QoS: []string{cri.BestEffort, cri.Burstable, cri.Guaranteed}[i%3]})
		k := pod.MustRun(cri.ContainerConfig{Name: "c", Args: []string{"sleep"}, Mounts: []cri.Mount{{Host: b.dir, Path: "/data"}}})
		cgroups = append(cgroups, k.Cgroup)
	}
	b.fio("--rw=randread", "--direct=1", "--runtime=1") // makes the file
	return cgroups
}

// manyAndAll returns the sum of the first rates. It returns an error if all together are less than io.cost's model allows.
func manyAndAll(rates []float64, first int) (many float64, err error) {
	all := 0.0
	for i, rate := range rates {
		if all += rate; i < first {
			many = all
		}
	}
	if all < 180 {
		err = fmt.Errorf("all read %.0f/s together, want at least 180 of the model's 200", all)
	}
	return many, err
}

// budgetIs returns an error unless status has a line.
func (b *slowBench) budgetIs(line string) error {
	out, err := lab.Command(b.T, "status")
	if err == nil && !regexp.MustCompile(line).MatchString(out) {
		err = fmt.Errorf("status has no line %q:\n%s", line, out)
	}
	return err
}
