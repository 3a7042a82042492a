package limits

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

// loadCase is a container that does more I/O than it may.
type loadCase struct {
	name    string
	value   string // of the container's annotation
	volume  string // at /data; "" for the writable layer
	args    []string
	disk    string
	counter string // of io.stat
	limit   int64
}

// loadCases returns rounds of cases. The cases of a round run at the same time, each on a disk of its own,
// because a throttled writer delays others in the journal of the filesystem. The last round, which a proof has, differs
// in the disk or the filesystem only: TestStorage measures writes on each filesystem.
func loadCases() [][]loadCase {
	write := []string{"write", "--block", "64Ki"}
	read := []string{"read", "--block", "64Ki", "--span", "32Mi"}
	directWrite, directRead := append(write[:3:3], "--direct"), append(read[:5:5], "--direct")
	rounds := [][]loadCase{{
		{"direct-write-ext4", "/data wbps=1Mi", "ext4", directWrite, "vdb", "wbytes", lab.MiB},
		{"direct-read-partition", "/data rbps=2Mi", "part", directRead, "vdc", "rbytes", 2 * lab.MiB},
		{"buffered-read-xfs", "/data rbps=2Mi", "xfs", read, "vdd", "rbytes", 2 * lab.MiB},
		{"direct-write-rootfs", "rootfs wbps=1Mi", "", directWrite, "vda", "wbytes", lab.MiB},
	}, {
		{"buffered-write-ext4", "/data wbps=2Mi", "ext4", write, "vdb", "wbytes", 2 * lab.MiB},
		{"direct-read-operations", "/data riops=30", "part", directRead, "vdc", "rios", 30},
		{"direct-write-operations", "/data wiops=20", "xfs", directWrite, "vdd", "wios", 20},
		{"buffered-write-rootfs", "rootfs wbps=2Mi", "", write, "vda", "wbytes", 2 * lab.MiB},
	}}
	if !*lab.Proof {
		return rounds
	}
	return append(rounds, []loadCase{
		{"direct-read-ext4", "/data rbps=1Mi", "ext4", directRead, "vdb", "rbytes", lab.MiB},
		{"direct-write-partition", "/data wbps=2Mi", "part", directWrite, "vdc", "wbytes", 2 * lab.MiB},
		{"buffered-write-xfs", "/data wbps=2Mi", "xfs", write, "vdd", "wbytes", 2 * lab.MiB},
		{"buffered-write-btrfs", "/data wbps=2Mi", "btrfs", write, "vde", "wbytes", 2 * lab.MiB},
	})
}

// testThroughput verifies that the rates in io.stat obey the limits.
func testThroughput(t *testing.T) {
	rounds := loadCases()
	a := lab.Annotations{}
	for _, round := range rounds {
		for _, c := range round {
			a[lab.Limits+"container."+c.name] = c.value
		}
	}
	pod := lab.RunPod(t, "pod", a)
	for _, round := range rounds {
		var containers []*cri.Container
		for _, c := range round {
			containers = append(containers, pod.MustRun(c.config(t)))
		}
		// A group returns once its parallel cases are done.
		t.Run("round", func(t *testing.T) {
			for i, c := range round {
				t.Run(c.name, func(t *testing.T) {
					t.Parallel()
					lab.WantRate(t, containers[i].Cgroup, c.disk, c.counter, c.limit)
				})
			}
		})
		stopAll(t, containers)
	}
}

// stopAll stops containers together: each has to wait for its own writes.
func stopAll(t *testing.T, containers []*cri.Container) {
	t.Helper()
	var group sync.WaitGroup
	for _, k := range containers {
		group.Go(func() {
			if err := k.Stop(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
}

func (c loadCase) config(t *testing.T) cri.ContainerConfig {
	t.Helper()
	cfg, path := lab.Sleeper(c.name), "/tmp/file"
	if c.volume != "" {
		cfg = lab.Sleeper(c.name, "/data", c.volume)
		file := lab.File(t, c.volume, c.name)
		path = "/data/" + filepath.Base(file)
		if c.args[0] == "read" {
			fill(t, file, 32*lab.MiB)
		}
	}
	cfg.Args = append(slices.Clip(c.args), "--path", path)
	cfg.Memory = lab.MemoryLimit
	return cfg
}

// fill makes a file that is on the disk and not in the cache.
func fill(t *testing.T, file string, size int64) {
	t.Helper()
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	block := make([]byte, lab.MiB)
	for i := range block {
		block[i] = byte(i%251 + 1)
	}
	for range size / lab.MiB {
		if _, err := f.Write(block); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	dropCache(t, f)
}

// testFirstInstruction verifies that the limit is in force for the first instruction of a container, by the
// container's own clock. Its program begins with a write. With two disks, one limit is in the OCI spec, and the
// plugin writes the other one to the cgroup before the program begins.
func testFirstInstruction(t *testing.T) {
	const limit, size = lab.MiB, 4 * lab.MiB
	pod := lab.RunPod(t, "pod", lab.Annotations{
		lab.Limits + "container.spec":  "/data wbps=1Mi",
		lab.Limits + "container.start": "rootfs wbps=1Mi; /data wbps=1Mi",
	})
	for _, name := range []string{"spec", "start"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := lab.Working(t, name, "write", "--direct", "--size", "4Mi", "--block", "256Ki")
			k := pod.By(t).MustRun(cfg)
			ctx, cancel := context.WithTimeout(t.Context(), lab.Deadline)
			defer cancel()
			out, err := k.Wait(ctx)
			if err != nil {
				t.Fatal(err)
			}
			var r lab.IOReport
			if err := json.Unmarshal([]byte(out), &r); err != nil {
				t.Fatalf("output of iotool %q: %v", out, err)
			}
			rate := float64(r.Bytes) / time.Duration(r.Nanos).Seconds()
			t.Logf("%d bytes at %.0f/s, the first call took %v", r.Bytes, rate, time.Duration(r.FirstNanos))
			if r.Bytes != size || rate > 1.1*limit {
				t.Errorf("%d bytes at %.0f/s from the first instruction on, limit %d", r.Bytes, rate, limit)
			}
			// Only this check would find a limit that takes effect after the first I/O. The I/O of the
			// first 100 ms passes at once: blk-throttle counts in slices of that length, and rounds up.
			if first := time.Duration(r.FirstNanos); first < 125*time.Millisecond {
				t.Errorf("the first 256 KiB took %v, at 1 MiB/s they take 150ms to 250ms", first)
			}
		})
	}
}

// testPodTotalThroughput verifies that two containers without limits of their own together obey the pod-total.
func testPodTotalThroughput(t *testing.T) {
	pod := lab.RunPod(t, "pod", lab.Annotations{lab.Limits + "pod-total": "/data wbps=2Mi"})
	for _, name := range []string{"a", "b"} {
		pod.MustRun(lab.Working(t, name, "write", "--direct"))
	}
	lab.WantRate(t, pod.Cgroup, "vdb", "wbytes", 2*lab.MiB)
}

// dropCache forgets the clean pages of a file.
func dropCache(t *testing.T, f *os.File) {
	t.Helper()
	if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		t.Fatalf("drop the cache of %s: %v", f.Name(), err)
	}
}
