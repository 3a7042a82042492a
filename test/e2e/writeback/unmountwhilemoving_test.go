package writeback

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio/writeback"
	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

// The bugs that the kernel gate is for are races between an unmount, a write, and inodes
// that move to another cgroup's writeback. These tests do all three at once, and read what
// the kernel logs about it.

// kernelWarnings begin what the kernel writes about a bug of its own.
var kernelWarnings = []string{
	"WARNING:", "BUG:", "kernel BUG", "Oops", "Busy inodes", "general protection fault", "blocked for more than", "refcount_t:",
}

// quietKernel returns a check that the kernel has written no warning since.
func quietKernel(t *testing.T) (check func()) {
	t.Helper()
	mark := fmt.Sprintf("nri-blkio %s %d", t.Name(), time.Now().UnixNano())
	if err := os.WriteFile("/dev/kmsg", []byte(mark+"\n"), 0); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		out, err := exec.Command("dmesg").Output()
		if err != nil {
			t.Fatal(err)
		}
		_, since, found := bytes.Cut(out, []byte(mark))
		if !found {
			since = out // the buffer has wrapped
		}
		lines := bufio.NewScanner(bytes.NewReader(since))
		for lines.Scan() {
			if slices.ContainsFunc(kernelWarnings, func(w string) bool { return strings.Contains(lines.Text(), w) }) {
				t.Errorf("the kernel logged: %s", lines.Text())
			}
		}
	}
}

// stalls measures the longest time of a small write on a volume, until end is called. Each write
// creates a file, writes to it, syncs it and removes it.
func stalls(t *testing.T, dir string) (end func() (longest time.Duration, n int)) {
	t.Helper()
	stop, done := make(chan struct{}), make(chan error)
	var all []time.Duration
	go func() {
		name := filepath.Join(dir, "probe")
		for {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			began := time.Now()
			if err := smallWrite(name); err != nil {
				done <- err
				return
			}
			all = append(all, time.Since(began))
		}
	}()
	return func() (time.Duration, int) {
		close(stop)
		if err := <-done; err != nil {
			t.Error(err)
		}
		if len(all) == 0 {
			return 0, 0
		}
		return slices.Max(all), len(all)
	}
}

func smallWrite(name string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, 4096))
	return errors.Join(err, f.Sync(), f.Close(), os.Remove(name))
}

// TestUnmountWhileMoving verifies that volumes can be unmounted as soon as their pod has ended, although files
// on them have just moved and their owners have just ended. Several volumes are unmounted at the same time,
// because the kernel counts the inodes that it moves for all of them together (isw_nr_in_flight in
// fs/fs-writeback.c).
func TestUnmountWhileMoving(t *testing.T) {
	cycles := 1 // of each volume
	if *lab.Proof {
		cycles = 125
	}
	filesystems := []string{"ext4", "xfs", "btrfs", "ext4"}
	k := lab.NewKit(t, len(filesystems))
	var all []cycled
	for i, fs := range filesystems {
		v := cycled{name: fmt.Sprint(fs, "-", i), device: k.One()}
		v.dir = k.Mounts(fs, v.device)
		lab.Volumes[v.name] = v.dir
		t.Cleanup(func() { delete(lab.Volumes, v.name) })
		all = append(all, v)
	}
	quiet := quietKernel(t)
	lab.StartPlugin(t)
	t.Run("volume", func(t *testing.T) {
		for _, v := range all {
			t.Run(v.name, func(t *testing.T) {
				t.Parallel()
				v.goesThrough(t, cycles)
			})
		}
	})
	quiet()
}

// cycled is a volume that is mounted, used by a pod, and unmounted again and again.
type cycled struct{ name, device, dir string }

// goesThrough begins and ends with the volume mounted.
func (v cycled) goesThrough(t *testing.T, cycles int) {
	reader, err := writeback.NewOwnerReader()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	began := time.Now()
	for i := range cycles {
		v.isUsed(t, reader, i)
		lab.Eventually(t, "the volume can be unmounted", func() error { return lab.Runs("umount", v.dir) })
		lab.Administer(t, "mount", v.device, v.dir)
	}
	t.Logf("%d cycles in %v", cycles, time.Since(began).Round(time.Second))
}

// isUsed runs a pod whose limited container writes to a file that another cgroup has made,
// until the file is the container's, and removes both.
func (v cycled) isUsed(t *testing.T, reader *writeback.OwnerReader, i int) {
	t.Helper()
	shared := filepath.Join(v.dir, "shared")
	_ = os.Remove(shared) // of the cycle before
	b := lab.NewWriter(t, v.name)
	b.Writes(shared, 1, "1M", "conv=fsync")
	pod, err := lab.Node.CRI.RunPod(t.Context(), cri.PodConfig{
		Name: fmt.Sprint(v.name, "-", i), Annotations: lab.Annotations{lab.Limits + "container.a": "/data wbps=16Mi"},
	})
	if err != nil {
		t.Fatal(err)
	}
	cfg := lab.Sleeper("a", "/data", v.name)
	cfg.Args = []string{"write", "--path", "/data/shared", "--span", "1Mi", "--sync", "64Ki", "--seconds", "3600"}
	if _, err := pod.Run(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	lab.Within(t, time.Minute, "the file was moved", func() error {
		if ownerIn(t, reader, shared) == b.ID {
			return fmt.Errorf("the owner is still cgroup %d", b.ID)
		}
		return nil
	})
	b.Remove()
	if err := pod.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// ownerIn returns the number of the cgroup that owns a file. It keeps no descriptor.
func ownerIn(t *testing.T, reader *writeback.OwnerReader, file string) uint64 {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	o, err := reader.Owner(f)
	if err != nil {
		t.Fatal(err)
	}
	return o.Cgroup
}

// TestManyFiles verifies that, when a pod that owns many files ends, the release of these files delays other
// writers of that disk, and of another one, not much longer than without the plugin.
func TestManyFiles(t *testing.T) {
	files, after := 2_000, 2*time.Second
	if *lab.Proof {
		files, after = 200_000, 20*time.Second
	}
	quiet := quietKernel(t)
	for _, with := range []bool{false, true} {
		if !with && !*lab.Proof {
			continue // nothing to compare with: it takes its time
		}
		var p *lab.Instance
		if with {
			p = lab.StartPlugin(t, "--log-level", "debug")
		}
		dir := filepath.Join(lab.Volumes["ext4"], fmt.Sprint("many", with))
		if err := os.Mkdir(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		pod := lab.RunPod(t, fmt.Sprint("many", with), lab.Annotations{lab.Limits + "container.a": "/data wbps=100Mi"})
		cfg := lab.Sleeper("a", "/data", "ext4")
		cfg.Args = []string{
			"write", "--path", "/data/" + filepath.Base(dir), "--files", fmt.Sprint(files), "--block", "512",
			"--span", fmt.Sprint(512 * files), "--seconds", "3600", // until it is ended
		}
		pod.MustRun(cfg)
		lab.Within(t, 15*time.Minute, "the files are there", func() error {
			if _, err := os.Stat(filepath.Join(dir, fmt.Sprint(files-1))); err != nil {
				time.Sleep(time.Second)
				return err
			}
			return nil
		})
		same, other := stalls(t, lab.Volumes["ext4"]), stalls(t, lab.Volumes["part"])
		if err := pod.Remove(t.Context()); err != nil {
			t.Fatal(err)
		}
		lab.AwaitOnDisk(t)
		if with {
			p.HandedOver(t, "a")
		}
		time.Sleep(after) // the kernel releases its files in the background
		longest, n := same()
		t.Logf("plugin %v, %d files: longest of %d small writes on the same disk %v", with, files, n, longest.Round(time.Millisecond))
		longest, n = other()
		t.Logf("plugin %v, %d files: longest of %d small writes on another disk %v", with, files, n, longest.Round(time.Millisecond))
		if err := os.RemoveAll(dir); err != nil { // the disk has inodes for one of the two
			t.Fatal(err)
		}
	}
	quiet()
}
