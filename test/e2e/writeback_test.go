package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/writeback"
	"github.com/nri-blkio/nri-blkio/test/e2e/cgroup"
)

// These look into the kernel from within the tests. What writes are processes in
// cgroups of the tests' own, which takes less time than containers.

// writer is a cgroup to write in.
type writer struct {
	t    *testing.T
	name string // below the root
	id   uint64
}

func newWriter(t *testing.T, name string) writer {
	t.Helper()
	w := writer{t: t, name: "e2e-" + name + ".slice"}
	dir := filepath.Join(cgroup.Root, w.name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.remove)
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		t.Fatal(err)
	}
	w.id = st.Ino
	return w
}

func (w writer) remove() {
	if err := os.Remove(filepath.Join(cgroup.Root, w.name)); err != nil && !errors.Is(err, os.ErrNotExist) {
		w.t.Error(err)
	}
}

// does runs a command in the cgroup.
func (w writer) does(command ...string) {
	w.t.Helper()
	dir, err := os.Open(filepath.Join(cgroup.Root, w.name))
	if err != nil {
		w.t.Fatal(err)
	}
	defer dir.Close()
	cmd := exec.CommandContext(w.t.Context(), command[0], command[1:]...)
	cmd.SysProcAttr = &unix.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	if out, err := cmd.CombinedOutput(); err != nil {
		w.t.Fatalf("%s: %v: %s", strings.Join(command, " "), err, out)
	}
}

// writes writes so many MiB from the beginning of a file, in blocks.
func (w writer) writes(file string, count int, block string, more ...string) {
	w.t.Helper()
	w.does(append([]string{"dd", "status=none", "if=/dev/zero", "of=" + file, "bs=" + block, fmt.Sprint("count=", count), "conv=notrunc"}, more...)...)
}

// fileOwner is what the command owner says of a file.
type fileOwner struct {
	State, Cgroup, Namespace, Pod, Container string
	CgroupID                                 uint64
}

func ownerOf(t *testing.T, file string) fileOwner {
	t.Helper()
	out, err := command(t, "owner", "-o", "json", file)
	if err != nil {
		t.Fatal(err)
	}
	var answer struct{ Files []fileOwner }
	if err := json.Unmarshal([]byte(out), &answer); err != nil || len(answer.Files) != 1 {
		t.Fatalf("%v in %q", err, out)
	}
	return answer.Files[0]
}

// filesystemsWithOwners are those that the tests have a volume of.
var filesystemsWithOwners = []string{"ext4", "xfs", "btrfs"}

// TestOwner: the command tells whom the kernel has given a file to.
func TestOwner(t *testing.T) {
	for _, fs := range filesystemsWithOwners {
		t.Run(fs, func(t *testing.T) {
			a := newWriter(t, "a")
			file := testFile(t, fs, "f")
			writeFile(t, file, "")
			a.writes(file, 1, "64k", "oflag=append")
			want := fileOwner{State: "live", Cgroup: a.name, CgroupID: a.id}
			if got := ownerOf(t, file); got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
			// What is dirty keeps it from being given to another.
			a.remove()
			want.State, want.Cgroup = "gone", ""
			if got := ownerOf(t, file); got != want {
				t.Errorf("after the cgroup's removal: got %+v, want %+v", got, want)
			}
			administer(t, "sync", "-f", file)
			drop(t)
			want = fileOwner{State: "none"}
			if got := ownerOf(t, file); got != want {
				t.Errorf("of a file that was read anew: got %+v, want %+v", got, want)
			}
		})
	}
}

// drop has the kernel forget what is clean.
func drop(t *testing.T) {
	t.Helper()
	if err := os.WriteFile("/proc/sys/vm/drop_caches", []byte("3"), 0); err != nil {
		t.Fatal(err)
	}
}

// TestOwnerOfContainers: the owner is named as the container that it is.
func TestOwnerOfContainers(t *testing.T) {
	startPlugin(t)
	pod := runPod(t, "pod", limited)
	k := pod.run(sleeper("web", "/data", "ext4"))
	file := testFile(t, "ext4", "f")
	if _, err := k.Exec(t.Context(), deadline, "/bin/iotool", "write", "--path", "/data/"+filepath.Base(file), "--size", "64Ki"); err != nil {
		t.Fatal(err)
	}
	got := ownerOf(t, file)
	if got.State != "live" || got.Namespace != "default" || got.Pod != pod.Name || got.Container != "web" || !strings.HasPrefix(got.Cgroup, strings.TrimPrefix(pod.Cgroup, "/")) {
		t.Errorf("got %+v", got)
	}
}

// TestNoDeadOwner: half a minute after a container's end no file is under its
// limit any more, if the race at its end was won.
func TestNoDeadOwner(t *testing.T) {
	p := startPlugin(t, "--log-level", "debug")
	pod := runPod(t, "pod", limited)
	pod.run(sleeper("stays", "/data", "ext4"))
	for try := range 3 {
		name := fmt.Sprint("c", try)
		file := testFile(t, "ext4", name)
		k := pod.run(sleeper(name, "/data", "ext4"))
		if _, err := k.Exec(t.Context(), deadline, "/bin/iotool", "write", "--path", "/data/"+filepath.Base(file), "--size", "4Mi"); err != nil {
			t.Fatal(err)
		}
		if got := ownerOf(t, file); got.Container != name {
			t.Fatalf("before its end: %+v", got)
		}
		if err := k.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !p.handedOver(t, name) {
			continue // lost
		}
		within(t, 30*time.Second, "the file is a living cgroup's", func() error {
			got := ownerOf(t, file)
			if got.State != "live" && got.State != "none" {
				return fmt.Errorf("it is %+v", got)
			}
			t.Logf("%+v", got)
			return nil
		})
		return
	}
	t.Error("three races were lost")
}

// TestNewPodOnOldVolume: what a new pod writes to the files of one that has ended is
// charged to it, and its own limit holds.
func TestNewPodOnOldVolume(t *testing.T) {
	p := startPlugin(t, "--log-level", "debug")
	file := testFile(t, "ext4", "f")
	path := "/data/" + filepath.Base(file)
	for try := range 3 {
		old := runPod(t, fmt.Sprint("old", try), annotations{limits + "container.a": "/data wbps=2Mi"})
		a := old.run(sleeper("a", "/data", "ext4"))
		if _, err := a.Exec(t.Context(), deadline, "/bin/iotool", "write", "--path", path, "--size", "4Mi"); err != nil {
			t.Fatal(err)
		}
		if err := old.RemoveSandbox(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !p.handedOver(t, "a") {
			continue // lost
		}
		awaitOnDisk(t)
		eventually(t, "the old pod's files are its no more", func() error {
			if got := ownerOf(t, file); got.State != "none" {
				return fmt.Errorf("%+v", got)
			}
			return nil
		})
		pod := runPod(t, "new", annotations{limits + "container.next": "/data wbps=4Mi"})
		next := pod.run(sleeper("next", "/data", "ext4"))
		before, err := cgroup.Dir(next.Cgroup).Counter(node.disks["vdb"], "wbytes")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := next.Exec(t.Context(), deadline, "/bin/iotool", "write", "--path", path, "--span", "4Mi", "--sync", "1Mi", "--size", "16Mi"); err != nil {
			t.Fatal(err)
		}
		after, err := cgroup.Dir(next.Cgroup).Counter(node.disks["vdb"], "wbytes")
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%d of 16 MiB are charged to the new pod's container", (after-before)/mib)
		if after-before < 15*mib {
			t.Error("too little")
		}
		if got := ownerOf(t, file); got.Pod != pod.Name || got.Container != "next" {
			t.Errorf("the file is of %+v", got)
		}
		return
	}
	t.Error("three races were lost")
}

// TestOwnerForbidden: who may not look gets one line that says so.
func TestOwnerForbidden(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "setpriv", "--bounding-set=-perfmon,-bpf,-sys_admin", "--inh-caps=-all",
		filepath.Join(node.payload, "nri-blkio"), "owner", "/etc/passwd").CombinedOutput()
	if err == nil || strings.Count(string(out), "\n") != 1 || !strings.HasPrefix(string(out), "nri-blkio: the kernel does not tell who owns a file's writeback: ") {
		t.Errorf("%v: %s", err, out)
	}
}

// TestOwnerErrors: what cannot be found is said, a line each, and the rest shown.
func TestOwnerErrors(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), filepath.Join(node.payload, "nri-blkio"), "owner", "/no/one", "/etc/passwd", "/no/\x1b[2Jtwo")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err == nil || strings.Count(string(out), "\n") != 2 || !strings.Contains(string(out), "\n/etc/passwd ") {
		t.Errorf("%v: %s", err, out)
	}
	want := "nri-blkio: open /no/one: no such file or directory\nnri-blkio: open /no/\\x1b[2Jtwo: no such file or directory\n"
	if got := stderr.String(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// observed is what one writer did to one file, in all.
type observed struct {
	bytes, charged uint64 // charged: of these to the writer
	owners         map[uint64]bool
}

// observe returns what was written to a file meanwhile, by writer. Who forks a
// writer in its cgroup dirties nothing.
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
	if err := o.Watch([]blkio.Dev{superBlock(t, volumes[fs])}); err != nil {
		t.Fatal(err)
	}
	return o
}

// superBlock is the device number of a filesystem, which for btrfs is not that
// of its files.
func superBlock(t *testing.T, dir string) blkio.Dev {
	t.Helper()
	s, err := blkio.OpenStorage(blkio.StorageConfig{Sys: os.DirFS("/sys"), Mountinfo: "/proc/1/mountinfo", HostRoot: "/"})
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

// TestObserver: who writes, whom the pages are charged to and who owns the file
// are told apart.
func TestObserver(t *testing.T) {
	const size = 4 * mib
	for _, fs := range filesystemsWithOwners {
		t.Run(fs, func(t *testing.T) {
			a, b := newWriter(t, "a"), newWriter(t, "b")
			o := watch(t, fs)
			file := testFile(t, fs, "f")
			for _, step := range []struct {
				name          string
				do            func()
				by            writer
				bytes         uint64
				chargedTo     writer
				ownedByOrNone uint64
			}{
				{"b makes it", func() { b.writes(file, 4, "1M", "conv=notrunc,fsync") }, b, size, b, b.id},
				{"a writes to it", func() { a.writes(file, 4, "1M", "conv=notrunc,fsync") }, a, size, b, b.id},
				{"a writes on", func() { a.writes(file, 4, "1M", "oflag=append", "conv=notrunc,fsync") }, a, size, a, b.id},
			} {
				got := observe(t, o, file, step.do)
				sum := got[step.by.id]
				t.Logf("%s: %+v", step.name, got)
				if len(got) != 1 || sum.bytes < step.bytes || sum.bytes > 2*step.bytes {
					t.Errorf("%s: want %d bytes by %d alone", step.name, step.bytes, step.by.id)
				}
				if all := step.chargedTo == step.by; all != (sum.charged == sum.bytes) || !all && sum.charged > 0 {
					t.Errorf("%s: %d of %d bytes are charged to who wrote them", step.name, sum.charged, sum.bytes)
				}
				delete(sum.owners, 0) // as its first page becomes dirty it is nobody's
				delete(sum.owners, step.ownedByOrNone)
				if len(sum.owners) > 0 {
					t.Errorf("%s: owned by %v, too", step.name, sum.owners)
				}
			}
			// By mmap alone: no system call tells of that.
			got := observe(t, o, file, func() {
				a.does("fio", "--name=m", "--filename="+file, "--ioengine=mmap", "--rw=write", "--bs=64k", "--size=1M", "--output=/dev/null")
			})
			t.Logf("by mmap: %+v", got)
			if len(got) != 1 || got[a.id].bytes < mib {
				t.Error("by mmap: want 1 MiB by a alone")
			}
		})
	}
}

// TestVerdict: whether a round of writeback moves a file is foreseen from what the
// kernel has with it. The lines that it prints are of the form that the traces in
// blkio/writeback/testdata have.
func TestVerdict(t *testing.T) {
	reader, err := writeback.NewOwnerReader()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	for _, fs := range filesystemsWithOwners {
		t.Run(fs, func(t *testing.T) {
			a, b := newWriter(t, "a"), newWriter(t, "b")
			file := testFile(t, fs, "f")
			b.writes(file, 256, "4k", "conv=notrunc,fsync")
			f, err := os.Open(file)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			read := func() writeback.Owner {
				o, err := reader.Owner(f)
				if err != nil {
					t.Fatal(err)
				}
				return o
			}
			var trace []string
			foreseen := 0
			for round, pages := range []int{8, 16, 1, 8, 8, 4, 32, 1, 16, 8, 8, 64, 8, 16, 8, 8, 8, 16, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8} {
				// First one of the owner in three, later none.
				who, foreign := a, 1
				if read().Cgroup == a.id {
					break
				}
				if round < 12 && round%3 == 2 {
					who, foreign = b, 0
				}
				before := read()
				_, moves := before.Round(writeback.RoundTime(uint64(pages), before.Bandwidth), foreign == 1)
				if foreign == 1 {
					a.writes(file, pages, "4k", "oflag=append", "conv=notrunc,fsync")
				} else {
					b.writes(file, pages, "4k", "conv=notrunc,fsync")
				}
				after, moved := read(), 0
				for end := time.Now().Add(2 * time.Second); moves && after.Cgroup != who.id && time.Now().Before(end); after = read() {
					time.Sleep(10 * time.Millisecond) // the kernel does it in the background
				}
				if after.Cgroup == a.id {
					moved = 1
				}
				trace = append(trace, fmt.Sprintf("%04x %d %d %d %d %d %04x %d", before.History, before.Average, before.Bandwidth, pages, foreign, moved, after.History, after.Average))
				if moves == (moved == 1) {
					foreseen++
				}
			}
			t.Logf("trace of %s:\n%s", fs, strings.Join(trace, "\n"))
			if read().Cgroup != a.id {
				t.Error("it was not moved: this shows nothing")
			}
			if foreseen < len(trace) {
				t.Errorf("%d of %d rounds went as foreseen", foreseen, len(trace))
			}
		})
	}
}

// TestObserverElsewhere: what is not watched is not counted, and where nothing is
// watched nothing of ours runs.
func TestObserverElsewhere(t *testing.T) {
	a := newWriter(t, "a")
	o := watch(t, "ext4")
	file := testFile(t, "xfs", "f")
	if got := observe(t, o, file, func() { a.writes(file, 1, "1M") }); len(got) > 0 {
		t.Errorf("got %v", got)
	}
	if n := tracingLinks(t); n != 1 {
		t.Errorf("%d programs are attached, want 1", n)
	}
	if err := o.Watch(nil); err != nil {
		t.Fatal(err)
	}
	if n := tracingLinks(t); n != 0 {
		t.Errorf("%d programs are attached, and nothing is watched", n)
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

// TestObserverLoss: what there is no room for is counted.
func TestObserverLoss(t *testing.T) {
	a := newWriter(t, "a")
	o := watch(t, "ext4")
	dir := testFile(t, "ext4", "many")
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	const files = 1<<14 + 500
	a.does("sh", "-c", fmt.Sprintf(`cd %s && head -c %d /dev/zero | split -a 4 -b 4096`, dir, files*4096))
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
		t.Errorf("%d bytes are counted and %d lost, %d were written", sum, lost, files*4096)
	}
	if again, _, err := o.Read(); err != nil || len(again) > 100 {
		t.Errorf("%d are counted again, %v", len(again), err)
	}
}

// TestObserverCost: how much of the time to write goes into counting.
func TestObserverCost(t *testing.T) {
	stats, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
	if err != nil {
		t.Fatal(err)
	}
	defer stats.Close()
	a := newWriter(t, "a")
	o := watch(t, "ext4")
	for _, block := range []struct {
		name  string
		count int
	}{{"4k", 4096}, {"64k", 256}} {
		file := testFile(t, "ext4", block.name)
		a.writes(file, 1, "16M", "conv=notrunc,fsync") // no blocks to allocate while it counts
		before, err := o.Cost()
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		a.writes(file, block.count, block.name)
		took := time.Since(began)
		cost, err := o.Cost()
		if err != nil {
			t.Fatal(err)
		}
		runs, spent := cost.Runs-before.Runs, cost.Time-before.Time
		if runs == 0 {
			t.Fatal("it never ran")
		}
		t.Logf("16 MiB in blocks of %s: %v, %d runs of %v, %.2f %% of the time",
			block.name, took.Round(time.Millisecond), runs, spent/time.Duration(runs), 100*spent.Seconds()/took.Seconds())
	}
}
