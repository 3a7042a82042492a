package limits

import (
	"fmt"
	"regexp"
	"testing"

	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

// TestBudget verifies that a container that would exceed the budget of its namespace is rejected, and is
// created once there is room. A restart of the plugin, the recreation of a container, and a new policy do not
// affect running containers.
func TestBudget(t *testing.T) {
	budget := func(rate string) string {
		return `budgets: [{namespaces: ["tenant-*"], limits: ["* wbps=` + rate + `"]}]` + "\n"
	}
	file := lab.PolicyFile(t, budget("6Mi"))
	p := lab.StartPlugin(t, "--policy", file)
	in := func(name, namespace string, a lab.Annotations) lab.PodOf {
		return lab.RunPodOf(t, name, cri.PodConfig{Namespace: namespace, Annotations: a})
	}
	each := lab.Annotations{lab.Limits + "containers": "* wbps=4Mi"}
	config := lab.Sleeper("c", "/data", "ext4")
	limited := lab.Disks{"vda": "wbps=4194304", "vdb": "wbps=4194304"}
	first, next := in("first", "tenant-1", each), in("next", "tenant-1", each)
	k := first.MustRun(config)
	const full = "wbps=4Mi on disk vda exceeds the budget of namespace tenant-1: 4Mi of 6Mi are granted to 1 pod (wait for room, or write at most 2Mi)"
	lab.WantRefusal(t, next, "c", lab.Limits+"containers", full)
	lab.WantRefusal(t, in("plain", "tenant-1", nil), "c", lab.Limits+"containers",
		`wbps of * needs a limit: disk vda has none, and namespace tenant-1 has a budget (write for example "* wbps=768Ki")`)
	in("other", "tenant-2", each).MustRun(config) // has a budget of its own
	eventuallyStatus(t, `tenant-1 +vda +wbps +4Mi +6Mi +1 +ok`)
	whole := in("whole", "tenant-1", lab.Annotations{lab.Limits + "pod-total": "* wbps=2Mi"})
	whole.MustRun(config)
	const none = "wbps=4Mi on disk vda exceeds the budget of namespace tenant-1: 6Mi of 6Mi are granted to 2 pods (wait for room)"
	lab.WantRefusal(t, next, "c", lab.Limits+"containers", none)

	p.Kill(t)
	p = lab.StartPlugin(t, "--policy", file)
	lab.WantRefusal(t, next, "c", lab.Limits+"containers", none)

	if err := k.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	k = first.MustRun(config)
	lab.AwaitIOMax(t, k.Cgroup, limited)
	lab.WantRefusal(t, next, "c", lab.Limits+"containers", none)

	lab.WritePolicy(t, file, budget("3Mi"))
	p.Await(t, lab.LogReloaded, 1)
	lab.WantRefusal(t, next, "c", lab.Limits+"containers", "wbps=4Mi on disk vda exceeds the budget of namespace tenant-1: 3Mi (write at most 3Mi)")
	lab.StaysIOMax(t, k.Cgroup, limited)
	eventuallyStatus(t, `tenant-1 +vda +wbps +6Mi +3Mi +2 +over the budget`)
	lab.WritePolicy(t, file, budget("6Mi"))
	p.Await(t, lab.LogReloaded, 2)

	if err := k.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	lab.Eventually(t, "there is room for the next container", func() (err error) { // the kubelet tries again too
		k, err = next.Run(t.Context(), config)
		return err
	})
	lab.AwaitIOMax(t, k.Cgroup, limited)
}

// eventuallyStatus waits until status has a line.
func eventuallyStatus(t *testing.T, line string) {
	t.Helper()
	lab.Eventually(t, "status has the line "+line, func() error {
		out, err := lab.Command(t, "status")
		if err == nil && !regexp.MustCompile("(?m)^"+line+"$").MatchString(out) {
			return fmt.Errorf("status is\n%s", out)
		}
		return err
	})
}
