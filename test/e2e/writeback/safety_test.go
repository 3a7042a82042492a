package writeback

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/test/e2e/cgroup"
	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

// Safety: what moves files between their writers harms neither, nor the files,
// however often it is done. The shaker does nothing else.

// safetyCase is played with two writers and the volume of a filesystem.
type safetyCase struct {
	name string
	play func(s *arena)
	// without is the number of filesystems on which the case runs without -proof.
	without int
	proof   time.Duration // what a proof takes for it, on each
}

var safetyCases = []safetyCase{
	{"any call", anyCall, 3, 2 * time.Minute},
	{"snapshots", snapshots, 3, time.Minute},
	{"fio", fioVerifies, 1, 2 * time.Minute},
	{"SQLite", sqlite, 1, 2 * time.Minute},
	{"PostgreSQL", postgres, 0, 2 * time.Minute},
	{"little memory", littleMemory, 1, time.Minute},
	{"times", timesStay, 3, 0},
	{"removal", removal, 1, 20 * time.Second},
}

// TestSafety verifies that moving files causes no error, no corruption, no OOM kill and no stalled removal,
// does not change timestamps, and that in the end no file belongs to a removed cgroup.
func TestSafety(t *testing.T) {
	for i, fs := range filesystemsWithOwners {
		t.Run(fs, func(t *testing.T) {
			duration := 8 * time.Second
			if fs != "ext4" {
				duration = 4 * time.Second
				besideOthers(t) // none of their cases measures, freezes, or starts containers
			}
			for _, c := range safetyCases {
				if *lab.Proof {
					duration = c.proof
				}
				if i >= c.without && !*lab.Proof {
					continue
				}
				t.Run(c.name, func(t *testing.T) {
					s := newArena(t, fs, lab.DiskOf[fs], lab.Volumes[fs], duration)
					c.play(s)
					s.leavesNothing()
				})
			}
		})
	}
}

// anyCall has two programs do all kinds of operations on a file, each from two cgroups.
func anyCall(s *arena) {
	k := s.shake()
	first := s.churns("first", s.a, s.b, churning{size: lab.MiB, without: "clone"})
	second := s.churns("second", s.b, s.a, churning{size: lab.MiB, without: "clone"})
	s.enough(k)
	s.Log(first())
	s.Log(second())
	s.moved(k)
}

// snapshots has writers of files that share blocks with others, while snapshots are made all the time: of the
// subvolume, of the file, or of the device, for which the filesystem is frozen.
func snapshots(s *arena) {
	without, snapshot := "", func() error { return nil }
	switch s.fs {
	case "btrfs":
		of := filepath.Join(filepath.Dir(lab.Volumes[s.fs]), "snapshot")
		snapshot = func() error {
			return errors.Join(lab.Runs("btrfs", "subvolume", "snapshot", "-r", filepath.Dir(lab.Volumes[s.fs]), of), lab.Runs("btrfs", "subvolume", "delete", of))
		}
		s.Cleanup(func() { _ = lab.Runs("btrfs", "subvolume", "delete", of) }) // if that has failed
	case "ext4":
		without = "clone" // it has none
		dir, err := os.Open(filepath.Dir(lab.Volumes[s.fs]))
		if err != nil {
			s.Fatal(err)
		}
		s.Cleanup(func() { dir.Close() })
		// Without another process: a fork that reclaims memory can wait for the frozen
		// filesystem, and then each other fork waits for that one, also the one that is to
		// thaw it. A node of 6.1.192 stood still that way.
		snapshot = func() error {
			if err := unix.IoctlSetInt(int(dir.Fd()), fiFreeze, 0); err != nil {
				return fmt.Errorf("freeze %s: %w", dir.Name(), err)
			}
			return unix.IoctlSetInt(int(dir.Fd()), fiThaw, 0)
		}
	}
	k := s.shake()
	first := s.churns("first", s.a, s.b, churning{size: lab.MiB, without: without})
	second := s.churns("second", s.b, s.a, churning{size: lab.MiB, without: without})
	stop := s.repeat(func(int) {
		if err := snapshot(); err != nil {
			s.Error(err)
		}
	})
	s.enough(k)
	stop()
	did := first() + second()
	s.Log(did)
	if without == "" && !strings.Contains(did, "clone:") {
		s.Error("the writers cloned no file: the case cannot show anything")
	}
	s.moved(k)
}

// fioVerifies has each writer write a half of a file, and both write in turn through a mapping of another file.
// They verify what they have written.
func fioVerifies(s *arena) {
	const half = 8 * lab.MiB
	fio := func(name, engine string, offset int) *process {
		return s.prepare("fio", "--thread", "--name="+name, "--ioengine="+engine, "--filename="+filepath.Join(s.dir, name),
			fmt.Sprint("--offset=", offset), fmt.Sprint("--size=", half), "--rw=randwrite", "--bs=8k", "--fallocate=none", "--fsync=100",
			"--verify=crc32c", "--verify_fatal=1", "--do_verify=1", "--verify_backlog=50",
			"--time_based", "--runtime="+seconds(s.duration), "--eta=never", "--output-format=json")
	}
	for _, name := range []string{"shared", "mapped"} {
		lab.WriteFile(s.T, filepath.Join(s.dir, name), "")
		if err := os.Truncate(filepath.Join(s.dir, name), 2*half); err != nil {
			s.Fatal(err)
		}
	}
	verified := 0
	k := s.shake()
	stop := s.takeTurns(s.a.Name, s.b.Name)
	s.rounds(k, func() {
		first, second := fio("shared", "psync", 0).startIn(s.a), fio("shared", "psync", half).startIn(s.b)
		// Two with an offset would map the same part (engines/mmap.c).
		mapped := fio("mapped", "mmap", 0).startIn(s.a)
		stopped := s.wanders(mapped, s.a, s.b)
		for _, p := range []*process{first, second, mapped} {
			verified += s.verified(p)
		}
		stopped()
	})
	stop()
	s.moved(k)
	if verified < 100 {
		s.Errorf("fio verified %d blocks, want at least 100: the case shows little", verified)
	}
}

// verified returns the number of blocks that a fio found as it had written them.
func (s *arena) verified(p *process) int {
	s.Helper()
	var answer struct {
		Jobs []struct {
			Error       int
			Read, Write struct {
				Total int `json:"total_ios"`
			}
		}
	}
	out := p.ends()
	if err := json.Unmarshal([]byte(out[max(0, strings.Index(out, "{")):]), &answer); err != nil || len(answer.Jobs) != 1 {
		s.Fatalf("%v in %q", err, out)
	}
	job := answer.Jobs[0]
	s.Logf("%s: %d blocks written, %d verified", p.Args[2], job.Write.Total, job.Read.Total)
	if job.Error != 0 {
		s.Errorf("fio: %s", out)
	}
	return job.Read.Total
}

// littleMemory limits the memory of the container so that it can free only 4 MiB of page cache.
func littleMemory(s *arena) {
	k := s.shake()
	another := lab.File(s.T, s.fs, "another")
	lab.Administer(s.T, "dd", "status=none", "if=/dev/zero", "of="+another, "bs=1M", "count=8", "conv=fsync")
	ends := s.churns("f", s.a, s.b, churning{size: 2 * lab.MiB, ballast: 48 * lab.MiB, without: "clone", another: another, before: func() {
		current, err := os.ReadFile(filepath.Join(cgroup.Root, s.a.Name, "memory.current"))
		if err != nil {
			s.Fatal(err)
		}
		used, err := strconv.Atoi(strings.TrimSpace(string(current)))
		if err != nil || used < 48*lab.MiB {
			s.Fatalf("%d bytes are used, %v", used, err)
		}
		writeCgroup(s.T, s.a.Name, "memory.oom.group", "1")
		writeCgroup(s.T, s.a.Name, "memory.max", fmt.Sprint(used+4*lab.MiB))
	}})
	s.enough(k)
	s.Log(ends())
	s.moved(k)
	events, err := os.ReadFile(filepath.Join(cgroup.Root, s.a.Name, "memory.events"))
	if err != nil {
		s.Fatal(err)
	}
	count := map[string]int{}
	for line := range strings.Lines(string(events)) {
		var name string
		var n int
		if _, err := fmt.Sscan(line, &name, &n); err != nil {
			s.Fatalf("%q: %v", line, err)
		}
		count[name] = n
	}
	s.Logf("%v", count)
	if count["oom_kill"] > 0 || count["oom_group_kill"] > 0 {
		s.Errorf("a process was killed by the OOM killer: %v", count)
	}
	if count["max"] == 0 {
		s.Error("the memory limit was never reached: the case cannot show anything")
	}
}

// timesStay verifies that moving a file which no program writes to changes neither its content nor its
// attributes and timestamps.
func timesStay(s *arena) {
	data := make([]byte, 8*lab.MiB)
	for i := range data {
		data[i] = byte(rand.Uint32())
	}
	source := filepath.Join(s.TempDir(), "source")
	if err := os.WriteFile(source, data, 0o600); err != nil {
		s.Fatal(err)
	}
	for _, how := range []struct{ name, engine string }{{"written", ""}, {"mapped", "mmap"}} {
		file := filepath.Join(s.dir, how.name)
		// b's, and then a's pages are dirty in it.
		s.b.Does("dd", "status=none", "if=/dev/zero", "of="+file, "bs=1M", "count=8", "conv=fsync")
		lab.Administer(s.T, "dd", "status=none", "if="+file, "of=/dev/null", "iflag=nocache", "count=0")
		s.a.Does("dd", "status=none", "if="+source, "of="+file, "bs=64k", "conv=notrunc")
		if how.engine != "" {
			s.a.Does("sh", "-c", "exec fio --name=m --ioengine=mmap --filename="+file+" --rw=randwrite --bs=4k --size=8M --fallocate=none --output=/dev/null")
			var err error
			if data, err = os.ReadFile(file); err != nil {
				s.Fatal(err)
			}
		}
		before := statx(s.T, file)
		if cached(s.T, file) == 0 {
			s.Errorf("no page of %s is in the page cache: the case cannot show anything", file)
		}
		k := s.shake()
		lab.Eventually(s.T, "the shaker has moved the file and dropped its pages", func() error {
			if n := k.passes.Load(); n < 10 {
				return fmt.Errorf("%d passes of the shaker, want 10", n)
			}
			if n := cached(s.T, file); n > 0 {
				return fmt.Errorf("%d pages are in the page cache, want 0", n)
			}
			return nil
		})
		s.calm(k)
		if after := statx(s.T, file); after != before {
			s.Errorf("%s: it was %+v, is %+v", how.name, before, after)
		}
		now, err := os.ReadFile(file)
		if err != nil || !bytes.Equal(now, data) {
			s.Errorf("%s: %d bytes that are others, %v", how.name, len(now), err)
		}
	}
}

// seen has the facts about a file that programs see without reading it. How many blocks it has
// is known when it is written out.
type seen struct {
	mtime, ctime, atime, btime unix.StatxTimestamp
	size                       uint64
	mode                       uint16
	links                      uint32
}

func statx(t *testing.T, file string) seen {
	t.Helper()
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, file, 0, unix.STATX_BASIC_STATS|unix.STATX_BTIME, &st); err != nil {
		t.Fatal(err)
	}
	return seen{st.Mtime, st.Ctime, st.Atime, st.Btime, st.Size, st.Mode, st.Nlink}
}

// cached returns how many pages of a file are in the page cache. It reads none: a read
// with RWF_NOWAIT begins to read ahead.
func cached(t *testing.T, file string) (n int) {
	t.Helper()
	f, err := os.OpenFile(file, os.O_RDONLY|unix.O_NOATIME, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	m, err := unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(m) }() // it is a whole mapping
	pages := make([]byte, (len(m)+os.Getpagesize()-1)/os.Getpagesize())
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&m[0])), uintptr(len(m)), uintptr(unsafe.Pointer(&pages[0])))
	if errno != 0 {
		t.Fatal(errno)
	}
	for _, p := range pages {
		n += int(p & 1)
	}
	return n
}

// removal ends and removes containers while a shaker moves their files. In a proof it also measures
// the removal without a shaker.
func removal(s *arena) {
	pod := lab.RunPod(s.T, "pod", nil)
	other := lab.File(s.T, s.fs, "other")
	lab.WriteFile(s.T, other, strings.Repeat("other", lab.MiB/2))
	for _, round := range []struct {
		name  string
		files func() []string
		proof bool
	}{
		{"nothing", func() []string { return nil }, true},
		{"another file", func() []string { return []string{other} }, true}, // what it costs the CPUs
		{"their file", s.files, false},
	} {
		if round.proof && !*lab.Proof {
			continue
		}
		var both []*cri.Container
		for i, how := range []string{"--append=false", "--mmap"} {
			both = append(both, pod.MustRun(cri.ContainerConfig{
				Name: fmt.Sprint(round.name[:1], i), Mounts: []cri.Mount{{Host: s.dir, Path: "/data"}},
				Args: []string{"write", "--path", "/data/shared", "--block", "8Ki", "--span", "4Mi", "--sync", "128Ki", how},
			}))
		}
		writeCgroup(s.T, both[0].Cgroup, "io.max", fmt.Sprintf("%s wbps=%d", lab.Node.Disks[s.disk], 8*lab.MiB))
		k := shake(s.T, s.fs, s.dir, round.files, both[0].Cgroup, both[1].Cgroup)
		stop := s.takeTurns(both[0].Cgroup, both[1].Cgroup)
		if round.name == "their file" {
			s.enough(k)
		} else {
			time.Sleep(s.duration)
		}
		stop()
		began := time.Now()
		for _, c := range both {
			if err := c.Remove(s.Context()); err != nil {
				s.Fatal(err)
			}
		}
		for _, c := range both {
			lab.Eventually(s.T, "cgroup was removed", func() error {
				if _, err := os.Stat(filepath.Join(cri.CgroupRoot, c.Cgroup)); !errors.Is(err, os.ErrNotExist) {
					return errors.Join(errors.New(c.Cgroup+" exists"), err)
				}
				return nil
			})
		}
		s.Logf("shaken is %s: both are removed in %v", round.name, time.Since(began).Round(10*time.Millisecond))
		if round.name == "their file" {
			s.moved(k)
		}
		k.ends()
	}
}
