package limits

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/test/e2e/cgroup"
	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

// guestDisk is how QEMU uses a disk of a virtual machine.
type guestDisk struct {
	name    string
	value   string   // of the container's annotation
	args    []string // of qemu-img bench
	counter string   // of io.stat
	limit   int64
	// workers is true if workers of io_uring in the kernel do the I/O.
	workers bool
}

// guestDisks returns rounds of ways in which QEMU does I/O. KubeVirt's "io" of a disk is "native" or "threads". Those of a
// round run at the same time, each on a disk of its own. A device has one writer into the page cache at most, because all share it.
// The last round, which a proof has, differs in the direction only.
func guestDisks() [][]guestDisk {
	write := []string{"-w"}
	rounds := [][]guestDisk{{
		{"native-write", "/dev/disk wbps=2Mi", append(write, "-i", "native", "-t", "none"), "wbytes", 2 * lab.MiB, false},
		{"io-uring-write", "/dev/disk wbps=2Mi", append(write, "-i", "io_uring", "-t", "none"), "wbytes", 2 * lab.MiB, false},
	}, {
		{"threads-write", "/dev/disk wbps=2Mi", append(write, "-i", "threads", "-t", "none"), "wbytes", 2 * lab.MiB, false},
		{"io-uring-workers", "/dev/disk wbps=2Mi", append(write, "-i", "io_uring", "-t", "writeback"), "wbytes", 2 * lab.MiB, true},
	}}
	if !*lab.Proof {
		return rounds
	}
	return append(rounds, []guestDisk{
		{"native-read", "/dev/disk rbps=2Mi", []string{"-i", "native", "-t", "none"}, "rbytes", 2 * lab.MiB, false},
		{"io-uring-read", "/dev/disk rbps=2Mi", []string{"-i", "io_uring", "-t", "none"}, "rbytes", 2 * lab.MiB, false},
	})
}

// testVirtualMachine verifies that the I/O of QEMU on a raw block volume counts for its container, and obeys the limit of
// the container. QEMU's own tool does it in each of the ways in which QEMU does it for a virtual machine.
func testVirtualMachine(t *testing.T) {
	lab.Know(t, lab.Raw...)
	a := lab.Annotations{}
	for _, round := range guestDisks() {
		for _, d := range round {
			a[lab.Limits+"container."+d.name] = d.value
		}
	}
	pod := lab.RunPod(t, "virt-launcher", a)
	for _, round := range guestDisks() {
		var containers []*cri.Container
		for i, d := range round {
			containers = append(containers, pod.MustRun(d.config(lab.Raw[i])))
		}
		t.Run("round", func(t *testing.T) { // it returns once its parallel cases are done
			for i, d := range round {
				t.Run(d.name, func(t *testing.T) {
					t.Parallel()
					lab.WantRate(t, containers[i].Cgroup, lab.Raw[i], d.counter, d.limit)
					d.checkWorkers(t, containers[i])
				})
			}
		})
		stopAll(t, containers)
	}
}

// config is a container that has a disk as raw block volume, and runs qemu-img of the node.
func (d guestDisk) config(disk string) cri.ContainerConfig {
	cfg := cri.ContainerConfig{
		Name: d.name, Command: []string{"/usr/bin/qemu-img", "bench"},
		Args:    append(slices.Clone(d.args), "-f", "raw", "-c", "100000000", "-d", "16", "-s", "65536", "/dev/disk"),
		Devices: map[string]string{"/dev/disk": path.Join("/dev", disk)}, Memory: lab.MemoryLimit,
	}
	for _, dir := range []string{"/usr", "/lib", "/lib64"} {
		cfg.Mounts = append(cfg.Mounts, cri.Mount{Host: path.Join("/usr", strings.TrimPrefix(dir, "/usr")), Path: dir, ReadOnly: true})
	}
	return cfg
}

// checkWorkers verifies that workers of io_uring are threads in the container's cgroup, where they are expected.
func (d guestDisk) checkWorkers(t *testing.T, k *cri.Container) {
	t.Helper()
	pids, err := cgroup.Dir(k.Cgroup).PIDs()
	if err != nil || len(pids) == 0 {
		t.Fatalf("processes %v, error %v", pids, err)
	}
	workers := 0
	for _, pid := range pids {
		tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
		if err != nil {
			t.Fatal(err)
		}
		for _, task := range tasks {
			name, err := os.ReadFile(task + "/comm")
			if errors.Is(err, os.ErrNotExist) || !bytes.HasPrefix(name, []byte("iou-wrk-")) { // workers come and go
				continue
			}
			in, err := os.ReadFile(task + "/cgroup")
			if errors.Is(err, os.ErrNotExist) {
				continue
			}
			workers++
			// Or below it, where crun has the processes.
			if want := "0::" + k.Cgroup; err != nil || !strings.HasPrefix(strings.TrimSpace(string(in))+"/", want+"/") {
				t.Errorf("worker %s is in %q, error %v, want %q", task, in, err, want)
			}
		}
	}
	if d.workers && workers == 0 {
		t.Error("no worker of io_uring does the I/O")
	}
	t.Logf("%d workers of io_uring", workers)
}
