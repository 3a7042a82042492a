package lab

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/blkio/writeback"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/plugin/repair"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/test/e2e/cgroup"
)

// DiskOf is the disk of each volume that the tests of repair write to.
var DiskOf = map[string]string{"ext4": "vdb", "xfs": "vdd", "btrfs": "vde"}

// WaysToWrite are endless ways to write to a file that another writer has created. In the first two, each
// process ends soon.
var WaysToWrite = []WayToWrite{
	{"rewrite", func(f string) []string {
		return []string{"sh", "-c", "while :; do for i in 0 1 2 3 4 5 6 7; do dd if=/dev/zero of=" + f + " bs=1M count=1 seek=$i conv=notrunc,fsync status=none || exit; done; done"}
	}},
	{"append", func(f string) []string {
		return []string{"sh", "-c", "while :; do dd if=/dev/zero of=" + f + " bs=64k count=16 oflag=append conv=notrunc,fsync status=none || exit; done"}
	}},
	{"mmap", func(f string) []string {
		return []string{"fio", "--name=m", "--filename=" + f, "--ioengine=mmap", "--rw=write", "--bs=64k", "--size=8M", "--fsync=16", "--time_based", "--runtime=600", "--output=/dev/null"}
	}},
	{"unlinked", WayUnlinked},
}

// WayToWrite is a command that writes to a file without end.
type WayToWrite struct {
	Name    string
	Command func(file string) []string
}

// StartRepair starts the program's one part.
func StartRepair(t *testing.T, args ...string) *Instance {
	t.Helper()
	p := Launch(t, append([]string{"--only", "writeback", "--log-level", "debug"}, args...)...)
	p.Await(t, "Started", 1)
	return p
}

// Limit gives a writer a limit on a volume's disk, and the record that says so.
func (w Writer) Limit(fs string, wbps int) {
	w.t.Helper()
	dev, disk := Node.Disks[DiskOf[fs]], DiskOf[fs]
	number, err := blkio.ParseDev(dev)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := cgroup.Dir(w.Name).SetIOMax(fmt.Sprintf("%s wbps=%d", dev, wbps)); err != nil {
		w.t.Fatal(err)
	}
	tree, err := cgroupfs.OpenHierarchy(cgroup.Root)
	if err != nil {
		w.t.Fatal(err)
	}
	defer tree.Close()
	rec := record.Record{
		Kind: record.KindContainer, Namespace: "test", Pod: "pod", UID: "u", Container: w.Name,
		Settings: policy.Settings{{Value: blkio.Value{Address: blkio.Address{Key: blkio.Wbps, Dev: number}, Amount: blkio.Amount(wbps)}}},
		Disks:    map[blkio.Dev]string{number: disk},
	}
	if err := record.Write(tree.Cgroup(w.Name), &rec); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		dir := filepath.Join(cgroup.Root, filepath.Dir(w.Name))
		if err := unix.Removexattr(dir, record.Xattr+"."+filepath.Base(w.Name)); err != nil && !errors.Is(err, unix.ENODATA) {
			w.t.Error(err)
		}
	})
}

// Starts runs a command in the cgroup until it is ended, or the test.
func (w Writer) Starts(command ...string) (end func()) {
	w.t.Helper()
	dir, err := os.Open(filepath.Join(cgroup.Root, w.Name))
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
		if err := os.WriteFile(filepath.Join(cgroup.Root, w.Name, "cgroup.kill"), []byte("1"), 0); err != nil {
			w.t.Error(err)
		}
		if err := cmd.Wait(); err != nil && !killed(err) {
			w.t.Errorf("%s: %v: %s", strings.Join(command, " "), err, &out)
		}
		Within(w.t, Deadline, "the cgroup is empty", func() error {
			events, err := os.ReadFile(filepath.Join(cgroup.Root, w.Name, "cgroup.events"))
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

// Written returns the bytes that are charged to the writer on a volume's disk.
func (w Writer) Written(fs string) uint64 {
	w.t.Helper()
	n, err := cgroup.Dir(w.Name).Counter(Node.Disks[DiskOf[fs]], "wbytes")
	if err != nil {
		w.t.Fatal(err)
	}
	return uint64(n)
}

// WayUnlinked syncs each 8 MiB.
func WayUnlinked(f string) []string {
	return []string{"sh", "-c", "exec 3<>" + f + "; rm " + f + "; while :; do dd if=/dev/zero of=/proc/self/fd/3 bs=1M count=8 conv=notrunc,fsync status=none || exit; done"}
}

// Report returns the report of the writeback part, which status shows.
func Report(t *testing.T) *repair.Report {
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

// AwaitWatched waits until the program watches a volume's filesystem.
func AwaitWatched(t *testing.T, fs string) {
	t.Helper()
	Eventually(t, fs+" is watched", func() error {
		for _, w := range Report(t).Filesystems {
			if strings.HasPrefix(Volumes[fs], w.Mountpoint+"/") {
				return nil
			}
		}
		return fmt.Errorf("the report lists no filesystem of %s", Volumes[fs])
	})
}

// owns creates a file that the writer owns, and opens it. In one of some hundred cases the kernel has no memory
// for its state of a cgroup that is new to the disk, and the root cgroup owns the file (inode_attach_wb).
func (w Writer) owns(reader *writeback.OwnerReader, file string) *os.File {
	w.t.Helper()
	var got uint64
	for range 3 {
		w.Writes(file, 8, "1M", "conv=notrunc,fsync")
		f, err := os.Open(file)
		if err != nil {
			w.t.Fatal(err)
		}
		o, err := reader.Owner(f)
		if err != nil {
			w.t.Fatal(err)
		}
		if got = o.Cgroup; got == w.ID {
			return f
		}
		f.Close()
		os.Remove(file)
	}
	w.t.Fatalf("%s: the owner is cgroup %d before the test, want %d", file, got, w.ID)
	return nil
}

// chargedRight verifies that the writes of a limited writer to a file that was moved to it are charged to the writer, and not to the
// former owner. Data that was queued before is charged to the former owner, and on a busy node it stays queued for longer: a file
// that is still the former owner's fails in each of the windows. A rate above the limit fails at once.
func chargedRight(t *testing.T, a, b Writer, fs string, limit float64) {
	t.Helper()
	Eventually(t, "the writes are charged to the writer", func() error { return charged(t, a, b, fs, limit) })
}

// charged returns an error unless all writes are charged to a for some seconds. It fails the test if they exceed the limit.
func charged(t *testing.T, a, b Writer, fs string, limit float64) error {
	t.Helper()
	time.Sleep(time.Second)
	own, others := a.Written(fs), b.Written(fs)
	after := time.Now()
	time.Sleep(3 * time.Second)
	own, others = a.Written(fs)-own, b.Written(fs)-others
	rate := float64(own) / time.Since(after).Seconds()
	t.Logf("after the move: %.1f MiB charged to the writer, %.1f MiB to the former owner, at %.2f of the limit", float64(own)/MiB, float64(others)/MiB, rate/limit)
	if own == 0 || float64(others) > 0.01*float64(own+others) {
		return fmt.Errorf("%d bytes are charged to the writer and %d to the former owner, want at most 1 %% to the former owner", own, others)
	}
	if rate > 1.5*limit { // one write is as large as the bytes that the limit allows in this time
		t.Fatalf("the writer writes %.0f bytes/s, limit %.0f", rate, limit)
	}
	return nil
}

// Switches returns how long it took until a file belonged to its writer.
func Switches(t *testing.T, reader *writeback.OwnerReader, fs string, command func(string) []string) time.Duration {
	t.Helper()
	const limit = 4 * MiB
	a, b := NewWriter(t, fs+"-a"), NewWriter(t, fs+"-b") // other filesystems have theirs at the same time
	a.Limit(fs, limit)
	file := File(t, fs, "f")
	f := b.owns(reader, file)
	defer f.Close()
	owner := func() uint64 {
		o, err := reader.Owner(f)
		if err != nil {
			t.Fatal(err)
		}
		return o.Cgroup
	}
	AwaitWatched(t, fs)
	modified := func() time.Time {
		st, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		return st.ModTime()
	}
	var began time.Time // of writing: to start a program takes its time
	before := modified()
	end := a.Starts(command(file)...)
	Within(t, time.Minute, "the file belongs to its writer", func() error {
		if now := modified(); began.IsZero() && now.After(before) {
			began = now
		}
		if owner() != a.ID {
			return fmt.Errorf("the owner is cgroup %d, want %d", owner(), a.ID)
		}
		return nil
	})
	took := time.Since(began)
	t.Logf("%v; %.1f MiB escaped", took.Round(time.Millisecond), float64(b.Written(fs))/MiB)
	chargedRight(t, a, b, fs, limit)
	if got := owner(); got != a.ID {
		t.Errorf("the owner at the end is cgroup %d, want %d", got, a.ID)
	}
	end()
	os.Remove(file)
	f.Close()
	a.Remove()
	b.Remove()
	return took
}
