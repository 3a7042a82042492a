package writeback

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/test/e2e/cgroup"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

// TestOwner verifies that the command shows the owner of a file in the kernel.
func TestOwner(t *testing.T) {
	for _, fs := range filesystemsWithOwners {
		t.Run(fs, func(t *testing.T) {
			a := lab.NewWriter(t, "a")
			file := lab.File(t, fs, "f")
			lab.WriteFile(t, file, "")
			a.Writes(file, 1, "64k", "oflag=append")
			want := lab.FileOwner{State: "live", Cgroup: a.Name, CgroupID: a.ID}
			if got := lab.OwnerOf(t, file); got != want {
				t.Errorf("owner of %s is %+v, want %+v", file, got, want)
			}
			// The kernel does not move a dirty file to another owner.
			a.Remove()
			want.State, want.Cgroup = "gone", ""
			if got := lab.OwnerOf(t, file); got != want {
				t.Errorf("after the cgroup's removal: got %+v, want %+v", got, want)
			}
			lab.Administer(t, "sync", "-f", file)
			drop(t)
			want = lab.FileOwner{State: "none"}
			if got := lab.OwnerOf(t, file); got != want {
				t.Errorf("of a file that was read anew: got %+v, want %+v", got, want)
			}
		})
	}
}

// drop makes the kernel drop clean pages, inodes and dentries.
func drop(t *testing.T) {
	t.Helper()
	if err := os.WriteFile("/proc/sys/vm/drop_caches", []byte("3"), 0); err != nil {
		t.Fatal(err)
	}
}

// TestNoDeadOwner verifies that, half a minute after the end of a container, no file is under its limit any
// more, if the limits were lifted before the cgroup was removed.
func TestNoDeadOwner(t *testing.T) {
	p := lab.StartPlugin(t, "--log-level", "debug")
	pod := lab.RunPod(t, "pod", lab.Limited)
	pod.MustRun(lab.Sleeper("stays", "/data", "ext4"))
	for try := range 3 {
		name := fmt.Sprint("c", try)
		file := lab.File(t, "ext4", name)
		k := pod.MustRun(lab.Sleeper(name, "/data", "ext4"))
		if _, err := k.Exec(t.Context(), lab.Deadline, "/bin/iotool", "write", "--path", "/data/"+filepath.Base(file), "--size", "4Mi"); err != nil {
			t.Fatal(err)
		}
		if got := lab.OwnerOf(t, file); got.Container != name {
			t.Fatalf("before the container's end the owner is %+v, want container %s", got, name)
		}
		if err := k.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !p.HandedOver(t, name) {
			continue // lost
		}
		lab.Within(t, 30*time.Second, "the owner of the file is a living cgroup", func() error {
			got := lab.OwnerOf(t, file)
			if got.State != "live" && got.State != "none" {
				return fmt.Errorf("the owner is %+v", got)
			}
			t.Logf("%+v", got)
			return nil
		})
		return
	}
	t.Error("in three exits the cgroup was removed before its limits were lifted")
}

// TestReleaseBtrfs verifies that, after a sync as the plugin makes it, one release of removed cgroups suffices
// on btrfs as well. The removed cgroup changed metadata first, so it owns the metadata.
func TestReleaseBtrfs(t *testing.T) {
	tree, err := cgroupfs.OpenHierarchy(cgroup.Root)
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	dir := mountAs(t, "btrfs", lab.StackedDevice(t))
	a := lab.NewWriter(t, "a")
	a.Does("sh", "-c", "cd "+dir+" && for i in $(seq 60); do echo text > f$i; done; sync -f .; for i in $(seq 30); do mv f$i g$i; done; echo text > f1")
	a.Remove()
	file := filepath.Join(dir, "f1")
	if got := lab.OwnerOf(t, file); got.State != "gone" {
		t.Fatalf("the owner is %+v, want a removed cgroup: the test cannot show anything", got)
	}
	if _, err := lab.Command(t, "sync", dir); err != nil {
		t.Fatal(err)
	}
	if err := tree.Cgroup(".").ReleaseRemovedOwners(); err != nil {
		t.Fatal(err)
	}
	lab.Within(t, 20*time.Second, "the owner of the file is no removed cgroup", func() error {
		if got := lab.OwnerOf(t, file); got.State == "gone" {
			return fmt.Errorf("the owner is %+v", got)
		}
		return nil
	})
}

// TestNewPodOnOldVolume verifies that the writes of a new pod to files of an ended pod are charged to the new
// pod, at its own limit.
func TestNewPodOnOldVolume(t *testing.T) {
	p := lab.StartPlugin(t, "--log-level", "debug")
	file := lab.File(t, "ext4", "f")
	path := "/data/" + filepath.Base(file)
	for try := range 3 {
		old := lab.RunPod(t, fmt.Sprint("old", try), lab.Annotations{lab.Limits + "container.a": "/data wbps=2Mi"})
		a := old.MustRun(lab.Sleeper("a", "/data", "ext4"))
		if _, err := a.Exec(t.Context(), lab.Deadline, "/bin/iotool", "write", "--path", path, "--size", "4Mi"); err != nil {
			t.Fatal(err)
		}
		if err := old.RemoveSandbox(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !p.HandedOver(t, "a") {
			continue // lost
		}
		lab.AwaitOnDisk(t)
		lab.Eventually(t, "the files of the old pod have no owner", func() error {
			if got := lab.OwnerOf(t, file); got.State != "none" {
				return fmt.Errorf("the owner of %s is %+v", file, got)
			}
			return nil
		})
		pod := lab.RunPod(t, "new", lab.Annotations{lab.Limits + "container.next": "/data wbps=4Mi"})
		next := pod.MustRun(lab.Sleeper("next", "/data", "ext4"))
		before, err := cgroup.Dir(next.Cgroup).Counter(lab.Node.Disks["vdb"], "wbytes")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := next.Exec(t.Context(), lab.Deadline, "/bin/iotool", "write", "--path", path, "--span", "4Mi", "--sync", "1Mi", "--size", "16Mi"); err != nil {
			t.Fatal(err)
		}
		after, err := cgroup.Dir(next.Cgroup).Counter(lab.Node.Disks["vdb"], "wbytes")
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%d of 16 MiB are charged to the new pod's container", (after-before)/lab.MiB)
		if after-before < 15*lab.MiB {
			t.Errorf("%d bytes are charged to the new pod, want at least 15 MiB", after-before)
		}
		if got := lab.OwnerOf(t, file); got.Pod != pod.Name || got.Container != "next" {
			t.Errorf("the owner of the file is %+v, want container next of pod %s", got, pod.Name)
		}
		return
	}
	t.Error("in three exits the cgroup was removed before its limits were lifted")
}

// TestOwnerForbidden verifies that a user without the necessary privileges gets one line with the reason.
func TestOwnerForbidden(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "setpriv", "--bounding-set=-perfmon,-bpf,-sys_admin", "--inh-caps=-all",
		filepath.Join(lab.Node.Payload, "nri-blkio"), "owner", "/etc/passwd").CombinedOutput()
	if err == nil || strings.Count(string(out), "\n") != 1 || !strings.HasPrefix(string(out), "nri-blkio: the writeback owner of files cannot be read on this kernel: ") {
		t.Errorf("owner without privileges: error %v, output %q, want one line with the reason", err, out)
	}
}

// TestOwnerErrors verifies that the command prints a line for each file that cannot be found, and the owners of
// the others.
func TestOwnerErrors(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), filepath.Join(lab.Node.Payload, "nri-blkio"), "owner", "/no/one", "/etc/passwd", "/no/\x1b[2Jtwo")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err == nil || strings.Count(string(out), "\n") != 2 || !strings.Contains(string(out), "\n/etc/passwd ") {
		t.Errorf("owner of three files: error %v, output %q, want an error and the owner of /etc/passwd", err, out)
	}
	want := "nri-blkio: open /no/one: no such file or directory\nnri-blkio: open /no/\\x1b[2Jtwo: no such file or directory\n"
	if got := stderr.String(); got != want {
		t.Errorf("stderr is %q, want %q", got, want)
	}
}
