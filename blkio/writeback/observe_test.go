package writeback

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// testObserver watches the filesystem of a new directory, with statistics of its
// programs. The node's tests run where it must not be skipped.
func testObserver(t testing.TB) (o *Observer, dir string) {
	t.Helper()
	o, err := NewObserver()
	if errors.Is(err, ErrUnavailable) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	})
	stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { stats.Close() })
	dir = t.TempDir()
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		t.Fatal(err)
	}
	if err := o.Watch([]blkio.Dev{{Major: unix.Major(st.Dev), Minor: unix.Minor(st.Dev)}}); err != nil {
		t.Skip(err)
	}
	return o, dir
}

// flushes is how many CPUs have been interrupted.
func flushes(t testing.TB, o *Observer) uint64 {
	t.Helper()
	s, err := o.bpf.Programs["blkio_flush"].Stats()
	if err != nil {
		t.Fatal(err)
	}
	return s.RunCount
}

// bytesOf returns the bytes that were counted for a file since the last call.
func bytesOf(t testing.TB, o *Observer, file string) (sum uint64) {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(file, &st); err != nil {
		t.Fatal(err)
	}
	found, _, err := o.Read()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range found {
		if d.Number == st.Ino {
			sum += d.Bytes
		}
	}
	return sum
}

// TestReadInterruptsWriters verifies that only CPUs that have counted something since the last read are
// interrupted.
func TestReadInterruptsWriters(t *testing.T) {
	o, dir := testObserver(t)
	file := filepath.Join(dir, "f")
	if err := os.WriteFile(file, make([]byte, 64<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	switch n := bytesOf(t, o, file); {
	case n == 0:
		t.Skip("files here are not on the filesystem that stat tells of")
	case n < 64<<10:
		t.Fatalf("%d bytes were counted", n)
	}
	// No other filesystem is watched, but other programs may write there. So this waits for a read without
	// writes.
	var last uint64
	for range 100 {
		before := flushes(t, o)
		found, _, err := o.Read()
		if err != nil {
			t.Fatal(err)
		}
		if last = flushes(t, o) - before; len(found) == 0 && last == 0 {
			break
		}
	}
	if last > 0 {
		t.Errorf("the last of 100 reads interrupted %d CPUs, want a read that interrupts none", last)
	}
}

// TestCountsAreShared verifies that a writer with very many files leaves room for the files of others. Bytes
// for which it has no room are counted.
func TestCountsAreShared(t *testing.T) {
	o, dir := testObserver(t)
	if _, _, err := o.Read(); err != nil {
		t.Fatal(err)
	}
	for i := range maxCounts {
		if err := os.WriteFile(filepath.Join(dir, strconv.Itoa(i)), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const few = fewCounts / 2
	other := runInCgroup(t, "other", "sh", "-c", fmt.Sprintf("for i in $(seq %d); do echo x >%s/other$i; done", few, dir))
	found, lost, err := o.Read()
	if err != nil {
		t.Fatal(err)
	}
	by := map[uint64]int{}
	for _, d := range found {
		by[d.Writer]++
	}
	if len(by) == 0 {
		t.Skip("files here are not on the filesystem that stat tells of")
	}
	if lost == 0 {
		t.Error("nothing is lost")
	}
	for writer, n := range by {
		if n > maxCounts/2+2*fewCounts {
			t.Errorf("%d has %d of %d counts", writer, n, maxCounts)
		}
	}
	if by[other] < few {
		t.Errorf("of the %d files of the other writer %d are known", few, by[other])
	}
	// The room of counts that were read is free again.
	if err := os.WriteFile(filepath.Join(dir, "next"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if bytesOf(t, o, filepath.Join(dir, "next")) == 0 {
		t.Error("a write after Read is not counted: Read freed no room")
	}
}

// TestAlarmOfEach verifies that the alarm rings between two reads once for each of a few cgroups that write to
// files of others, and then again.
func TestAlarmOfEach(t *testing.T) {
	o, dir := testObserver(t)
	file := filepath.Join(dir, "f")
	if err := os.WriteFile(file, make([]byte, 64<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(file, &st); err != nil {
		t.Fatal(err)
	}
	for round := range 2 {
		if err := o.SetAlarm(); err != nil {
			t.Fatal(err)
		}
		if _, _, err := o.Read(); err != nil {
			t.Fatal(err)
		}
		var want []uint64
		for _, name := range []string{"a", "b", "a", "b"} {
			id := runInCgroup(t, name, "sh", "-c", "sync "+file+"; dd if=/dev/zero of="+file+" bs=4096 count=1 conv=notrunc status=none")
			want = append(want, id)
		}
		rang := map[uint64]int{}
		for wait := time.After(10 * time.Second); len(rang) < 2; {
			select {
			case d := <-o.Foreign():
				if d.Number == st.Ino {
					rang[d.Writer]++
				}
				continue
			case <-wait:
			}
			break
		}
		if round == 0 && len(rang) == 0 {
			t.Skip("files here have no owners, or others write")
		}
		if rang[want[0]] != 1 || rang[want[1]] != 1 {
			t.Errorf("round %d: the alarm rang for %v, want once for each of %v", round, rang, want[:2])
		}
	}
}

// runInCgroup runs a command in a cgroup of its own, and returns that one's number.
func runInCgroup(t *testing.T, name string, command ...string) uint64 {
	t.Helper()
	root := "/sys/fs/cgroup"
	if _, err := os.Stat(filepath.Join(root, "cgroup.controllers")); err != nil {
		root = filepath.Join(root, "unified")
	}
	dir := filepath.Join(root, "nri-blkio-test-"+strconv.Itoa(os.Getpid())+"-"+name)
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		t.Skip(err)
	}
	t.Cleanup(func() { _ = os.Remove(dir) })
	fd, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer fd.Close()
	cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(fd.Fd())}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	info, err := fd.Stat()
	if err != nil {
		t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t).Ino
}

// BenchmarkRead measures a read while nothing is written.
func BenchmarkRead(b *testing.B) {
	o, _ := testObserver(b)
	for b.Loop() {
		if _, _, err := o.Read(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkDirtied measures the time that the program takes of a writer. One case is 256 pages of one file,
// which it counts in its CPU's slot, the other one page of each of 256 files.
func BenchmarkDirtied(b *testing.B) {
	for name, files := range map[string]int{"one file": 1, "many files": 256} {
		b.Run(name, func(b *testing.B) {
			o, dir := testObserver(b)
			before := statsOf(b, o)
			for b.Loop() {
				for i := range files {
					writePages(b, filepath.Join(dir, strconv.Itoa(i)), 256/files)
				}
				if _, _, err := o.Read(); err != nil {
					b.Fatal(err)
				}
			}
			after := statsOf(b, o)
			runs := after.RunCount - before.RunCount
			b.ReportMetric(float64(after.Runtime-before.Runtime)/float64(max(runs, 1)), "ns/folio")
			b.ReportMetric(float64(runs)/float64(b.N), "folios/op")
		})
	}
}

// statsOf returns the statistics of the program that counts.
func statsOf(tb testing.TB, o *Observer) *ebpf.ProgramStats {
	tb.Helper()
	stats, err := o.bpf.Programs["blkio_dirtied"].Stats()
	if err != nil {
		tb.Fatal(err)
	}
	return stats
}

// writePages replaces a file, page by page: the kernel makes a large folio of a large write.
func writePages(tb testing.TB, name string, pages int) {
	tb.Helper()
	f, err := os.Create(name)
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	page := make([]byte, os.Getpagesize())
	for range pages {
		if _, err := f.Write(page); err != nil {
			tb.Fatal(err)
		}
	}
}
