package e2e

import (
	"fmt"
	"regexp"
	"testing"

	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
)

// TestBudget verifies that a container that would exceed the budget of its namespace is rejected, and is
// created once there is room. A restart of the plugin, the recreation of a container, and a new policy do not
// affect running containers.
func TestBudget(t *testing.T) {
	budget := func(rate string) string {
		return `budgets: [{namespaces: ["tenant-*"], limits: ["* wbps=` + rate + `"]}]` + "\n"
	}
	file := policyFile(t, budget("6Mi"))
	p := startPlugin(t, "--policy", file)
	in := func(name, namespace string, a annotations) podOf {
		return runPodOf(t, name, cri.PodConfig{Namespace: namespace, Annotations: a})
	}
	each := annotations{limits + "containers": "* wbps=4Mi"}
	config := sleeper("c", "/data", "ext4")
	limited := disks{"vda": "wbps=4194304", "vdb": "wbps=4194304"}
	first, next := in("first", "tenant-1", each), in("next", "tenant-1", each)
	k := first.run(config)
	const full = "wbps=4Mi on disk vda exceeds the budget of namespace tenant-1: 4Mi of 6Mi are granted to 1 pod (wait for room, or write at most 2Mi)"
	wantRefusal(t, next, "c", limits+"containers", full)
	wantRefusal(t, in("plain", "tenant-1", nil), "c", limits+"containers",
		`wbps of * needs a limit: disk vda has none, and namespace tenant-1 has a budget (write for example "* wbps=768Ki")`)
	in("other", "tenant-2", each).run(config) // has a budget of its own
	eventuallyStatus(t, `tenant-1 +vda +wbps +4Mi +6Mi +1 +ok`)
	whole := in("whole", "tenant-1", annotations{limits + "pod-total": "* wbps=2Mi"})
	whole.run(config)
	const none = "wbps=4Mi on disk vda exceeds the budget of namespace tenant-1: 6Mi of 6Mi are granted to 2 pods (wait for room)"
	wantRefusal(t, next, "c", limits+"containers", none)

	p.kill(t)
	p = startPlugin(t, "--policy", file)
	wantRefusal(t, next, "c", limits+"containers", none)

	if err := k.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	k = first.run(config)
	awaitIOMax(t, k.Cgroup, limited)
	wantRefusal(t, next, "c", limits+"containers", none)

	writePolicy(t, file, budget("3Mi"))
	p.await(t, logReloaded, 1)
	wantRefusal(t, next, "c", limits+"containers", "wbps=4Mi on disk vda exceeds the budget of namespace tenant-1: 3Mi (write at most 3Mi)")
	staysIOMax(t, k.Cgroup, limited)
	eventuallyStatus(t, `tenant-1 +vda +wbps +6Mi +3Mi +2 +over the budget`)
	writePolicy(t, file, budget("6Mi"))
	p.await(t, logReloaded, 2)

	if err := k.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "there is room for the next container", func() (err error) { // the kubelet tries again too
		k, err = next.Run(t.Context(), config)
		return err
	})
	awaitIOMax(t, k.Cgroup, limited)
}

// eventuallyStatus waits until status has a line.
func eventuallyStatus(t *testing.T, line string) {
	t.Helper()
	eventually(t, "status has the line "+line, func() error {
		out, err := command(t, "status")
		if err == nil && !regexp.MustCompile("(?m)^"+line+"$").MatchString(out) {
			return fmt.Errorf("status is\n%s", out)
		}
		return err
	})
}
