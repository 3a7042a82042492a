package weights

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
	"github.com/nri-blkio/nri-blkio/test/e2e/noise"
	"github.com/nri-blkio/nri-blkio/test/generated"
)

// priorityRounds is how often each figure of TestPriorities is measured.
const priorityRounds = 3

// Values of ioprio_set(2): no class, so that the nice value decides, and the idle class.
const (
	noClass   = 0
	idleClass = 3 << 13
)

// prioritySetup is a row of TestPriorities: how the disk is set up, and what is tried with it.
type prioritySetup struct {
	name      string
	scheduler string // in queue/scheduler of the disk
	wbt       bool   // the kernel's writeback throttling is enabled
	weights   bool   // the plugin runs
	allocates bool   // the victim writes new blocks, so that it waits for the journal
	tries     []string
}

// priorityTries are the columns of TestPriorities. What io.prio.class of a cgroup does is set directly, because Debian's kernels do not
// have that file: it puts a class into each bio, and so does the priority of the thread that submits the bio. That is the victim itself
// for a commit, and a kernel worker for the neighbours' writeback.
var priorityTries = map[string]struct{ isRealTime, hasIdleNeighbours bool }{
	"nothing": {},
	"rt":      {isRealTime: true},
	"idle":    {hasIdleNeighbours: true},
	"both":    {isRealTime: true, hasIdleNeighbours: true},
}

// priorityNone and priorityWeights are the setups that the test compares.
const (
	priorityNone    = 1
	priorityWeights = 6
)

func prioritySetups() []prioritySetup {
	return []prioritySetup{
		{name: "none, with wbt", scheduler: "none", wbt: true, tries: []string{"nothing"}},
		{name: "none", scheduler: "none", tries: []string{"nothing", "both"}},
		{name: "mq-deadline, with wbt", scheduler: "mq-deadline", wbt: true, tries: []string{"both"}},
		{name: "mq-deadline", scheduler: "mq-deadline", tries: []string{"nothing", "rt", "idle", "both"}},
		{name: "mq-deadline, new blocks", scheduler: "mq-deadline", allocates: true, tries: []string{"nothing", "both"}},
		{name: "bfq", scheduler: "bfq", tries: []string{"nothing", "both"}},
		{name: "none, weights 1000 : 10", scheduler: "none", weights: true, tries: []string{"nothing"}},
		{name: "none, weights, new blocks", scheduler: "none", weights: true, allocates: true, tries: []string{"nothing"}},
		{name: "mq-deadline, weights 1000 : 10", scheduler: "mq-deadline", weights: true, tries: []string{"both"}},
	}
}

// TestPriorities measures a victim that commits beside eight buffered writers: with classes of I/O priority, which io.prio.class sets,
// with wbt, and with weights.
//
//e2e:proof
func TestPriorities(t *testing.T) {
	b := newSlowBench(t, sharedDisk)
	heavy, light := lab.Annotations{lab.Weight + "containers": "1000"}, lab.Annotations{lab.Weight + "containers": "10"}
	victim, neighbour := b.holder("victim", heavy).Cgroup, b.holder("noisy", light).Cgroup
	b.keepsQueue(t)
	setups := prioritySetups()
	rows := make([]generated.Row, len(setups)+1)
	for range priorityRounds {
		alone := prioritySetup{scheduler: "none", tries: []string{"nothing"}}
		rows[len(setups)].Add(b.priorities(t, &alone, victim, neighbour))
	}
	b.writers(t, neighbour)
	for range priorityRounds {
		stop := func() {}
		for i := range setups {
			if setups[i].weights && !setups[i-1].weights {
				stop = b.startFor(t, "--policy", lab.PolicyFile(t, noise.Policy))
				b.awaitCost(true)
			}
			rows[i].Add(b.priorities(t, &setups[i], victim, neighbour))
			t.Log(setups[i].name, rows[i].Rounds)
		}
		stop()
	}
	publish(t, &rows[len(setups)], "no neighbour")
	for i := range setups {
		publish(t, &rows[i], setups[i].name)
	}
	without, _ := rows[priorityNone].Figure("nothing")
	with, _ := rows[priorityWeights].Figure("nothing")
	if with.Median < 2*without.Median {
		t.Errorf("with weights the victim commits %.0f/s, without %.0f/s", with.Median, without.Median)
	}
}

// keepsQueue restores the scheduler with the test, and the priority of kernel workers. wbt stays disabled: enabled by hand it would not
// give way to io.cost.
func (b *slowBench) keepsQueue(t *testing.T) {
	t.Helper()
	data, err := os.ReadFile(queueFile("scheduler"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(data), "[")
	scheduler, _, _ := strings.Cut(rest, "]")
	t.Cleanup(func() {
		lab.WriteFile(t, queueFile("scheduler"), scheduler)
		lab.WriteFile(t, queueFile("wbt_lat_usec"), "0")
		setWorkers(t, noClass)
	})
}

func queueFile(name string) string { return filepath.Join("/sys/block", sharedDisk, "queue", name) }

// writers starts eight buffered writers in a cgroup, which end with the test.
func (b *slowBench) writers(t *testing.T, name string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, "fio", "--thread", "--time_based", "--runtime=3600", "--eta=never", "--directory="+b.dir,
		"--filename_format=noise.$jobnum", "--size=128M", "--name=write", "--rw=write", "--bs=1M", "--numjobs=8", "--fallocate=none")
	if err := noise.StartIn(name, cmd); err != nil {
		cancel()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // killed
		lab.Administer(t, "sync", "-f", b.dir)
	})
}

// priorities sets up the disk, and returns the victim's commits per second by what is tried, their 99th percentile in milliseconds, and
// what the neighbours write in MiB per second.
func (b *slowBench) priorities(t *testing.T, s *prioritySetup, victim, neighbour string) map[string]float64 {
	t.Helper()
	latency := "0"
	if s.wbt {
		latency = "-1" // the default
	}
	lab.WriteFile(t, queueFile("scheduler"), s.scheduler)
	lab.WriteFile(t, queueFile("wbt_lat_usec"), latency)
	args := []string{"--rw=randwrite"}
	if s.allocates {
		args = []string{"--rw=write", "--filename=" + filepath.Join(b.dir, "new"), "--size=256M", "--overwrite=0", "--fallocate=none", "--unlink=1"}
	}
	out := make(map[string]float64)
	for _, name := range s.tries {
		try := priorityTries[name]
		// Each write is on the disk when it returns, as after fdatasync, and its latency is that of the commit.
		run := slices.Concat(args, []string{"--sync=dsync", "--runtime=8"})
		if try.isRealTime {
			run = append(run, "--prioclass=1", "--prio=4")
		}
		setWorkers(t, map[bool]int{true: idleClass}[try.hasIdleNeighbours])
		if try.hasIdleNeighbours && s.scheduler == "mq-deadline" {
			awaitIdleRequests(t)
		}
		var got noise.Result
		rates, err := b.disk().While(neighbour, func() (err error) {
			got, err = b.disk().Victim(t.Context(), victim, run...)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		out[name], out[name+" p99"], out[name+" wrote"] = got.Rate, got.P99, rates.Wrote
	}
	return out
}

// setWorkers sets the priority of the kernel workers that write back, and of kthreadd, from which new ones inherit it.
func setWorkers(t *testing.T, priority int) {
	t.Helper()
	const kthreadd, whoProcess = 2, 1
	names, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		comm, _ := os.ReadFile(name) // none: it has ended
		var pid int
		if _, err := fmt.Sscanf(name, "/proc/%d/comm", &pid); err != nil {
			t.Fatal(err)
		}
		if pid != kthreadd && !strings.HasPrefix(string(comm), "kworker/u") {
			continue
		}
		_, _, errno := unix.Syscall(unix.SYS_IOPRIO_SET, whoProcess, uintptr(pid), uintptr(priority))
		if errno != 0 && !errors.Is(errno, unix.ESRCH) {
			t.Fatalf("set the I/O priority of %s to %#x: %v", comm, priority, errno)
		}
	}
}

// awaitIdleRequests waits until mq-deadline has requests of the idle class: "RT BE IDLE" in debugfs.
func awaitIdleRequests(t *testing.T) {
	t.Helper()
	lab.Eventually(t, "the neighbours' writes are of the idle class", func() error {
		data, err := os.ReadFile(filepath.Join("/sys/kernel/debug/block", sharedDisk, "sched/queued"))
		if err == nil && strings.HasSuffix(string(data), " 0\n") {
			err = fmt.Errorf("mq-deadline has %q requests", data)
		}
		return err
	})
}
