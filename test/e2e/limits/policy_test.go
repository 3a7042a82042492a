package limits

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/test/e2e/cgroup"
	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

func readRecord(t *testing.T, dir string) *record.Record {
	t.Helper()
	text, err := cgroup.Dir(dir).Record()
	if err != nil {
		t.Fatal(err)
	}
	r, err := record.Parse([]byte(text))
	if err != nil {
		t.Fatalf("record %q on %s: %v", text, dir, err)
	}
	return r
}

// TestObserve verifies that mode observe records the decisions and changes nothing.
func TestObserve(t *testing.T) {
	file := lab.PolicyFile(t, "mode: observe\n")
	p := lab.StartPlugin(t, "--policy", file)
	pod := lab.RunPod(t, "pod", lab.Annotations{
		lab.Limits + "container.c":       "/data wbps=1Mi; rootfs wiops=100",
		lab.Limits + "container.refused": "/data wpbs=1Mi",
		lab.Weight + "container.c":       "50",
		lab.Limits + "pod-total":         "/data wbps=2Mi",
	})
	c := pod.MustRun(lab.Sleeper("c", "/data", "ext4"))
	refused := pod.MustRun(lab.Sleeper("refused", "/data", "ext4"))
	lab.StaysIOMax(t, c.Cgroup, nil)
	lab.WantIOMax(t, refused.Cgroup, nil)
	lab.WantIOMax(t, pod.Cgroup, nil)
	if w, err := cgroup.Dir(c.Cgroup).Weight(); err != nil || w == 50 {
		t.Errorf("io.weight is %d (%v), want it untouched", w, err)
	}
	if r := readRecord(t, c.Cgroup); !r.Observed || len(r.Settings) != 3 || r.Container != "c" {
		t.Errorf("record %+v, want two limits and the weight of c, observed", r)
	}
	if r := readRecord(t, refused.Cgroup); !r.Observed || !strings.Contains(r.Error, `did you mean "wbps"?`) {
		t.Errorf("record %+v, want an observed error", r)
	}

	// The pods that run get what was decided, and lose it again.
	lab.WritePolicy(t, file, "mode: enforce\n")
	p.Await(t, lab.LogReloaded, 1)
	lab.AwaitIOMax(t, c.Cgroup, lab.Disks{"vda": "wiops=100", "vdb": "wbps=1048576"})
	lab.AwaitIOMax(t, pod.Cgroup, lab.Disks{"vdb": "wbps=2097152"})
	lab.WritePolicy(t, file, "mode: observe\n")
	p.Await(t, lab.LogReloaded, 2)
	lab.AwaitIOMax(t, c.Cgroup, nil)
	lab.AwaitIOMax(t, pod.Cgroup, nil)
}

// TestPolicyReload verifies that a valid new policy takes effect without a restart, that an invalid one does
// not, and that running containers keep their limits.
func TestPolicyReload(t *testing.T) {
	file := lab.PolicyFile(t, "floors: {bps: 64Ki}\n")
	p := lab.StartPlugin(t, "--policy", file)
	pod := lab.RunPod(t, "pod", lab.Limited)
	before := pod.MustRun(lab.Sleeper("before", "/data", "ext4"))

	lab.WritePolicy(t, file, "floors: {bps: 2Mi}\n")
	p.Await(t, lab.LogReloaded, 1)
	const want = `entry 1 "/data wbps=1Mi": wbps=1Mi is under this node's floor (write at least 2Mi)`
	lab.WantRefusal(t, pod, "low", lab.Limits+"containers", want)
	lab.Eventually(t, "the record of the running container has the refusal", func() error {
		if r := readRecord(t, before.Cgroup); !strings.Contains(r.Error, want) {
			return fmt.Errorf("the record is %+v", r)
		}
		return nil
	})
	lab.WantIOMax(t, before.Cgroup, lab.LimitedDisk)
	lab.WantIOMax(t, pod.Cgroup, lab.LimitedDisk)

	lab.WritePolicy(t, file, "floor: {bps: 64Ki}\n")
	p.Await(t, lab.LogRefused, 1)
	lab.WantRefusal(t, pod, "low", lab.Limits+"containers", want)

	lab.WritePolicy(t, file, "onError: {invalid: ignore, unenforceable: ignore}\n")
	p.Await(t, lab.LogReloaded, 2)
	lab.WantIOMax(t, pod.MustRun(lab.Sleeper("after", "/data", "ext4")).Cgroup, lab.LimitedDisk)
	lab.WantIOMax(t, before.Cgroup, lab.LimitedDisk)
}

// TestIgnore verifies that, if the policy ignores invalid annotations, a container with a mistake in one
// starts. Its valid entries are enforced, and the record has the error.
func TestIgnore(t *testing.T) {
	lab.StartPlugin(t, "--policy", lab.PolicyFile(t, "onError: {invalid: ignore, unenforceable: ignore}\n"))
	pod := lab.RunPod(t, "pod", lab.Annotations{
		lab.Limits + "container.invalid":       "/data wbps=1Mi; rootfs wpbs=1Mi",
		lab.Limits + "container.unenforceable": "/mem wbps=1Mi; /data wbps=1Mi",
	})
	for _, name := range []string{"invalid", "unenforceable"} {
		k := pod.MustRun(lab.Sleeper(name, "/data", "ext4", "/mem", "tmpfs"))
		lab.WantIOMax(t, k.Cgroup, lab.LimitedDisk)
		if r := readRecord(t, k.Cgroup); !strings.HasPrefix(r.Error, "nri-blkio: "+lab.Limits+"container."+name+": entry ") {
			t.Errorf("record of container %s has the error %q, want one about its annotation", name, r.Error)
		}
	}
}

// TestClasses verifies that a rule limits the pods of a namespace without annotations from their first
// instruction on, that a reload changes the limits of running pods, and that the bounds of the rule reject an
// annotation.
func TestClasses(t *testing.T) {
	const bounded = `classes: {bronze: {limits: ["* wbps=2Mi"]}, silver: {limits: ["* wbps=4Mi"]}}
rules:
- {name: batch, match: {namespaces: ["batch-*"], podSelector: {matchLabels: {tier: batch}}, qos: [BestEffort]}, class: bronze, bounds: {max: ["* wbps=3Mi"]}}
`
	file := lab.PolicyFile(t, bounded)
	p := lab.StartPlugin(t, "--policy", file)
	in := func(name, namespace string, a lab.Annotations) lab.PodOf {
		return lab.RunPodOf(t, name, cri.PodConfig{Namespace: namespace, Labels: map[string]string{"tier": "batch"}, Annotations: a})
	}
	batch, other := in("batch", "batch-1", nil), in("other", "web", nil)
	limitedTo := func(rate string) lab.Disks { return lab.Disks{"vda": "wbps=" + rate, "vdb": "wbps=" + rate} }
	c, free := batch.MustRun(lab.Sleeper("c", "/data", "ext4")), other.MustRun(lab.Sleeper("c", "/data", "ext4"))
	lab.WantIOMax(t, c.Cgroup, limitedTo("2097152"))
	lab.WantIOMax(t, free.Cgroup, nil)
	lab.AwaitIOMax(t, batch.Cgroup, limitedTo("2097152"))
	if out, err := lab.Command(t, "status", "-o", "wide", "--pod", "batch-1/"+batch.Name); err != nil || !strings.Contains(out, "rule batch, class bronze") {
		t.Errorf("status does not name the rule: %v\n%s", err, out)
	}

	over := in("over", "batch-1", lab.Annotations{lab.Limits + "containers": "* wbps=5Mi"})
	lab.WantRefusal(t, over, "c", lab.Limits+"containers", `entry 1 "* wbps=5Mi": wbps=5Mi is above the bound (write at most 3Mi, bounds.max of rule batch)`)

	lab.WritePolicy(t, file, strings.NewReplacer("class: bronze", "class: silver", `"batch-*"`, `"batch-*", web`).Replace(bounded))
	p.Await(t, lab.LogReloaded, 1)
	lab.AwaitIOMax(t, c.Cgroup, limitedTo("4194304"))
	lab.AwaitIOMax(t, free.Cgroup, limitedTo("4194304")) // a pod that the plugin did not know
	lab.AwaitIOMax(t, other.Cgroup, limitedTo("4194304"))
	lab.WritePolicy(t, file, "mode: enforce\n")
	p.Await(t, lab.LogReloaded, 2)
	lab.AwaitIOMax(t, c.Cgroup, nil)
	lab.AwaitIOMax(t, free.Cgroup, nil)
}
