package limits

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/nri-blkio/nri-blkio/test/e2e/cgroup"
	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

// statusOf returns the rows of a pod in `status -o json`, such as "c vdb wbps 1Mi 1Mi ok".
func statusOf(t *testing.T, pod lab.PodOf) []string {
	t.Helper()
	out, err := lab.Command(t, "status", "-o", "json", "--pod", "default/"+pod.Name)
	if err != nil {
		t.Fatal(err)
	}
	var answer struct {
		Values []struct {
			Container, Cgroup, Disk, Key, Asked, InForce, State string
		}
	}
	if err := json.Unmarshal([]byte(out), &answer); err != nil {
		t.Fatalf("%v in %q", err, out)
	}
	var rows []string
	for _, v := range answer.Values {
		rows = append(rows, strings.Join([]string{v.Container, v.Disk, v.Key, v.Asked, v.InForce, v.State}, " "))
	}
	slices.Sort(rows)
	return rows
}

func wantStatus(t *testing.T, pod lab.PodOf, want ...string) {
	t.Helper()
	slices.Sort(want)
	if got := statusOf(t, pod); !slices.Equal(got, want) {
		t.Errorf("status of the pod is\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestStatus verifies that the command shows io.max as the kernel has it, also after the test
// has changed it, and that it selects pods by their labels.
func TestStatus(t *testing.T) {
	p := lab.StartPlugin(t)
	pod := lab.RunPodOf(t, "pod", cri.PodConfig{Labels: map[string]string{"app": "db"}, Annotations: lab.Annotations{
		lab.Limits + "container.c": "/data wbps=1Mi riops=2k; rootfs wbps=3Mi",
		lab.Weight + "container.c": "50",
	}})
	k := pod.MustRun(lab.Sleeper("c", "/data", "ext4"))
	lab.WantIOMax(t, k.Cgroup, lab.Disks{"vda": "wbps=3145728", "vdb": "wbps=1048576 riops=2000"})
	backstop := []string{" vda wbps 3Mi 3Mi ok", " vdb riops 2k 2k ok", " vdb wbps 1Mi 1Mi ok"}
	wantStatus(t, pod, append(backstop,
		"c  weight 50 50 ok", "c vda wbps 3Mi 3Mi ok", "c vdb riops 2k 2k ok", "c vdb wbps 1Mi 1Mi ok")...)
	// The program reports its connection every two seconds.
	lab.Eventually(t, "status --strict succeeds with all in force", func() error {
		_, err := lab.Command(t, "status", "--strict")
		return err
	})
	for selector, want := range map[string]string{"app=db": "default/" + pod.Name + "\n", "app!=db": ""} {
		if got, err := lab.Command(t, "status", "-o", "name", "-l", selector); err != nil || got != want {
			t.Errorf("status -o name -l %s: %q, %v, want %q", selector, got, err, want)
		}
	}

	p.Kill(t) // so that no instance repairs the drift
	vda, vdb := lab.Node.Disks["vda"], lab.Node.Disks["vdb"]
	for _, line := range []string{vda + " wbps=5242880", vdb + " wbps=max"} {
		if err := cgroup.Dir(k.Cgroup).SetIOMax(line); err != nil {
			t.Fatal(err)
		}
	}
	wantStatus(t, pod, append(backstop,
		"c  weight 50 50 ok", "c vda wbps 3Mi 5Mi drift", "c vdb riops 2k 2k ok", "c vdb wbps 1Mi max missing")...)
	if _, err := lab.Command(t, "status", "--strict"); err == nil {
		t.Error("status --strict succeeds with a limit that is not in force")
	}
}

// testClear verifies that clear removes the limits of a running pod while the plugin runs, as after a limit
// that was a mistake.
func testClear(t *testing.T) {
	pod := lab.RunPod(t, "pod", lab.Limited)
	other := lab.RunPod(t, "other", lab.Limited)
	k, bystander := pod.MustRun(lab.Sleeper("c", "/data", "ext4")), other.MustRun(lab.Sleeper("c", "/data", "ext4"))
	if err := cgroup.Dir(k.Cgroup).SetIOMax(lab.Node.Disks["vdd"] + " wbps=5000000"); err != nil {
		t.Fatal(err)
	}
	if _, err := lab.Command(t, "clear", "--pod", "default/"+pod.Name); err != nil {
		t.Fatal(err)
	}
	lab.StaysIOMax(t, k.Cgroup, lab.Disks{"vdd": "wbps=5000000"}) // another's
	lab.WantIOMax(t, pod.Cgroup, nil)
	wantStatus(t, pod, "c vdb wbps 1Mi max cleared", " vdb wbps 1Mi max cleared")
	lab.WantIOMax(t, bystander.Cgroup, lab.LimitedDisk)

	// A container that is created later gets its limit, as the help text says.
	lab.WantIOMax(t, pod.MustRun(lab.Sleeper("later", "/data", "ext4")).Cgroup, lab.LimitedDisk)
	lab.WantIOMax(t, pod.Cgroup, nil)

	if _, err := lab.Command(t, "clear", "--undo", "--pod", "default/"+pod.Name); err != nil {
		t.Fatal(err)
	}
	lab.AwaitIOMax(t, pod.Cgroup, lab.TwiceDisk)
	lab.AwaitIOMax(t, k.Cgroup, lab.Disks{"vdb": "wbps=1048576", "vdd": "wbps=5000000"})
}

// TestClearAll verifies that clear removes all limits of the node without the plugin.
func TestClearAll(t *testing.T) {
	p := lab.StartPlugin(t)
	pod := lab.RunPod(t, "pod", lab.Limited)
	k := pod.MustRun(lab.Sleeper("c", "/data", "ext4"))
	p.Kill(t)
	if _, err := lab.Command(t, "clear", "--all", "--yes"); err != nil {
		t.Fatal(err)
	}
	lab.WantIOMax(t, k.Cgroup, nil)
	lab.WantIOMax(t, pod.Cgroup, nil)
}

// TestCheck verifies that a pod gets the limits that the command predicts.
func TestCheck(t *testing.T) {
	const manifest = `
apiVersion: v1
kind: Pod
metadata:
  name: checked
  annotations:
    limits.blkio.noderesource.dev/container.c: "%s"
spec:
  containers:
  - name: c
    image: local/iotool:1
    volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, hostPath: {path: %s}}]
`
	file := lab.PolicyFile(t, "") // any file will do
	check := func(value string) (string, error) {
		t.Helper()
		lab.WriteFile(t, file, fmt.Sprintf(manifest, value, lab.Volumes["part"]))
		return lab.Command(t, "check", "-f", file, "-o", "wide")
	}
	out, err := check("/data wbps=1Mi; rootfs wiops=100")
	if err != nil || !strings.Contains(out, lab.Node.Disks["vdc"]+" wbps=1048576") || !strings.Contains(out, lab.Node.Disks["vda"]+" wiops=100") {
		t.Errorf("check: error %v, want wbps on vdc and wiops on vda in\n%s", err, out)
	}
	out, err = check("/data wpbs=1Mi")
	if err == nil || !strings.Contains(out, `unknown key "wpbs" (did you mean "wbps"?)`) {
		t.Errorf("check of an annotation with an unknown key: error %v, output\n%s", err, out)
	}
}

// TestDevices verifies that the command lists each disk of the node, and that each can be limited.
func TestDevices(t *testing.T) {
	out, err := lab.Command(t, "devices")
	if err != nil {
		t.Fatal(err)
	}
	for _, disk := range slices.Sorted(maps.Keys(lab.Node.Disks)) {
		found := slices.ContainsFunc(strings.Split(out, "\n"), func(line string) bool {
			return strings.Contains(line, disk) && strings.Contains(line, lab.Node.Disks[disk])
		})
		if !found {
			t.Errorf("devices does not list disk %s (%s):\n%s", disk, lab.Node.Disks[disk], out)
		}
	}
	for _, text := range []string{"─ext4 ", "─xfs ", "─btrfs "} {
		if !strings.Contains(out, text) {
			t.Errorf("%q is not in\n%s", text, out)
		}
	}
}

// orphan is a volume without its pod, as devices and status have it.
type orphan struct {
	UID, Volume, Mountpoint, Type, State string
	Disks                                []string
	Holders                              []struct {
		PID       int
		OpenFiles int
	}
}

// orphansOf asks a command for the orphaned volumes of a pod, of which there is at most one. The
// kubelet's tests may leave some of their own.
func orphansOf(t *testing.T, uid string, args ...string) []orphan {
	t.Helper()
	out, err := lab.Command(t, append(args, "-o", "json")...)
	if err != nil {
		t.Fatal(err)
	}
	var answer struct{ Orphans []orphan }
	if err := json.Unmarshal([]byte(out), &answer); err != nil {
		t.Fatalf("%v in %q", err, out)
	}
	if i := slices.IndexFunc(answer.Orphans, func(o orphan) bool { return o.UID == uid }); i >= 0 {
		return answer.Orphans[i : i+1]
	}
	return nil
}

// mountOrphan mounts a volume for a pod that does not exist, and opens a file on it.
func mountOrphan(t *testing.T, uid string) (at string) {
	t.Helper()
	const pods = "/var/lib/kubelet/pods/"
	at, from := pods+uid+"/volumes/kubernetes.io~csi/data/mount", lab.Volumes["xfs"]+"/orphan"
	for _, dir := range []string{at, from} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mount(from, at, "", syscall.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(at + "/held")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		file.Close()
		if err := syscall.Unmount(at, 0); err != nil {
			t.Error(err)
			return // not to remove what is on the volume
		}
		os.RemoveAll(pods + uid)
		os.RemoveAll(from)
	})
	return at
}

// TestOrphan verifies that devices and status list a volume that is mounted for a pod that does not exist, and
// the process that keeps it in use.
func TestOrphan(t *testing.T) {
	lab.RunPod(t, "pod", lab.Limited) // the cgroup of all pods is there once one is
	const uid = "00000000-aaaa-bbbb-cccc-000000000000"
	at := mountOrphan(t, uid)
	if orphans := orphansOf(t, uid, "devices"); orphans != nil {
		t.Errorf("a volume that was just mounted counts as orphaned within the grace period: %+v", orphans)
	}
	for _, cmd := range []string{"devices", "status"} {
		orphans := orphansOf(t, uid, cmd, "--orphan-grace", "0s")
		if len(orphans) != 1 {
			t.Fatalf("%s lists %d orphaned volumes of the pod, want 1", cmd, len(orphans))
		}
		o := orphans[0]
		if o.Volume != "data" || o.Mountpoint != at || o.Type != "xfs" || o.State != "noCgroup" || len(o.Disks) != 1 {
			t.Errorf("%s lists the orphaned volume as %+v, want volume data of type xfs at %s with one disk", cmd, o, at)
		}
		if cmd != "devices" {
			continue
		}
		if len(o.Holders) != 1 || o.Holders[0].PID != os.Getpid() || o.Holders[0].OpenFiles != 1 {
			t.Errorf("%+v hold it, not this process %d alone", o.Holders, os.Getpid())
		}
	}
}

// testOwnerOfContainers verifies that the command names the container that owns a file.
func testOwnerOfContainers(t *testing.T) {
	pod := lab.RunPod(t, "pod", lab.Limited)
	k := pod.MustRun(lab.Sleeper("web", "/data", "ext4"))
	file := lab.File(t, "ext4", "f")
	if _, err := k.Exec(t.Context(), lab.Deadline, "/bin/iotool", "write", "--path", "/data/"+filepath.Base(file), "--size", "64Ki"); err != nil {
		t.Fatal(err)
	}
	got := lab.OwnerOf(t, file)
	if got.State != "live" || got.Namespace != "default" || got.Pod != pod.Name || got.Container != "web" || !strings.HasPrefix(got.Cgroup, strings.TrimPrefix(pod.Cgroup, "/")) {
		t.Errorf("owner is %+v, want container web of pod %s", got, pod.Name)
	}
}
