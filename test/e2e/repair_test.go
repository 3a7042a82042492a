package e2e

import (
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

	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/policy"

	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/writeback"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/plugin/repair"
	"github.com/nri-blkio/nri-blkio/test/e2e/cgroup"
)

// These tests run the writeback part alone, which moves files to their writers, with cgroups that
// the tests create. The part knows limits only by the records on cgroups. TestScenarios runs it
// with containers.

// diskOf is the disk of each volume that the tests of repair write to.
var diskOf = map[string]string{"ext4": "vdb", "xfs": "vdd", "btrfs": "vde"}

// startRepair starts the program's one part.
func startRepair(t *testing.T, args ...string) *instance {
	t.Helper()
	p := launch(t, append([]string{"--only", "writeback", "--log-level", "debug"}, args...)...)
	p.await(t, "Started", 1)
	return p
}

// limit gives a writer a limit on a volume's disk, and the record that says so.
func (w writer) limit(fs string, wbps int) {
	w.t.Helper()
	dev, disk := node.disks[diskOf[fs]], diskOf[fs]
	number, err := blkio.ParseDev(dev)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := cgroup.Dir(w.name).SetIOMax(fmt.Sprintf("%s wbps=%d", dev, wbps)); err != nil {
		w.t.Fatal(err)
	}
	tree, err := cgroupfs.OpenHierarchy(cgroup.Root)
	if err != nil {
		w.t.Fatal(err)
	}
	defer tree.Close()
	rec := record.Record{
		Kind: record.KindContainer, Namespace: "test", Pod: "pod", UID: "u", Container: w.name,
		Settings: policy.Settings{{Value: blkio.Value{Address: blkio.Address{Key: blkio.Wbps, Dev: number}, Amount: blkio.Amount(wbps)}}},
		Disks:    map[blkio.Dev]string{number: disk},
	}
	if err := record.Write(tree.Cgroup(w.name), &rec); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		dir := filepath.Join(cgroup.Root, filepath.Dir(w.name))
		if err := unix.Removexattr(dir, record.Xattr+"."+filepath.Base(w.name)); err != nil && !errors.Is(err, unix.ENODATA) {
			w.t.Error(err)
		}
	})
}

// starts runs a command in the cgroup until it is ended, or the test.
func (w writer) starts(command ...string) (end func()) {
	w.t.Helper()
	dir, err := os.Open(filepath.Join(cgroup.Root, w.name))
	if err != nil {
		w.t.Fatal(err)
	}
	defer dir.Close()
	cmd := exec.Command(command[0], command[1:]...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &unix.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd()), Pdeathsig: unix.SIGKILL}
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	ended := false
	end = func() {
		if ended {
			return
		}
		ended = true
		// The whole cgroup: fio's processes leave the group.
		if err := os.WriteFile(filepath.Join(cgroup.Root, w.name, "cgroup.kill"), []byte("1"), 0); err != nil {
			w.t.Error(err)
		}
		if err := cmd.Wait(); err != nil && !killed(err) {
			w.t.Errorf("%s: %v: %s", strings.Join(command, " "), err, &out)
		}
		within(w.t, deadline, "the cgroup is empty", func() error {
			events, err := os.ReadFile(filepath.Join(cgroup.Root, w.name, "cgroup.events"))
			if err == nil && !strings.Contains(string(events), "populated 0") {
				err = fmt.Errorf("cgroup.events is %q, want populated 0", events)
			}
			return err
		})
	}
	w.t.Cleanup(end)
	return end
}

func killed(err error) bool {
	var exit *exec.ExitError
	return errors.As(err, &exit) && !exit.Exited()
}

// written returns the bytes that are charged to the writer on a volume's disk.
func (w writer) written(fs string) uint64 {
	w.t.Helper()
	n, err := cgroup.Dir(w.name).Counter(node.disks[diskOf[fs]], "wbytes")
	if err != nil {
		w.t.Fatal(err)
	}
	return uint64(n)
}

type wayToWrite struct {
	name    string
	command func(file string) []string
}

// waysToWrite are endless ways to write to a file that another writer has created. In the first two, each
// process ends soon.
var waysToWrite = []wayToWrite{
	{"rewrite", func(f string) []string {
		return []string{"sh", "-c", "while :; do for i in 0 1 2 3 4 5 6 7; do dd if=/dev/zero of=" + f + " bs=1M count=1 seek=$i conv=notrunc,fsync status=none || exit; done; done"}
	}},
	{"append", func(f string) []string {
		return []string{"sh", "-c", "while :; do dd if=/dev/zero of=" + f + " bs=64k count=16 oflag=append conv=notrunc,fsync status=none || exit; done"}
	}},
	{"mmap", func(f string) []string {
		return []string{"fio", "--name=m", "--filename=" + f, "--ioengine=mmap", "--rw=write", "--bs=64k", "--size=8M", "--fsync=16", "--time_based", "--runtime=600", "--output=/dev/null"}
	}},
	{"unlinked", wayUnlinked},
}

// wayUnlinked syncs each 8 MiB.
func wayUnlinked(f string) []string {
	return []string{"sh", "-c", "exec 3<>" + f + "; rm " + f + "; while :; do dd if=/dev/zero of=/proc/self/fd/3 bs=1M count=8 conv=notrunc,fsync status=none || exit; done"}
}

// TestRepair verifies that a file of another cgroup moves to a limited writer while that writes to it, and that
// its writes are charged to the writer from then on.
func TestRepair(t *testing.T) {
	startRepair(t)
	reader, err := writeback.NewOwnerReader()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { reader.Close() }) // the parallel cases run after this function
	times := 1
	if *proof {
		times = 25
	}
	all := make([][]time.Duration, len(filesystemsWithOwners))
	t.Cleanup(func() { logSwitches(t, slices.Concat(all...)) })
	for i, fs := range filesystemsWithOwners {
		t.Run(fs, func(t *testing.T) {
			besideOthers(t)
			for _, way := range waysToWrite {
				t.Run(way.name, func(t *testing.T) {
					for range times {
						all[i] = append(all[i], switches(t, reader, fs, way.command))
					}
				})
			}
		})
	}
}

// besideOthers lets the case of one filesystem run beside those of the others, each of which is
// on its own disk. A proof runs them one after another: it takes longer for each, and the
// documentation has the times that it measures.
func besideOthers(t *testing.T) {
	t.Helper()
	if !*proof {
		t.Parallel()
	}
}

func logSwitches(t *testing.T, all []time.Duration) {
	t.Helper()
	if len(all) == 0 {
		return // E2E_RUN chose none, or the first one failed
	}
	slices.Sort(all)
	t.Logf("%d switches: p50 %v, p99 %v, at most %v", len(all), all[len(all)/2], all[len(all)*99/100], all[len(all)-1])
}

// report returns the report of the writeback part, which status shows.
func report(t *testing.T) *repair.Report {
	t.Helper()
	r, err := repair.ReadReport("/run/nri-blkio/writeback.json")
	if err != nil {
		t.Fatal(err)
	}
	if r == nil {
		return &repair.Report{}
	}
	return r
}

// awaitWatched waits until the program watches a volume's filesystem.
func awaitWatched(t *testing.T, fs string) {
	t.Helper()
	within(t, 30*time.Second, fs+" is watched", func() error {
		for _, w := range report(t).Filesystems {
			if strings.HasPrefix(volumes[fs], w.Mountpoint+"/") {
				return nil
			}
		}
		return fmt.Errorf("the report lists no filesystem of %s", volumes[fs])
	})
}

// owns creates a file that the writer owns, and opens it. In one of some hundred cases the kernel has no memory
// for its state of a cgroup that is new to the disk, and the root cgroup owns the file (inode_attach_wb).
func (w writer) owns(reader *writeback.OwnerReader, file string) *os.File {
	w.t.Helper()
	var got uint64
	for range 3 {
		w.writes(file, 8, "1M", "conv=notrunc,fsync")
		f, err := os.Open(file)
		if err != nil {
			w.t.Fatal(err)
		}
		o, err := reader.Owner(f)
		if err != nil {
			w.t.Fatal(err)
		}
		if got = o.Cgroup; got == w.id {
			return f
		}
		f.Close()
		os.Remove(file)
	}
	w.t.Fatalf("%s: the owner is cgroup %d before the test, want %d", file, got, w.id)
	return nil
}

// chargedRight verifies for some seconds that the writes of a limited writer to a file that was moved to it are
// charged to the writer, and not to the former owner.
func chargedRight(t *testing.T, a, b writer, fs string, limit float64) {
	t.Helper()
	// Data that was queued before is charged to the former owner.
	time.Sleep(time.Second)
	own, others := a.written(fs), b.written(fs)
	after := time.Now()
	time.Sleep(3 * time.Second)
	own, others = a.written(fs)-own, b.written(fs)-others
	rate := float64(own) / time.Since(after).Seconds()
	t.Logf("after the move: %.1f MiB charged to the writer, %.1f MiB to the former owner, at %.2f of the limit", float64(own)/mib, float64(others)/mib, rate/limit)
	if own == 0 || float64(others) > 0.01*float64(own+others) {
		t.Errorf("%d bytes are charged to the writer and %d to the former owner, want at most 1 %% to the former owner", own, others)
	}
	if rate > 1.5*limit { // one write is as large as the bytes that the limit allows in this time
		t.Errorf("the writer writes %.0f bytes/s, limit %.0f", rate, limit)
	}
}

// switches returns how long it took until a file belonged to its writer.
func switches(t *testing.T, reader *writeback.OwnerReader, fs string, command func(string) []string) time.Duration {
	t.Helper()
	const limit = 4 * mib
	a, b := newWriter(t, fs+"-a"), newWriter(t, fs+"-b") // other filesystems have theirs at the same time
	a.limit(fs, limit)
	file := testFile(t, fs, "f")
	f := b.owns(reader, file)
	defer f.Close()
	owner := func() uint64 {
		o, err := reader.Owner(f)
		if err != nil {
			t.Fatal(err)
		}
		return o.Cgroup
	}
	awaitWatched(t, fs)
	modified := func() time.Time {
		st, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		return st.ModTime()
	}
	var began time.Time // of writing: to start a program takes its time
	before := modified()
	end := a.starts(command(file)...)
	within(t, time.Minute, "the file belongs to its writer", func() error {
		if now := modified(); began.IsZero() && now.After(before) {
			began = now
		}
		if owner() != a.id {
			return fmt.Errorf("the owner is cgroup %d, want %d", owner(), a.id)
		}
		return nil
	})
	took := time.Since(began)
	t.Logf("%v; %.1f MiB escaped", took.Round(time.Millisecond), float64(b.written(fs))/mib)
	chargedRight(t, a, b, fs, limit)
	if got := owner(); got != a.id {
		t.Errorf("the owner at the end is cgroup %d, want %d", got, a.id)
	}
	end()
	os.Remove(file)
	f.Close()
	a.remove()
	b.remove()
	return took
}
