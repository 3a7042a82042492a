package limits

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/test/e2e/cgroup"
	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

// blockioPod chooses a blockio class of the runtime for all containers of a pod.
const blockioPod = "blockio.resources.beta.kubernetes.io/pod"

// withClasses returns the runtime's configuration with a file of classes.
func withClasses(config, classes string) string {
	const ofCRIO = "[crio.runtime]\n"
	option := fmt.Sprintf("blockio_config_file = %q\n", classes)
	if cri.IsCRIO() {
		return strings.Replace(config, ofCRIO, ofCRIO+option, 1)
	}
	return config + "\n[plugins.\"io.containerd.service.v1.tasks-service\"]\n" + option
}

// TestBlockioClasses follows docs/how-to/migrate-from-blockio.md with a runtime that has a file of classes. The same classes in
// the policy limit the disks that a container uses as the runtime did, beside the runtime's classes and without them.
func TestBlockioClasses(t *testing.T) {
	const class = "rbps=5000000 wbps=1048576"
	classes := filepath.Join(t.TempDir(), "blockio.yaml")
	lab.WriteFile(t, classes, "Classes:\n  bronze:\n  - Devices: [\"/dev/vd[a-c]\"]\n    ThrottleReadBps: 5M\n    ThrottleWriteBps: 1Mi\n")
	original := lab.ReadConfig(t)
	t.Cleanup(func() { lab.ConfigureRuntime(t, original) })
	lab.ConfigureRuntime(t, withClasses(original, classes))
	pod := lab.RunPod(t, "pod", lab.Annotations{blockioPod: "bronze", "class.blkio.noderesource.dev/containers": "bronze"})
	byRuntime := pod.MustRun(lab.Sleeper("runtime", "/data", "ext4"))
	ofClass := lab.Disks{"vda": class, "vdb": class, "vdc": class}
	lab.WantIOMax(t, cgroup.OfProcesses(byRuntime.Cgroup), ofClass)

	const policy = "apiVersion: blkio.noderesource.dev/v1alpha1\nkind: NodePolicy\nclasses:\n  bronze: {limits: [\"disk:vd[a-c] rbps=5M wbps=1Mi\"]}\n"
	file := filepath.Join(t.TempDir(), "policy.yaml")
	lab.WriteFile(t, file, policy)
	p := lab.StartPlugin(t, "--policy", file)
	both := pod.MustRun(lab.Sleeper("both", "/data", "ext4"))
	lab.WantIOMax(t, cgroup.OfProcesses(both.Cgroup), ofClass)
	// The value of the policy counts. vdc, which the container does not use, is not the plugin's.
	const raised = "rbps=5000000 wbps=2097152"
	lab.WriteFile(t, file, strings.Replace(policy, "wbps=1Mi", "wbps=2Mi", 1))
	p.Await(t, lab.LogReloaded, 1)
	lab.AwaitIOMax(t, cgroup.OfProcesses(both.Cgroup), lab.Disks{"vda": raised, "vdb": raised, "vdc": class})
	if cgroup.OfProcesses(byRuntime.Cgroup) == byRuntime.Cgroup {
		lab.AwaitIOMax(t, byRuntime.Cgroup, lab.Disks{"vda": raised, "vdb": raised, "vdc": class})
	} else {
		// What the runtime's class wrote below the plugin's values stays, and the lower ones hold.
		lab.AwaitIOMax(t, byRuntime.Cgroup, lab.Disks{"vda": raised, "vdb": raised})
		lab.WantIOMax(t, cgroup.OfProcesses(byRuntime.Cgroup), ofClass)
	}

	if cri.IsCRIO() {
		return // without the file, it ignores the annotation
	}
	// containerd rejects it unless it is told to ignore it.
	lab.ConfigureRuntime(t, original)
	if _, err := pod.Create(t.Context(), lab.Sleeper("rejected", "/data", "ext4")); err == nil || !strings.Contains(err.Error(), "blockio disabled") {
		t.Errorf("create a container without the file of classes: error %v, want containerd's", err)
	}
	p.Await(t, lab.LogServing, 2)
	const table = ".containerd]\n"
	if n := strings.Count(original, table); n != 1 {
		t.Fatalf("%s has %d tables that end in %q, want 1", lab.RuntimeConfig(), n, table)
	}
	lab.ConfigureRuntime(t, strings.Replace(original, table, table+"  ignore_blockio_not_enabled_errors = true\n", 1))
	p.Await(t, lab.LogServing, 3)
	alone := pod.MustRun(lab.Sleeper("alone", "/data", "ext4"))
	lab.WantIOMax(t, alone.Cgroup, lab.Disks{"vda": raised, "vdb": raised})
}
