package e2e

import (
	"context"
	"encoding/json"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/test/e2e/cgroup"
	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
)

const (
	mib = 1 << 20
	// memoryLimit bounds the dirty pages of a buffered writer, so that its
	// writes soon go at the pace of the disk.
	memoryLimit = 48 * mib
	// settle is left out of a measurement: the cache fills, queues fill.
	settle  = 2 * time.Second
	measure = 5 * time.Second
)

// loadCase is a container that does more I/O than it may.
type loadCase struct {
	name    string
	value   string // of the container's annotation
	volume  string // at /data
	file    string // path in the container; default: one of its own below /data
	args    []string
	memory  int64
	disk    string
	counter string // of io.stat
	limit   int64
}

func loadCases() []loadCase {
	write := []string{"write", "--block", "64Ki"}
	read := []string{"read", "--block", "64Ki", "--span", "32Mi"}
	direct := func(args []string) []string { return append(args[:len(args):len(args)], "--direct") }
	return []loadCase{
		{name: "direct-write-ext4", value: "/data wbps=1Mi", volume: "ext4", args: direct(write), disk: "vdb", counter: "wbytes", limit: mib},
		{name: "direct-write-partition", value: "/data wbps=2Mi", volume: "part", args: direct(write), disk: "vdc", counter: "wbytes", limit: 2 * mib},
		{name: "direct-write-rootfs", value: "rootfs wbps=1Mi", file: "/tmp/file", args: direct(write), disk: "vda", counter: "wbytes", limit: mib},
		{name: "direct-write-operations", value: "/data wiops=40", volume: "xfs", args: direct(write), disk: "vdd", counter: "wios", limit: 40},
		{name: "direct-read-ext4", value: "/data rbps=2Mi", volume: "ext4", args: direct(read), disk: "vdb", counter: "rbytes", limit: 2 * mib},
		{name: "direct-read-operations", value: "/data riops=50", volume: "part", args: direct(read), disk: "vdc", counter: "rios", limit: 50},
		{name: "buffered-read-xfs", value: "/data rbps=2Mi", volume: "xfs", args: read, disk: "vdd", counter: "rbytes", limit: 2 * mib},
		{name: "buffered-write-ext4", value: "/data wbps=2Mi", volume: "ext4", args: write, memory: memoryLimit, disk: "vdb", counter: "wbytes", limit: 2 * mib},
		{name: "buffered-write-xfs", value: "/data wbps=2Mi", volume: "xfs", args: write, memory: memoryLimit, disk: "vdd", counter: "wbytes", limit: 2 * mib},
		{name: "buffered-write-btrfs", value: "/data wbps=2Mi", volume: "btrfs", args: write, memory: memoryLimit, disk: "vde", counter: "wbytes", limit: 2 * mib},
		{name: "buffered-write-rootfs", value: "rootfs wbps=2Mi", file: "/tmp/file", args: write, memory: memoryLimit, disk: "vda", counter: "wbytes", limit: 2 * mib},
	}
}

// TestThroughput measures what the kernel lets through, in io.stat.
func TestThroughput(t *testing.T) {
	startPlugin(t)
	cases := loadCases()
	a := annotations{}
	for _, c := range cases {
		a[limits+"container."+c.name] = c.value
	}
	pod := runPod(t, "pod", a)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			k := podOf{pod.Pod, t}.run(c.config(t))
			// The load of one case is not the noise of the next.
			defer func() { _ = k.Stop(context.Background()) }() // it goes with the pod anyway
			wantRate(t, k.Cgroup, c.disk, c.counter, c.limit)
		})
	}
}

func (c loadCase) config(t *testing.T) cri.ContainerConfig {
	t.Helper()
	cfg := sleeper(c.name)
	if c.volume != "" {
		cfg = sleeper(c.name, "/data", c.volume)
		file := testFile(t, c.volume, "file")
		c.file = "/data" + file[len(volumes[c.volume]):]
		if c.args[0] == "read" {
			fill(t, file, 32*mib)
		}
	}
	cfg.Args = append(c.args[:len(c.args):len(c.args)], "--path", c.file)
	cfg.Memory = c.memory
	return cfg
}

// wantRate measures a counter against a limit that is in full use.
func wantRate(t *testing.T, dir, disk, counter string, limit int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*deadline)
	defer cancel()
	m, err := cgroup.Dir(dir).Measure(ctx, node.disks[disk], counter, settle, measure)
	if err != nil {
		t.Errorf("%s of %s: %v", counter, disk, err)
		return
	}
	t.Logf("%s of %s: %v, %.1f %% of the limit of %d/s", counter, disk, m, 100*m.Over(limit), limit)
	if over := m.Over(limit); over < 0.9 || over > 1.1 {
		t.Errorf("%s of %s: %v is not within 10 %% of %d/s", counter, disk, m, limit)
	}
}

// fill makes a file that is on the disk and not in the cache.
func fill(t *testing.T, file string, size int64) {
	t.Helper()
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	block := make([]byte, mib)
	for i := range block {
		block[i] = byte(i%251 + 1)
	}
	for range size / mib {
		if _, err := f.Write(block); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	dropCache(t, f)
}

// ioReport is the line that iotool prints.
type ioReport struct {
	Bytes, Calls, Nanos, FirstNanos int64
}

// TestFirstInstruction: the container's program begins with a write, and its
// own clock says that the limit was there. With two disks, one limit is in the
// OCI spec and the other was written to the cgroup before the program began.
func TestFirstInstruction(t *testing.T) {
	startPlugin(t)
	const limit, size = mib, 4 * mib
	pod := runPod(t, "pod", annotations{
		limits + "container.spec":  "/data wbps=1Mi",
		limits + "container.start": "rootfs wbps=1Mi; /data wbps=1Mi",
	})
	for _, name := range []string{"spec", "start"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := working(t, name, "ext4", "write", "--direct", "--size", "4Mi", "--block", "256Ki")
			k := podOf{pod.Pod, t}.run(cfg)
			ctx, cancel := context.WithTimeout(t.Context(), deadline)
			defer cancel()
			out, err := k.Wait(ctx)
			if err != nil {
				t.Fatal(err)
			}
			var r ioReport
			if err := json.Unmarshal([]byte(out), &r); err != nil {
				t.Fatalf("output of iotool %q: %v", out, err)
			}
			rate := float64(r.Bytes) / time.Duration(r.Nanos).Seconds()
			t.Logf("%d bytes at %.0f/s, the first call took %v", r.Bytes, rate, time.Duration(r.FirstNanos))
			if r.Bytes != size || rate > 1.1*limit {
				t.Errorf("%d bytes at %.0f/s from the first instruction on, limit %d", r.Bytes, rate, limit)
			}
			// A limit that came with the second call would show here alone.
			if first := time.Duration(r.FirstNanos); first < 200*time.Millisecond {
				t.Errorf("the first 256 KiB took %v, at 1 MiB/s they take 250ms", first)
			}
		})
	}
}

// TestPodTotalThroughput: two containers without limits of their own share
// what the pod may do.
func TestPodTotalThroughput(t *testing.T) {
	startPlugin(t)
	pod := runPod(t, "pod", annotations{limits + "pod-total": "/data wbps=2Mi"})
	for _, name := range []string{"a", "b"} {
		pod.run(working(t, name, "ext4", "write", "--direct"))
	}
	wantRate(t, pod.Cgroup, "vdb", "wbytes", 2*mib)
}

// dropCache forgets the clean pages of a file.
func dropCache(t *testing.T, f *os.File) {
	t.Helper()
	if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		t.Fatalf("drop the cache of %s: %v", f.Name(), err)
	}
}
