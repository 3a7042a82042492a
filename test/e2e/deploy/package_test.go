package deploy

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
	"github.com/nri-blkio/nri-blkio/test/payload"
)

const policyFile = "/etc/nri-blkio/policy.yaml"

// earlier is the version under which the package of an earlier commit is installed.
const earlier = "0.9.0"

// TestPackage verifies that the package installs what runs, that the limits of a running pod are in force all the time that an update and
// the way back take, and that a removal leaves no limits, and a purge no files. With a proof, the update is from another program, and the way back
// to it. Otherwise both are the same program under two versions.
func TestPackage(t *testing.T) {
	t.Cleanup(func() { dpkg(t, "--purge", "nri-blkio") })
	units := []string{"nri-blkio", "nri-blkio-writeback"}
	versions := updates()
	installVersion(t, versions[0])
	for _, unit := range append(units, "nri-blkio-validator") {
		if state := unitState(t, unit); state != "inactive disabled" {
			t.Errorf("after the installation %s is %s, want inactive disabled", unit, state)
		}
	}
	systemctl(t, append([]string{"enable", "--now"}, units...)...)
	lab.Eventually(t, "the unit is connected", ready(t))
	pod := lab.RunPod(t, "pod", lab.Limited)
	cgroups := []string{pod.MustRun(lab.Sleeper("first", "/data", "ext4")).Cgroup}
	lab.WantIOMax(t, cgroups[0], lab.LimitedDisk)

	own, err := os.ReadFile(policyFile)
	if err != nil {
		t.Fatal(err)
	}
	own = append(own, "# changed\n"...)
	lab.WriteFile(t, policyFile, string(own))
	for i, version := range versions[1:] {
		before := mainPID(t, units[0])
		holds := watch(t, cgroups...)
		began := time.Now()
		installVersion(t, version)
		t.Logf("version %s took %v", version, time.Since(began))
		if after := mainPID(t, units[0]); after == before || after == "0" {
			t.Errorf("version %s: the process of the unit was %s, and is %s", version, before, after)
		}
		lab.Eventually(t, "the unit is connected", ready(t))
		if err := holds(); err != nil {
			t.Errorf("while version %s was installed: %v", version, err)
		}
		k := pod.MustRun(lab.Sleeper(fmt.Sprint("after-", i), "/data", "ext4"))
		cgroups = append(cgroups, k.Cgroup)
		lab.Eventually(t, "a new container is limited", func() error { return lab.CheckIOMax(k.Cgroup, lab.LimitedDisk) })
	}
	if now, err := os.ReadFile(policyFile); err != nil || !bytes.Equal(now, own) {
		t.Errorf("the policy is not the changed one: %v\n%s", err, now)
	}
	isRemoved(t, units, append(cgroups, pod.Cgroup))
}

// isRemoved removes the package, and verifies that no limits are left, and after a purge no files.
func isRemoved(t *testing.T, units, cgroups []string) {
	t.Helper()
	dpkg(t, "--remove", "nri-blkio")
	for _, cgroup := range cgroups {
		lab.WantIOMax(t, cgroup, lab.Disks{})
	}
	for _, unit := range units {
		if state := unitState(t, unit); !strings.HasPrefix(state, "inactive") {
			t.Errorf("after the removal %s is %s", unit, state)
		}
	}
	if _, err := os.Stat(policyFile); err != nil {
		t.Errorf("after the removal: %v", err)
	}
	dpkg(t, "--purge", "nri-blkio")
	for _, file := range []string{policyFile, "/usr/bin/nri-blkio", "/usr/lib/systemd/system/nri-blkio.service"} {
		if _, err := os.Lstat(file); !os.IsNotExist(err) {
			t.Errorf("after the purge there is %s: %v", file, err)
		}
	}
}

// updates returns the versions to install one after another.
func updates() []string {
	if *lab.Proof {
		return []string{earlier, "1.0.0", earlier, "1.0.0"}
	}
	return []string{"1.0.0", "1.1.0", "1.0.0"}
}

// installVersion installs the package under a version. The payload has it without the program, and the program.
func installVersion(t *testing.T, version string) {
	t.Helper()
	dir, err := os.MkdirTemp(lab.Node.Payload, "package-") // on the filesystem of the program
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	from := lab.Node.Payload
	if version == earlier {
		from = filepath.Join(from, payload.Earlier)
	}
	root, file := filepath.Join(dir, "root"), filepath.Join(dir, "nri-blkio.deb")
	run(t, "dpkg-deb", "--raw-extract", filepath.Join(from, "nri-blkio.deb"), root)
	control := filepath.Join(root, "DEBIAN/control")
	text, err := os.ReadFile(control)
	if err != nil {
		t.Fatal(err)
	}
	lab.WriteFile(t, control, regexp.MustCompile(`(?m)^Version: .*`).ReplaceAllString(string(text), "Version: "+version))
	lab.MustMkdir(t, filepath.Join(root, "usr/bin"))
	if err := os.Link(filepath.Join(from, "nri-blkio"), filepath.Join(root, "usr/bin/nri-blkio")); err != nil {
		t.Fatal(err)
	}
	run(t, "dpkg-deb", "-Znone", "--root-owner-group", "--build", root, file)
	dpkg(t, "--install", file)
}

// dpkg runs dpkg as an unattended update does: it asks nothing, and keeps a changed policy.
func dpkg(t *testing.T, args ...string) {
	t.Helper()
	run(t, "dpkg", append([]string{"--force-unsafe-io", "--force-confold"}, args...)...)
}

// run runs a command of the node, also at the end of the test.
func run(t *testing.T, name string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*lab.Deadline)
	defer cancel()
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	t.Logf("%s %s:\n%s", name, strings.Join(args, " "), out)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// watch reads the limits of containers again and again. The function that it returns ends that, and returns the first error.
func watch(t *testing.T, cgroups ...string) func() error {
	t.Helper()
	stop, done := make(chan struct{}), make(chan error, 1)
	go func() {
		var first error
		for {
			for _, cgroup := range cgroups {
				if err := lab.CheckIOMax(cgroup, lab.LimitedDisk); first == nil && err != nil {
					first = err
				}
			}
			select {
			case <-stop:
				done <- first
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	return func() error {
		close(stop)
		return <-done
	}
}

// unitState returns whether a unit runs, and whether it is enabled.
func unitState(t *testing.T, unit string) string {
	t.Helper()
	return fmt.Sprint(property(t, unit, "ActiveState"), " ", property(t, unit, "UnitFileState"))
}

func mainPID(t *testing.T, unit string) string {
	t.Helper()
	return property(t, unit, "MainPID")
}

func property(t *testing.T, unit, name string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "systemctl", "show", "--value", "--property="+name, unit).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}
