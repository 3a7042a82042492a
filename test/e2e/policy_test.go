package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/test/e2e/cgroup"
	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
	"github.com/nri-blkio/nri-blkio/test/e2e/noise"
)

const policyHead = noise.PolicyHead

// policyFile writes a node policy.
func policyFile(t *testing.T, body string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "policy.yaml")
	writePolicy(t, file, body)
	return file
}

func writePolicy(t *testing.T, file, body string) {
	t.Helper()
	writeFile(t, file, policyHead+body)
}

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
	file := policyFile(t, "mode: observe\n")
	p := startPlugin(t, "--policy", file)
	pod := runPod(t, "pod", annotations{
		limits + "container.c":       "/data wbps=1Mi; rootfs wiops=100",
		limits + "container.refused": "/data wpbs=1Mi",
		weight + "container.c":       "50",
		limits + "pod-total":         "/data wbps=2Mi",
	})
	c := pod.run(sleeper("c", "/data", "ext4"))
	refused := pod.run(sleeper("refused", "/data", "ext4"))
	staysIOMax(t, c.Cgroup, nil)
	wantIOMax(t, refused.Cgroup, nil)
	wantIOMax(t, pod.Cgroup, nil)
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
	writePolicy(t, file, "mode: enforce\n")
	p.await(t, logReloaded, 1)
	awaitIOMax(t, c.Cgroup, disks{"vda": "wiops=100", "vdb": "wbps=1048576"})
	awaitIOMax(t, pod.Cgroup, disks{"vdb": "wbps=2097152"})
	writePolicy(t, file, "mode: observe\n")
	p.await(t, logReloaded, 2)
	awaitIOMax(t, c.Cgroup, nil)
	awaitIOMax(t, pod.Cgroup, nil)
}

// TestPolicyReload verifies that a valid new policy takes effect without a restart, that an invalid one does
// not, and that running containers keep their limits.
func TestPolicyReload(t *testing.T) {
	file := policyFile(t, "floors: {bps: 64Ki}\n")
	p := startPlugin(t, "--policy", file)
	pod := runPod(t, "pod", limited)
	before := pod.run(sleeper("before", "/data", "ext4"))

	writePolicy(t, file, "floors: {bps: 2Mi}\n")
	p.await(t, logReloaded, 1)
	const want = `entry 1 "/data wbps=1Mi": wbps=1Mi is under this node's floor (write at least 2Mi)`
	wantRefusal(t, pod, "low", limits+"containers", want)
	eventually(t, "the record of the running container has the refusal", func() error {
		if r := readRecord(t, before.Cgroup); !strings.Contains(r.Error, want) {
			return fmt.Errorf("the record is %+v", r)
		}
		return nil
	})
	wantIOMax(t, before.Cgroup, limitedDisk)
	wantIOMax(t, pod.Cgroup, limitedDisk)

	writePolicy(t, file, "floor: {bps: 64Ki}\n")
	p.await(t, logRefused, 1)
	wantRefusal(t, pod, "low", limits+"containers", want)

	writePolicy(t, file, "onError: {invalid: ignore, unenforceable: ignore}\n")
	p.await(t, logReloaded, 2)
	wantIOMax(t, pod.run(sleeper("after", "/data", "ext4")).Cgroup, limitedDisk)
	wantIOMax(t, before.Cgroup, limitedDisk)
}

// TestIgnore verifies that, if the policy ignores invalid annotations, a container with a mistake in one
// starts. Its valid entries are enforced, and the record has the error.
func TestIgnore(t *testing.T) {
	startPlugin(t, "--policy", policyFile(t, "onError: {invalid: ignore, unenforceable: ignore}\n"))
	pod := runPod(t, "pod", annotations{
		limits + "container.invalid":       "/data wbps=1Mi; rootfs wpbs=1Mi",
		limits + "container.unenforceable": "/mem wbps=1Mi; /data wbps=1Mi",
	})
	for _, name := range []string{"invalid", "unenforceable"} {
		k := pod.run(sleeper(name, "/data", "ext4", "/mem", "tmpfs"))
		wantIOMax(t, k.Cgroup, limitedDisk)
		if r := readRecord(t, k.Cgroup); !strings.HasPrefix(r.Error, "nri-blkio: "+limits+"container."+name+": entry ") {
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
	file := policyFile(t, bounded)
	p := startPlugin(t, "--policy", file)
	in := func(name, namespace string, a annotations) podOf {
		return runPodOf(t, name, cri.PodConfig{Namespace: namespace, Labels: map[string]string{"tier": "batch"}, Annotations: a})
	}
	batch, other := in("batch", "batch-1", nil), in("other", "web", nil)
	limitedTo := func(rate string) disks { return disks{"vda": "wbps=" + rate, "vdb": "wbps=" + rate} }
	c, free := batch.run(sleeper("c", "/data", "ext4")), other.run(sleeper("c", "/data", "ext4"))
	wantIOMax(t, c.Cgroup, limitedTo("2097152"))
	wantIOMax(t, free.Cgroup, nil)
	awaitIOMax(t, batch.Cgroup, limitedTo("2097152"))
	if out, err := command(t, "status", "--pod", "batch-1/"+batch.Name); err != nil || !strings.Contains(out, "rule batch, class bronze") {
		t.Errorf("status does not name the rule: %v\n%s", err, out)
	}

	over := in("over", "batch-1", annotations{limits + "containers": "* wbps=5Mi"})
	wantRefusal(t, over, "c", limits+"containers", `entry 1 "* wbps=5Mi": wbps=5Mi is above the bound (write at most 3Mi, bounds.max of rule batch)`)

	writePolicy(t, file, strings.NewReplacer("class: bronze", "class: silver", `"batch-*"`, `"batch-*", web`).Replace(bounded))
	p.await(t, logReloaded, 1)
	awaitIOMax(t, c.Cgroup, limitedTo("4194304"))
	awaitIOMax(t, free.Cgroup, limitedTo("4194304")) // a pod that the plugin did not know
	awaitIOMax(t, other.Cgroup, limitedTo("4194304"))
	writePolicy(t, file, "mode: enforce\n")
	p.await(t, logReloaded, 2)
	awaitIOMax(t, c.Cgroup, nil)
	awaitIOMax(t, free.Cgroup, nil)
}
