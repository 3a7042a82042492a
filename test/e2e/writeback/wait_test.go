package writeback

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/wait"
	"github.com/nri-blkio/nri-blkio/test/e2e/cgroup"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

// observer attaches the programs that count waits, for the time of the test. All causes are known on the node's kernels.
func observer(t *testing.T) *wait.Observer {
	t.Helper()
	began := time.Now()
	o, err := wait.Attach()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Logf("attached in %v", time.Since(began).Round(time.Millisecond))
	for cause, err := range o.Unknown() {
		if cause != wait.Async { // Linux 6.1 has no io_cqring_wait that programs can be attached to
			t.Errorf("%s is unknown: %v", cause, err)
		}
	}
	return o
}

// waits returns what was counted while do runs.
func waits(t *testing.T, o *wait.Observer, do func()) wait.Times {
	t.Helper()
	before, err := o.Read()
	if err != nil {
		t.Fatal(err)
	}
	do()
	after, err := o.Read()
	if err != nil {
		t.Fatal(err)
	}
	got := after.Since(before)
	if got.Lost > 0 || got.Full {
		t.Errorf("%d waits were not counted; full: %v", got.Lost, got.Full)
	}
	for place, time := range got.At {
		if time.Sum > 10_000_000 {
			t.Logf("%v: %+v by %d on %s: %+v", place.Cause, place.Cgroup, place.By, place.Dev, time)
		}
	}
	return got
}

func disk(t *testing.T, name string) blkio.Dev {
	t.Helper()
	dev, err := blkio.ParseDev(lab.Node.Disks[name])
	if err != nil {
		t.Fatal(err)
	}
	return dev
}

// limited makes a writer with a limit on the disk of the ext4 volume.
func limited(t *testing.T, name, limit string) lab.Writer {
	t.Helper()
	w := lab.NewWriter(t, name)
	if err := cgroup.Dir(w.Name).SetIOMax(lab.Node.Disks["vdb"] + " " + limit); err != nil {
		t.Fatal(err)
	}
	return w
}

// TestHeld compares the time that io.max holds writes with what the limit implies. With 16 writes under way one is held at all
// times, so that is the time in which the limit lets them pass; the kernel lets about 0.2 s of them pass at once. The time of each
// write adds up to that of 16 less those at the device. A writer beside it has no limit, and is never held.
func TestHeld(t *testing.T) {
	const size, depth = 16 * lab.MiB, 16
	a, b := limited(t, "held", "wbps=1048576"), lab.NewWriter(t, "free")
	o := observer(t)
	file, free := lab.File(t, "ext4", "held"), lab.File(t, "ext4", "free")
	b.Writes(file, 16, "1M", "conv=notrunc,fsync")
	b.Writes(free, 16, "1M", "conv=notrunc,fsync")
	took := map[lab.Writer]time.Duration{}
	got := waits(t, o, func() {
		for w, file := range map[lab.Writer]string{b: free, a: file} {
			began := time.Now()
			w.Does("fio", "--name=h", "--filename="+file, "--rw=write", "--direct=1", "--ioengine=libaio", fmt.Sprint("--iodepth=", depth), "--bs=128k",
				fmt.Sprint("--size=", size), "--output=/dev/null")
			took[w] = time.Since(began)
		}
	})
	held := got.At[wait.Place{Cause: wait.Limit, Op: wait.Direct, Cgroup: a.ID, By: a.ID, Dev: disk(t, "vdb")}]
	const implied = time.Duration(size/lab.MiB) * time.Second
	t.Logf("held %v (%v by bio), the limit implies %v; the writer took %v", held.Wall, held.Sum, implied, took[a])
	// A time that counts twice, or of which some is lost, is out of these. How much longer than implied it takes is due to the machine.
	if held.Wall < implied*97/100 || held.Wall > took[a] {
		t.Errorf("held %v, want from %v to %v", held.Wall, implied*97/100, took[a])
	}
	if each := held.Sum.Seconds() / held.Wall.Seconds(); each < depth/2 || each > depth {
		t.Errorf("%.1f writes are held at a time, want nearly %d", each, depth)
	}
	for place := range got.At {
		if place.Cause == wait.Limit && place.Cgroup != a.ID {
			t.Errorf("a limit is blamed at %+v", place)
		}
	}
}

// TestHeldBefore verifies that I/O counts that was held before the programs were attached, as soon as the limit lets a bio pass.
//
//e2e:proof
func TestHeldBefore(t *testing.T) {
	a := limited(t, "before", "wbps=1048576")
	file := lab.File(t, "ext4", "before")
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.Does("fio", "--name=h", "--filename="+file, "--rw=write", "--direct=1", "--ioengine=libaio", "--iodepth=16", "--bs=128k", "--size=64M",
			"--output=/dev/null")
	}()
	lab.Eventually(t, "its writes are held", func() error {
		if n, err := cgroup.Dir(a.Name).Counter(lab.Node.Disks["vdb"], "wbytes"); err != nil || n < lab.MiB {
			return fmt.Errorf("%d bytes, %w", n, err)
		}
		return nil
	})
	o := observer(t)
	got := waits(t, o, func() { time.Sleep(10 * time.Second) })
	held := got.At[wait.Place{Cause: wait.Limit, Op: wait.Direct, Cgroup: a.ID, By: a.ID, Dev: disk(t, "vdb")}]
	if part := held.Wall.Seconds() / got.Duration.Seconds(); part < 0.9 || part > 1.01 {
		t.Errorf("held for %v of %v, want nearly all of it", held.Wall, got.Duration)
	}
	if err := cgroup.Dir(a.Name).SetIOMax(lab.Node.Disks["vdb"] + " wbps=max"); err != nil {
		t.Error(err)
	}
	<-done
}

// TestHeldAsync verifies that a thread which waits for completions waits for the limit that holds its I/O.
func TestHeldAsync(t *testing.T) {
	o := observer(t)
	for _, engine := range []string{"libaio", "io_uring"} {
		a := limited(t, engine, "wbps=4194304")
		file := lab.File(t, "ext4", engine)
		got := waits(t, o, func() {
			a.Does("fio", "--name=a", "--thread", "--filename="+file, "--rw=write", "--direct=1", "--ioengine="+engine, "--iodepth=16", "--bs=64k", "--size=16M", "--output=/dev/null")
		})
		if o.Unknown()[wait.Async] != nil && engine == "io_uring" {
			if got.At[wait.Place{Cause: wait.Async, Cgroup: a.ID}].Sum > 0 {
				t.Error("io_uring is counted, and unknown")
			}
			continue
		}
		explain(t, got, a, wait.Share{Cause: wait.Limit, By: a.ID, Dev: disk(t, "vdb"), Op: wait.WriteOut})
	}
}

// TestHeldByParent verifies that the cgroup is named whose limit holds a write: here that of the pod.
func TestHeldByParent(t *testing.T) {
	pod := limited(t, "pod", "wbps=1048576")
	lab.WriteFile(t, filepath.Join(cgroup.Root, pod.Name, "cgroup.subtree_control"), "+io")
	container := limited(t, "pod.slice/container", "wbps=8388608")
	o := observer(t)
	file := lab.File(t, "ext4", "pod")
	got := waits(t, o, func() { container.Writes(file, 32, "128k", "oflag=direct") })
	at := wait.Place{Cause: wait.Limit, Op: wait.Direct, Cgroup: container.ID, By: pod.ID, Dev: disk(t, "vdb")}
	byPod := got.At[at]
	at.By = container.ID
	// Of the 4 s that the limit implies, a busy machine takes some. If the container's own limit is blamed, the pod's has none.
	if own := got.At[at]; byPod.Wall < time.Second || own.Wall > byPod.Wall/2 {
		t.Errorf("held %v by the pod, and %v by the container", byPod.Wall, own.Wall)
	}
}

// TestDirtyWait verifies that a writer waits for dirty pages of the node.
func TestDirtyWait(t *testing.T) {
	lab.LittleDirty(t)
	a := limited(t, "dirty", "wbps=8388608")
	o := observer(t)
	got := waits(t, o, func() { a.Writes(lab.File(t, "ext4", "dirty"), 96, "1M") })
	if node := got.At[wait.Place{Cause: wait.DirtyNode, Cgroup: a.ID, By: a.ID}]; node.Sum < time.Second {
		t.Errorf("it waited %v for dirty pages of the node", node.Sum)
	}
	// They are many because the disk takes no more of this writer.
	explain(t, got, a, wait.Share{Cause: wait.Limit, By: a.ID, Dev: disk(t, "vdb"), Op: wait.WriteOut})
}

// TestDirtyWaitBefore verifies that a writer waits for dirty pages that did so before the programs were attached.
func TestDirtyWaitBefore(t *testing.T) {
	lab.LittleDirty(t)
	a := limited(t, "dirty-before", "wbps=1048576")
	file, done := lab.File(t, "ext4", "dirty-before"), make(chan struct{})
	go func() {
		defer close(done)
		a.Writes(file, 80, "1M")
	}()
	lab.Eventually(t, "it waits", func() error {
		s := wait.Samples{}
		pids, err := cgroup.Dir(a.Name).PIDs()
		if err == nil {
			err = s.Sample("/proc", pids)
		}
		if err == nil && s.By[wait.DirtyNode] == 0 {
			err = fmt.Errorf("its threads: %+v", s)
		}
		return err
	})
	got := waits(t, observer(t), func() { time.Sleep(4 * time.Second) })
	node, io := got.At[wait.Place{Cause: wait.DirtyNode, Cgroup: a.ID, By: a.ID}], got.At[wait.Place{Cause: wait.IO, Cgroup: a.ID}]
	if node.Sum < got.Duration/2 || io.Sum > got.Duration/10 {
		t.Errorf("it waited %v for dirty pages of the node, and %v for I/O", node.Sum, io.Sum)
	}
	if err := cgroup.Dir(a.Name).SetIOMax(lab.Node.Disks["vdb"] + " wbps=max"); err != nil {
		t.Error(err)
	}
	<-done
}

// TestDirtyWaitOfCgroup verifies that a writer with little memory waits for dirty pages of its own, while the node may have more.
func TestDirtyWaitOfCgroup(t *testing.T) {
	b := limited(t, "memory", "wbps=16777216")
	if err := os.WriteFile(filepath.Join(cgroup.Root, b.Name, "memory.max"), []byte("134217728"), 0); err != nil {
		t.Fatal(err)
	}
	o := observer(t)
	got := waits(t, o, func() { b.Writes(lab.File(t, "ext4", "memory"), 192, "1M") })
	if own := got.At[wait.Place{Cause: wait.DirtyCgroup, Cgroup: b.ID, By: b.ID}]; own.Sum < time.Second {
		t.Errorf("it waited %v for dirty pages of the cgroup", own.Sum)
	}
}

// TestJournalWait verifies that commits of a journal count.
func TestJournalWait(t *testing.T) {
	o := observer(t)
	for fs, name := range map[string]string{"ext4": "vdb", "xfs": "vdd"} {
		a := lab.NewWriter(t, fs+"-journal")
		got := waits(t, o, func() {
			a.Does("fio", "--name=j", "--filename="+lab.File(t, fs, "journal"), "--rw=write", "--bs=4k", "--size=400k", "--fsync=1", "--output=/dev/null")
		})
		if n := got.At[wait.Place{Cause: wait.Journal, Cgroup: a.ID, Dev: disk(t, name)}]; n.Count < 50 || n.Sum == 0 {
			t.Errorf("%s: waited %d times for the journal, %v", fs, n.Count, n.Sum)
		}
	}
}

// TestOwnerWait verifies that a writer that waits for the pages of another owner names that owner.
func TestOwnerWait(t *testing.T) {
	a, b := limited(t, "owner", "wbps=1048576"), lab.NewWriter(t, "other")
	file := lab.File(t, "ext4", "owned")
	a.Writes(file, 2, "1M", "conv=notrunc,fsync")
	o := observer(t)
	got := waits(t, o, func() { b.Writes(file, 2, "1M", "conv=notrunc,fsync") })
	if w := got.At[wait.Place{Cause: wait.Writeback, Cgroup: b.ID, By: a.ID, Dev: disk(t, "vdb")}]; w.Sum < 500*time.Millisecond {
		t.Errorf("waited %v for pages of the other owner", w.Sum)
	}
	behind := wait.Place{Cause: wait.Limit, Op: wait.WriteOut, Cgroup: a.ID, By: a.ID, Dev: disk(t, "vdb")}
	explain(t, got, b, wait.Share{Cause: wait.Writeback, By: a.ID, Dev: disk(t, "vdb"), Behind: &behind})
}

// explain verifies where a writer spent most of the time that it waited.
func explain(t *testing.T, got wait.Times, of lab.Writer, want wait.Share) {
	t.Helper()
	shares := wait.Explain(got, map[uint64]bool{of.ID: true}, nil)
	if len(shares) == 0 {
		t.Fatal("it waited for nothing")
	}
	t.Logf("%+v", shares)
	first := shares[0]
	want.Time, want.Part = first.Time, first.Part
	if diff := cmp.Diff(want, first); diff != "" || first.Part < 0.7 {
		t.Errorf("most of the time, %.0f %%, is (-want, +got)\n%s", 100*first.Part, diff)
	}
}

// TestWaitSamples compares the stacks of a thread with what the programs count.
//
//e2e:proof
func TestWaitSamples(t *testing.T) {
	a := limited(t, "samples", "wbps=1048576")
	o := observer(t)
	done, samples := make(chan struct{}), wait.Samples{}
	got := waits(t, o, func() {
		go func() {
			defer close(done)
			a.Writes(lab.File(t, "ext4", "samples"), 32, "128k", "oflag=direct")
		}()
		for ended := false; !ended; {
			select {
			case <-done:
				ended = true
			case <-time.After(50 * time.Millisecond):
			}
			pids, err := cgroup.Dir(a.Name).PIDs()
			if err != nil {
				t.Fatal(err)
			}
			if err := samples.Sample("/proc", pids); err != nil {
				t.Fatal(err)
			}
		}
	})
	counted := got.At[wait.Place{Cause: wait.IO, Cgroup: a.ID}].Sum.Seconds() / got.Duration.Seconds()
	sampled := float64(samples.By[wait.IO]) / float64(samples.Threads)
	t.Logf("waited %.2f of the time as counted, %.2f as sampled: %+v", counted, sampled, samples)
	if samples.Threads < 20 || math.Abs(counted-sampled) > 0.15 {
		t.Error("the samples say something else")
	}
}
