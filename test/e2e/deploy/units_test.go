package deploy

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/blkio/writeback"
	"github.com/nri-blkio/nri-blkio/test/e2e/cgroup"
	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

// TestUnit verifies that the systemd unit, installed as the README says, leaves the program all privileges that
// it needs. On a node with CRI-O containerd is installed too, and would take NRI's socket if the unit started it.
func TestUnit(t *testing.T) {
	log := startUnit(t, "nri-blkio")
	lab.Eventually(t, "the unit serves", logHas(log, lab.LogServing))
	pod := lab.RunPod(t, "pod", lab.Annotations{lab.Limits + "container.c": "/data wbps=512Ki", lab.Limits + "container.limited": "/data wbps=1Mi"})
	pod.MustRun(lab.Sleeper("free")) // so that the pod as a whole has no limit
	lab.WantIOMax(t, pod.MustRun(lab.Sleeper("limited", "/data", "ext4")).Cgroup, lab.LimitedDisk)
	private(t, "/mnt/ext4")
	for lost := range 3 {
		k := pod.MustRun(lab.Working(t, "c", "write", "--size", "16Mi"))
		if _, err := k.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		lab.AwaitOnDisk(t)
		if strings.Count(journal("nri-blkio"), lab.LogLost) == lost {
			return // this one was won
		}
		os.Remove(lab.File(t, "ext4", "c")) // the removed cgroup owns it
		if err := k.Remove(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	t.Error("in three exits the cgroup was removed before its limits were lifted")
}

// TestWritebackUnit verifies that the unit of the writeback part has the privileges that it needs, also for
// files that are mapped or that belong to another user.
func TestWritebackUnit(t *testing.T) {
	log := startUnit(t, "nri-blkio-writeback")
	lab.Eventually(t, "the unit runs", logHas(log, "Started"))
	repairsForeignFiles(t, lab.WaysToWrite)
	wantQuiet(t, log)
}

// startUnit installs and starts a unit for the time of the test, and returns its log.
func startUnit(t *testing.T, name string) func() (string, error) {
	t.Helper()
	install(t, "nri-blkio", "/usr/local/bin/nri-blkio", 0o755)
	install(t, "deploy/policy.yaml", policyFile, 0o644)
	install(t, "deploy/systemd/"+name+".service", "/etc/systemd/system/"+name+".service", 0o644)
	systemctl(t, "daemon-reload")
	t.Cleanup(func() {
		systemctl(t, "stop", name)
		if t.Failed() {
			t.Log(journal(name))
		}
	})
	systemctl(t, "start", name)
	return func() (string, error) { return journal(name), nil }
}

// repairsForeignFiles verifies that files of another user, on a volume that only this user may
// enter, move to their writers, also if they are mapped.
func repairsForeignFiles(t *testing.T, ways []lab.WayToWrite) {
	t.Helper()
	private(t, "/mnt/ext4")
	reader, err := writeback.NewOwnerReader()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	for _, way := range ways {
		if way.Name != "rewrite" && way.Name != "mmap" {
			continue
		}
		took := lab.Switches(t, reader, "ext4", func(file string) []string {
			if err := errors.Join(os.Chown(file, 999, 999), os.Chmod(file, 0o600)); err != nil {
				t.Fatal(err)
			}
			return way.Command(file)
		})
		t.Logf("%s: %v", way.Name, took)
	}
}

// The profiles of the manifests, as directories of deploy.
const (
	profileDefault = "kubernetes"
	profileHostile = "kubernetes-hostile-tenants"
)

// TestDaemonSet runs the pods of the manifests as static pods, beside a limited
// one: the kubelet removes pods that it does not know. In a proof it does so with
// the profile for hostile tenants too, which lacks what files need that are written
// through mmap only.
func TestDaemonSet(t *testing.T) {
	t.Run(profileDefault, func(t *testing.T) { daemonSets(t, profileDefault, lab.WaysToWrite) })
	if !*lab.Proof {
		return
	}
	for _, part := range []string{"limits", "writeback"} {
		install(t, "deploy/seccomp/"+part+".json", "/var/lib/kubelet/seccomp/nri-blkio/"+part+".json", 0o644)
	}
	isMapped := func(way lab.WayToWrite) bool { return way.Name == "mmap" }
	ways := slices.DeleteFunc(slices.Clone(lab.WaysToWrite), isMapped)
	t.Run(profileHostile, func(t *testing.T) { daemonSets(t, profileHostile, ways, "CAP_SYS_NICE", "(hostPID)") })
}

func daemonSets(t *testing.T, profile string, ways []lab.WayToWrite, lacks ...string) {
	if err := lab.ImportImage(t.Context(), "nri-blkio.tar"); err != nil {
		t.Fatal(err)
	}
	install(t, "deploy/policy.yaml", policyFile, 0o644)
	const name = "limited"
	private(t, "/mnt/ext4")
	startKubelet(t, []staticPod{{
		name: name, annotations: lab.Annotations{lab.Limits + "containers": "/data wbps=1Mi"},
		containers: ctr("c", "15", dataDir), volume: hostPath,
	}})
	limitsPod, writebackPod := daemon(t, profile, "nri-blkio"), daemon(t, profile, "nri-blkio-writeback")
	podLog, writebackLog := logOf(limitsPod), logOf(writebackPod)
	lab.Within(t, kubeletDeadline, "the pod serves", logHas(podLog, lab.LogServing))
	if lab.Node.Engine == "containerd-2" { // the others know no validators
		validatorLog := logOf(daemon(t, profile, "nri-blkio-validator"))
		lab.Within(t, kubeletDeadline, "the validator serves", logHas(validatorLog, lab.LogServing))
		lab.Within(t, kubeletDeadline, "the validator's probe succeeds", func() error {
			_, err := lab.Command(t, "status", "--ready=validator")
			return err
		})
		wantQuiet(t, validatorLog, lacks...)
	}
	lab.Within(t, kubeletDeadline, "the pod's probe succeeds", func() error {
		_, err := limitsPod.running(t, "nri-blkio")["nri-blkio"].Exec(t.Context(), lab.Deadline, "/nri-blkio", "status", "--ready=limits")
		return err
	})
	lab.Within(t, kubeletDeadline, "container c is limited", func() error {
		return lab.CheckIOMax(staticPod{name: name}.running(t, "c")["c"].Cgroup, lab.LimitedDisk)
	})
	lab.Within(t, kubeletDeadline, "status in the pod needs no flags", func() error {
		out, err := limitsPod.running(t, "nri-blkio")["nri-blkio"].Exec(t.Context(), lab.Deadline, "/nri-blkio", "status")
		if err == nil && !strings.Contains(out, "/"+name) {
			err = fmt.Errorf("status does not list pod %s:\n%s", name, out)
		}
		return err
	})
	lab.Within(t, kubeletDeadline, "the container's volume is synced", logHas(podLog, "Synced"))
	wantQuiet(t, podLog, lacks...)
	wantHostReadOnly(t, limitsPod.running(t, "nri-blkio")["nri-blkio"])

	lab.Within(t, kubeletDeadline, "the other pod runs", logHas(writebackLog, "Started"))
	repairsForeignFiles(t, ways)
	wantQuiet(t, writebackLog, lacks...)
	wantHostReadOnly(t, writebackPod.running(t, "writeback")["writeback"])
}

// wantHostReadOnly opens files of the host for writing where a container has them,
// and wants the kernel's answer that the mount is read-only: capabilities and the
// files' modes do not matter then.
func wantHostReadOnly(t *testing.T, k *cri.Container) {
	t.Helper()
	pids, err := cgroup.Dir(k.Cgroup).PIDs()
	if err != nil || len(pids) == 0 {
		t.Fatalf("processes of %s: %v, %v", k.Name, pids, err)
	}
	files := []string{
		"proc/sys/kernel/core_pattern", "proc/sysrq-trigger", "sys/kernel/mm/transparent_hugepage/enabled",
		"sys/fs/cgroup/cgroup.subtree_control", "dev/nri-blkio.test", "run/nri-blkio.test", "etc/nri-blkio.test",
	}
	// The path goes through the container's own mounts. A thread that enters its mount
	// namespace instead may be the main one, which does not end with its goroutine: after
	// that /proc/self/mounts of this process would be the container's.
	root := filepath.Join("/proc", strconv.Itoa(pids[0]), "root")
	for _, name := range files {
		fd, err := unix.Open(filepath.Join(root, "host", name), unix.O_WRONLY|unix.O_CREAT, 0o600)
		if err == nil {
			unix.Close(fd)
		}
		if !errors.Is(err, unix.EROFS) {
			t.Errorf("open /host/%s for writing in container %s: %v, want read-only file system", name, k.Name, cmp.Or(err, errOpened))
		}
	}
}

var errOpened = errors.New("no error")

// daemon has the kubelet run the pod of a DaemonSet for the time of the test.
func daemon(t *testing.T, profile, name string) staticPod {
	t.Helper()
	file := filepath.Join(manifests, name+".yaml")
	lab.WriteFile(t, file, daemonPod(t, profile, name))
	t.Cleanup(func() { os.Remove(file) })
	pod := staticPod{name: name}
	t.Cleanup(func() {
		if t.Failed() {
			text, err := podLog(name)
			t.Logf("the log of pod %s: %s, %v", name, text, err)
		}
	})
	return pod
}

func logOf(p staticPod) func() (string, error) {
	return func() (string, error) { return podLog(p.name) }
}

// private makes a filesystem accessible only to a user other than root for the time of the test, as that of a
// database.
func private(t *testing.T, mountpoint string) {
	t.Helper()
	if err := errors.Join(os.Chown(mountpoint, 999, 999), os.Chmod(mountpoint, 0o700)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(os.Chown(mountpoint, 0, 0), os.Chmod(mountpoint, 0o755)); err != nil {
			t.Error(err)
		}
	})
}

// stubNoise is a warning of the NRI library about the version of Debian's containerd 1.7, "1.7.24~ds1". It has
// no consequences.
const stubNoise = "nri: failed to infer runtime NRI version"

// wantQuiet fails the test for each warning and error in the log, and for each missing privilege, except for
// those in lacks. Three messages are allowed: one about limits that were lifted too late; on a busy machine, one about a
// write to cgroupfs that took longer than its deadline of a second, if it was done after that; and what CRI-O lacks.
func wantQuiet(t *testing.T, log func() (string, error), lacks ...string) {
	t.Helper()
	text, err := log()
	if err != nil {
		t.Fatal(err)
	}
	if cri.IsCRIO() {
		lacks = append(lacks, "The runtime reports no process for a container")
	}
	rest := text
	for line := range strings.Lines(text) {
		rest = rest[len(line):]
		if isSlowWrite(line) && strings.Contains(rest, "All limits are in force again") {
			continue
		}
		for _, bad := range []string{"level=warning", "level=error", `"level":"warning"`, `"level":"error"`, "CAP_SYS_NICE"} {
			isExpected := slices.ContainsFunc(lacks, func(what string) bool { return strings.Contains(line, what) })
			if strings.Contains(line, bad) && !isExpected && !strings.Contains(line, stubNoise) && !strings.Contains(line, lab.LogLost) {
				t.Errorf("the log has an unexpected line: %s", line)
			}
		}
	}
}

// isSlowWrite reports whether a line says that a write was not done in time.
func isSlowWrite(line string) bool {
	return strings.Contains(line, "Some limits are not in force") &&
		(strings.Contains(line, "not done within") || strings.Contains(line, "hangs in the kernel"))
}

// daemonPod returns the pod of a profile's DaemonSet without the parts that need an API server, a service
// account and a ConfigMap, and with a more detailed log.
func daemonPod(t *testing.T, profile, name string) string {
	t.Helper()
	spec := daemonSpec(t, profile, name)
	delete(spec, "serviceAccountName")
	ctr := spec["containers"].([]any)[0].(map[string]any)
	ctr["args"] = append(ctr["args"].([]any), "--log-level=debug")
	replaced := 0
	for _, v := range spec["volumes"].([]any) {
		if volume := v.(map[string]any); volume["configMap"] != nil {
			delete(volume, "configMap")
			volume["hostPath"] = map[string]any{"path": "/etc/nri-blkio"}
			replaced++
		}
	}
	if replaced > 1 {
		t.Fatalf("%d volumes from a ConfigMap", replaced)
	}
	out, err := yaml.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": name, "namespace": "nri-blkio"}, "spec": spec,
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// daemonSpec is the spec of the pods of a DaemonSet, as kubectl builds the profile.
func daemonSpec(t *testing.T, profile, name string) map[string]any {
	t.Helper()
	built, err := exec.CommandContext(t.Context(), "kubectl", "kustomize", filepath.Join(lab.Node.Payload, "deploy", profile)).CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl kustomize: %v: %s", err, built)
	}
	// The validator is in no kustomization: operators add it if they want it.
	validator, err := os.ReadFile(filepath.Join(lab.Node.Payload, "deploy/kubernetes/validator.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	objects := yaml.NewDecoder(io.MultiReader(bytes.NewReader(built), strings.NewReader("\n---\n"), bytes.NewReader(validator)))
	for {
		var set struct {
			Kind     string
			Metadata struct{ Name string }
			Spec     struct{ Template struct{ Spec map[string]any } }
		}
		if err := objects.Decode(&set); err != nil {
			t.Fatalf("DaemonSet %s in profile %s: %v", name, profile, err)
		}
		if set.Kind == "DaemonSet" && set.Metadata.Name == name {
			return set.Spec.Template.Spec
		}
	}
}

func podLog(name string) (string, error) {
	host, err := os.Hostname()
	if err != nil {
		return "", err
	}
	files, err := filepath.Glob("/var/log/pods/nri-blkio_" + name + "-" + host + "_*/*/*.log")
	if err != nil || len(files) == 0 {
		return "", fmt.Errorf("pod %s has no log: %w", name, err)
	}
	data, err := os.ReadFile(files[len(files)-1])
	return string(data), err
}

func journal(unit string) string {
	ctx, cancel := context.WithTimeout(context.Background(), lab.Deadline)
	defer cancel()
	out, err := exec.CommandContext(ctx, "journalctl", "-b", "-u", unit, "-o", "cat", "--no-pager").CombinedOutput()
	if err != nil {
		return fmt.Sprintf("journalctl: %v: %s", err, out)
	}
	return string(out)
}

func logHas(log func() (string, error), text string) func() error {
	return func() error {
		now, err := log()
		if err == nil && !strings.Contains(now, text) {
			err = fmt.Errorf("the log has no %q: %q", text, now)
		}
		return err
	}
}

// install copies a file of the payload for the time of the test.
func install(t *testing.T, from, to string, mode os.FileMode) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(lab.Node.Payload, from))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, data, mode); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(to) })
}

func systemctl(t *testing.T, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), lab.Deadline)
	defer cancel()
	if out, err := exec.CommandContext(ctx, "systemctl", args...).CombinedOutput(); err != nil {
		t.Errorf("systemctl %v: %v: %s", args, err, out)
	}
}
