package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// blockioPod chooses a blockio class of the runtime for all containers of a pod.
const blockioPod = "blockio.resources.beta.kubernetes.io/pod"

// TestBlockioClasses follows docs/how-to/migrate-from-blockio.md with a runtime that has a file of classes. The converted
// file limits the disks that a container uses as the runtime did, beside the runtime's classes and without them.
func TestBlockioClasses(t *testing.T) {
	const class = "rbps=5000000 wbps=1048576"
	classes := filepath.Join(t.TempDir(), "blockio.yaml")
	writeFile(t, classes, "Classes:\n  bronze:\n  - Devices: [\"/dev/vd[a-c]\"]\n    ThrottleReadBps: 5M\n    ThrottleWriteBps: 1Mi\n")
	original := readConfig(t)
	t.Cleanup(func() { configureRuntime(t, original) })
	configureRuntime(t, original+fmt.Sprintf("\n[plugins.\"io.containerd.service.v1.tasks-service\"]\n  blockio_config_file = %q\n", classes))
	pod := runPod(t, "pod", annotations{blockioPod: "bronze", "class.blkio.noderesource.dev/containers": "bronze"})
	byRuntime := pod.run(sleeper("runtime", "/data", "ext4"))
	wantIOMax(t, byRuntime.Cgroup, disks{"vda": class, "vdb": class, "vdc": class})

	policy, err := command(t, "check", "--migrate", classes)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "policy.yaml")
	writeFile(t, file, policy)
	p := startPlugin(t, "--policy", file)
	both := pod.run(sleeper("both", "/data", "ext4"))
	wantIOMax(t, both.Cgroup, disks{"vda": class, "vdb": class, "vdc": class})
	// The value of the policy counts. vdc, which the container does not use, is not the plugin's.
	const raised = "rbps=5000000 wbps=2097152"
	writeFile(t, file, strings.Replace(policy, "wbps=1Mi", "wbps=2Mi", 1))
	p.await(t, logReloaded, 1)
	for _, c := range []string{byRuntime.Cgroup, both.Cgroup} {
		awaitIOMax(t, c, disks{"vda": raised, "vdb": raised, "vdc": class})
	}

	// Without the file, containerd rejects the annotation unless it is told to ignore it.
	configureRuntime(t, original)
	if _, err := pod.Create(t.Context(), sleeper("rejected", "/data", "ext4")); err == nil || !strings.Contains(err.Error(), "blockio disabled") {
		t.Errorf("create a container without the file of classes: error %v, want containerd's", err)
	}
	p.await(t, logServing, 2)
	const table = ".containerd]\n"
	if n := strings.Count(original, table); n != 1 {
		t.Fatalf("%s has %d tables that end in %q, want 1", runtimeConfig, n, table)
	}
	configureRuntime(t, strings.Replace(original, table, table+"  ignore_blockio_not_enabled_errors = true\n", 1))
	p.await(t, logServing, 3)
	alone := pod.run(sleeper("alone", "/data", "ext4"))
	wantIOMax(t, alone.Cgroup, disks{"vda": raised, "vdb": raised})
}

func readConfig(t *testing.T) string {
	t.Helper()
	config, err := os.ReadFile(runtimeConfig)
	if err != nil {
		t.Fatal(err)
	}
	return string(config)
}

// configureRuntime starts the runtime again with a configuration.
func configureRuntime(t *testing.T, config string) {
	t.Helper()
	writeFile(t, runtimeConfig, config)
	restartRuntime(t)
}
