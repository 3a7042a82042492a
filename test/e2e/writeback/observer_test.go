package writeback

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
	"github.com/nri-blkio/nri-blkio/blkio/writeback"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

// observed is the sum of the writes of one writer to one file.
type observed struct {
	bytes, charged uint64 // charged: of these to the writer
	owners         map[uint64]bool
}

// observe returns the writes to a file while do runs, by the writer's cgroup. The process that
// forks a writer into its cgroup dirties nothing.
func observe(t *testing.T, o *writeback.Observer, file string, do func()) map[uint64]observed {
	t.Helper()
	if _, _, err := o.Read(); err != nil { // what was before
		t.Fatal(err)
	}
	do()
	found, lost, err := o.Read()
	if err != nil || lost > 0 {
		t.Fatalf("%d bytes are lost, %v", lost, err)
	}
	var st unix.Stat_t
	if err := unix.Stat(file, &st); err != nil {
		t.Fatal(err)
	}
	out := map[uint64]observed{}
	for _, d := range found {
		if d.Number != st.Ino {
			continue
		}
		sum := out[d.Writer]
		if sum.owners == nil {
			sum.owners = map[uint64]bool{}
		}
		sum.bytes += d.Bytes
		sum.owners[d.Owner] = true
		if d.Charged == d.Writer {
			sum.charged += d.Bytes
		}
		out[d.Writer] = sum
	}
	return out
}

// watch watches the filesystem of a volume.
func watch(t *testing.T, fs string) *writeback.Observer {
	t.Helper()
	o, err := writeback.NewObserver()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := o.Watch([]blkio.Dev{superBlock(t, lab.Volumes[fs])}); err != nil {
		t.Fatal(err)
	}
	return o
}

// superBlock is the device number of a filesystem, which for btrfs is not that
// of its files.
func superBlock(t *testing.T, dir string) blkio.Dev {
	t.Helper()
	s, err := storage.Open(storage.Config{Sys: os.DirFS("/sys"), Mountinfo: "/proc/1/mountinfo", HostRoot: "/"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	b := s.Resolve(t.Context(), dir)
	for _, m := range s.Mounts().All() {
		if m.Mountpoint == b.Mountpoint {
			return m.Dev
		}
	}
	t.Fatalf("%s is nowhere mounted", dir)
	return blkio.Dev{}
}

// TestObserver verifies that the observer distinguishes the writer of a file, the cgroup that the pages are
// charged to, and the owner of the file.
func TestObserver(t *testing.T) {
	const size = 4 * lab.MiB
	for _, fs := range filesystemsWithOwners {
		t.Run(fs, func(t *testing.T) {
			t.Parallel() // with an observer, writers and a disk of its own
			a, b := lab.NewWriter(t, fs+"-a"), lab.NewWriter(t, fs+"-b")
			o := watch(t, fs)
			file := lab.File(t, fs, "f")
			for _, step := range []struct {
				name          string
				do            func()
				by            lab.Writer
				bytes         uint64
				chargedTo     lab.Writer
				ownedByOrNone uint64
			}{
				{"b makes it", func() { b.Writes(file, 4, "1M", "conv=notrunc,fsync") }, b, size, b, b.ID},
				{"a writes to it", func() { a.Writes(file, 4, "1M", "conv=notrunc,fsync") }, a, size, b, b.ID},
				{"a writes on", func() { a.Writes(file, 4, "1M", "oflag=append", "conv=notrunc,fsync") }, a, size, a, b.ID},
			} {
				got := observe(t, o, file, step.do)
				sum := got[step.by.ID]
				t.Logf("%s: %+v", step.name, got)
				if len(got) != 1 || sum.bytes < step.bytes || sum.bytes > 2*step.bytes {
					t.Errorf("%s: want %d bytes by %d alone", step.name, step.bytes, step.by.ID)
				}
				if all := step.chargedTo == step.by; all != (sum.charged == sum.bytes) || !all && sum.charged > 0 {
					t.Errorf("%s: %d of %d bytes are charged to who wrote them", step.name, sum.charged, sum.bytes)
				}
				delete(sum.owners, 0) // the file has no owner when its first page becomes dirty
				delete(sum.owners, step.ownedByOrNone)
				if len(sum.owners) > 0 {
					t.Errorf("%s: owned by %v, too", step.name, sum.owners)
				}
			}
			// A write by mmap, which no system call reports.
			got := observe(t, o, file, func() {
				a.Does("fio", "--name=m", "--filename="+file, "--ioengine=mmap", "--rw=write", "--bs=64k", "--size=1M", "--output=/dev/null")
			})
			t.Logf("by mmap: %+v", got)
			if len(got) != 1 || got[a.ID].bytes < lab.MiB {
				t.Error("by mmap: want 1 MiB by a alone")
			}
		})
	}
}

// TestForeign verifies that the alarm reports the first write to a file of another owner, once each time that
// the alarm is set.
func TestForeign(t *testing.T) {
	for _, fs := range filesystemsWithOwners {
		t.Run(fs, func(t *testing.T) {
			t.Parallel() // with an observer, writers and a disk of its own
			a, b, c := lab.NewWriter(t, fs+"-a"), lab.NewWriter(t, fs+"-b"), lab.NewWriter(t, fs+"-c")
			o := watch(t, fs)
			file := lab.File(t, fs, "f")
			a.Writes(file, 1, "1M", "conv=notrunc,fsync")
			var st unix.Stat_t
			if err := unix.Stat(file, &st); err != nil {
				t.Fatal(err)
			}
			for _, step := range []struct {
				name  string
				set   bool
				by    lab.Writer
				rings bool
			}{
				{"it is not set", false, b, false},
				{"the owner writes", true, a, false},
				{"another writes", false, b, true},
				{"another writes on", false, b, false},
				{"a third one writes", false, c, true},
				{"another writes, and it is set again", true, b, true},
			} {
				if step.set {
					if err := o.SetAlarm(); err != nil {
						t.Fatal(err)
					}
				}
				if _, _, err := o.Read(); err != nil {
					t.Fatal(err)
				}
				patience := 2 * time.Second
				if step.rings {
					patience = lab.Deadline
				}
				step.by.Writes(file, 1, "64k", "seek=8", "conv=notrunc,fsync")
				select {
				case d := <-o.Foreign():
					t.Logf("%s: %+v", step.name, d)
					if !step.rings || d.Number != st.Ino || d.Writer != step.by.ID || d.Owner != a.ID || d.First > 8*64<<10 || d.Last != d.First { // a large folio begins earlier
						t.Errorf("%s: %+v", step.name, d)
					}
				case <-time.After(patience):
					if step.rings {
						t.Errorf("%s: it does not ring", step.name)
					}
				}
			}
		})
	}
}

// TestObserverElsewhere verifies that writes to unwatched filesystems are not counted, and that no program is
// attached while no filesystem is watched.
func TestObserverElsewhere(t *testing.T) {
	a := lab.NewWriter(t, "a")
	o := watch(t, "ext4")
	file := lab.File(t, "xfs", "f")
	if got := observe(t, o, file, func() { a.Writes(file, 1, "1M") }); len(got) > 0 {
		t.Errorf("writes to an unwatched filesystem were counted: %v", got)
	}
	if n := tracingLinks(t); n != 1 {
		t.Errorf("%d programs are attached, want 1", n)
	}
	if err := o.Watch(nil); err != nil {
		t.Fatal(err)
	}
	if n := tracingLinks(t); n != 0 {
		t.Errorf("%d programs are attached while no filesystem is watched, want 0", n)
	}
}

// tracingLinks are the attached programs that this process holds.
func tracingLinks(t *testing.T) int {
	t.Helper()
	files, err := filepath.Glob("/proc/self/fdinfo/*")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, f := range files {
		text, _ := os.ReadFile(f) // of one that was closed: none
		n += strings.Count(string(text), "\ntp_name:\twriteback_dirty_folio")
	}
	return n
}

// TestObserverLoss verifies that writes for which the observer has no room are counted as lost.
func TestObserverLoss(t *testing.T) {
	a := lab.NewWriter(t, "a")
	o := watch(t, "ext4")
	dir := lab.File(t, "ext4", "many")
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	const files = 1<<14 + 500
	a.Does("sh", "-c", fmt.Sprintf(`cd %s && head -c %d /dev/zero | split -a 4 -b 4096`, dir, files*4096))
	found, lost, err := o.Read()
	if err != nil {
		t.Fatal(err)
	}
	var sum uint64
	for _, d := range found {
		sum += d.Bytes
	}
	t.Logf("%d files, %d bytes, %d lost", len(found), sum, lost)
	if lost < 400*4096 || sum+lost < files*4096 {
		t.Errorf("%d bytes are counted and %d lost, want %d together and some lost", sum, lost, files*4096)
	}
	if again, _, err := o.Read(); err != nil || len(again) > 100 {
		t.Errorf("a second read returns %d files again, error %v, want at most 100", len(again), err)
	}
}

// TestObserverCost measures the share of the time of a write that the observer uses.
//
//e2e:proof
func TestObserverCost(t *testing.T) {
	stats, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
	if err != nil {
		t.Fatal(err)
	}
	defer stats.Close()
	a := lab.NewWriter(t, "a")
	programs := loadedBy(t, func() { watch(t, "ext4") })
	nothing := doesNothing(t)
	for _, block := range []struct {
		name  string
		count int
	}{{"4k", 1 << 14}, {"64k", 1 << 10}} {
		file := lab.File(t, "ext4", block.name)
		a.Writes(file, 4, "16M", "conv=notrunc,fsync") // no blocks to allocate while it counts
		before := costOf(t, programs, "blkio_dirtied")
		measuring := runtimeOf(t, nothing)
		began := time.Now()
		a.Writes(file, block.count, block.name)
		took := time.Since(began)
		cost := costOf(t, programs, "blkio_dirtied")
		runs, spent := cost.RunCount-before.RunCount, cost.Runtime-before.Runtime
		if runs == 0 {
			t.Fatal("it never ran")
		}
		measuring = runtimeOf(t, nothing) - measuring
		t.Logf("64 MiB in blocks of %s: %v, %d runs of %v, %.2f %% of the time; a program that does nothing: %v, %.2f %%",
			block.name, took.Round(time.Millisecond), runs, spent/time.Duration(runs), 100*spent.Seconds()/took.Seconds(),
			measuring/time.Duration(runs), 100*measuring.Seconds()/took.Seconds())
	}
}

// doesNothing is a program at the same place: its time is that of measuring it.
func doesNothing(t *testing.T) *ebpf.Program {
	t.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "nothing", Type: ebpf.Tracing, AttachType: ebpf.AttachTraceRawTp, AttachTo: "writeback_dirty_folio", License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	attached, err := link.AttachTracing(link.TracingOptions{Program: p})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { attached.Close() })
	return p
}

func runtimeOf(t *testing.T, p *ebpf.Program) time.Duration {
	t.Helper()
	s, err := p.Stats()
	if err != nil {
		t.Fatal(err)
	}
	return s.Runtime
}
