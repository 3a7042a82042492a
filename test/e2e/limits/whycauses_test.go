package limits

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/test/e2e/cgroup"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
	"github.com/nri-blkio/nri-blkio/test/e2e/noise"
)

// injected is a cause that TestWhyTrials makes for one container of the victim.
type injected struct {
	name  string
	disks []string // one of them, nil: none
	make  func(*side)
	// is reports whether a cause of the answer is this one.
	is func(*side, *namedCause) bool
}

// side is one cause of a trial: a container of the victim, and one of a neighbour in a pod of its own.
type side struct {
	*testing.T
	*rand.Rand
	*injected
	stage             *stage
	slot              int
	disk, dir, number string
	ends              []func()
}

func (s *side) victim() string    { return s.stage.victims[s.slot].Cgroup }
func (s *side) neighbour() string { return s.stage.neighbours[s.slot].Cgroup }
func (s *side) file(name string) string {
	return filepath.Join(s.dir, fmt.Sprintf("%s-%d", name, s.slot))
}

// isOf reports whether a cause is at the disk, and due to the neighbour.
func (s *side) isOf(c *namedCause) bool {
	return c.Disk == s.disk && c.Who != nil && c.Who.Pod == s.stage.pods[s.slot].Name
}

// sets writes a file of a cgroup until the end of the trial.
func (s *side) sets(dir, file, value, after string) {
	s.Helper()
	file = filepath.Join(cgroup.Root, dir, file)
	lab.WriteFile(s.T, file, value)
	s.ends = append(s.ends, func() { lab.WriteFile(s.T, file, after) })
}

// limits sets limits on a disk until the end of the trial.
func (s *side) limits(dir, disk, values string) {
	s.Helper()
	number := s.stage.numbers[disk]
	s.sets(dir, "io.max", number+" "+values, number+" rbps=max wbps=max riops=max wiops=max")
}

// runs starts a program in a cgroup until the end of the trial. What it is held by is lifted before that.
func (s *side) runs(dir string, command ...string) {
	s.Helper()
	cmd := exec.Command(command[0], command[1:]...)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := noise.StartIn(dir, cmd); err != nil {
		s.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // it is killed
		close(ended)
	}()
	s.ends = slices.Insert(s.ends, 0, func() {
		select {
		case <-ended:
			s.Errorf("%s has ended: %s", strings.Join(command, " "), out.String())
		default:
		}
		_ = cmd.Process.Kill()
	})
	s.ends = append(s.ends, func() {
		select {
		case <-ended:
		case <-time.After(lab.Deadline):
			s.Errorf("%s does not end", strings.Join(command, " "))
		}
	})
}

// fio runs fio with a file, for longer than any trial.
func (s *side) fio(dir, file string, args ...string) {
	s.Helper()
	s.runs(dir, append([]string{"fio", "--name=f", "--thread", "--time_based", "--runtime=600", "--eta=never", "--fallocate=none", "--filename=" + file}, args...)...)
}

// owns makes a file of 32 MiB that belongs to a cgroup.
func (s *side) owns(dir, file string) {
	s.Helper()
	cmd := exec.Command("dd", "status=none", "if=/dev/zero", "of="+file, "bs=1M", "count=32", "conv=fsync")
	if err := noise.StartIn(dir, cmd); err != nil {
		s.Fatal(err)
	}
	s.ends = append(s.ends, func() { os.Remove(file) })
	if err := cmd.Wait(); err != nil {
		s.Fatal(err)
	}
}

// reads are of a file that is on the disk.
func (s *side) reads(dir string, args ...string) {
	s.Helper()
	s.fio(dir, filepath.Join(s.dir, readFile), append([]string{"--rw=randread", "--direct=1", "--size=64M"}, args...)...)
}

func (s *side) one(of ...string) string { return of[s.IntN(len(of))] }

// limited does I/O of some kind that a limit of a cgroup holds.
func (s *side) limited(of string) {
	switch s.IntN(6) {
	case 0:
		s.limits(of, s.disk, "wbps="+s.one("1048576", "4194304"))
		s.fio(s.victim(), s.file("w"), "--rw=write", "--direct=1", "--size=64M", "--bs="+s.one("64k", "256k"))
	case 1:
		s.limits(of, s.disk, "rbps="+s.one("1048576", "2097152"))
		s.reads(s.victim(), "--bs="+s.one("16k", "128k"))
	case 2:
		s.limits(of, s.disk, "riops="+s.one("20", "60"))
		s.reads(s.victim(), "--bs=4k", "--numjobs="+s.one("1", "3"))
	case 3:
		s.limits(of, s.disk, "riops=100")
		s.reads(s.victim(), "--bs=4k", "--iodepth=8", "--ioengine="+s.one("libaio", "io_uring"))
	case 4:
		s.limits(of, s.disk, "wbps=524288")
		s.fio(s.victim(), s.file("w"), "--rw=write", "--bs=256k", "--size=64M", "--fsync=1")
	default:
		s.limits(of, s.disk, "rbps=1048576")
		s.fio(s.victim(), filepath.Join(s.dir, readFile), "--rw=randread", "--direct=0", "--invalidate=1", "--bs=64k", "--size=64M")
	}
}

// cost enables io.cost on the disk, with the period that the plugin chooses. The model is 90 % of what the disk does: the emulated disk is not
// even, and with a full queue the disk itself would be the cause.
func (s *side) cost() {
	bytes := map[string]int{"vdi": 8 << 20, "vdj": 60 << 20}[s.disk] * 9 / 10
	s.sets("", "io.cost.model", fmt.Sprintf("%[1]s ctrl=user model=linear rbps=%[2]d wbps=%[2]d rseqiops=1350 rrandiops=1350 wseqiops=1350 wrandiops=1350", s.number, bytes), s.number+" ctrl=auto")
	s.sets("", "io.cost.qos", s.number+" enable=1 ctrl=user rpct=0 rlat=21500 wpct=0 wlat=21500 min=100 max=100", s.number+" enable=0 ctrl=auto")
}

func (s *side) weighs(dir, weight string) {
	s.sets(dir, "io.weight", s.number+" "+weight, s.number+" default")
}

const (
	readFile = "trial-read"
	// journalDisk has an ext4 whose commits wait for data, as without delayed allocation or with dioread_lock. By default they do not.
	journalDisk = "vdg"
)

var (
	slowDisks = []string{"vdi", "vdj"}
	// Not vde: commits of its btrfs are not counted, so all answers would say that the journal is unknown.
	fastDisks = []string{"vdb", "vdc", "vdd"}
	deep      = []string{"--bs=4k", "--ioengine=libaio", "--iodepth=32"}
)

func besideOf(cause string) func(*side, *namedCause) bool {
	return func(s *side, c *namedCause) bool {
		return c.Cause == cause && c.Disk == s.disk && len(c.Beside) > 0 && c.Beside[0].Pod == s.stage.pods[s.slot].Name
	}
}

func ofNeighbour(cause string) func(*side, *namedCause) bool {
	return func(s *side, c *namedCause) bool { return c.Cause == cause && s.isOf(c) }
}

// injectedCauses are those of the issue. Each is on a disk of its own.
var injectedCauses = []*injected{
	{"own limit", append(slowDisks[:2:2], fastDisks...), func(s *side) { s.limited(s.victim()) }, func(s *side, c *namedCause) bool {
		return c.Cause == "own-limit" && c.Disk == s.disk
	}},
	{"pod's limit", append(slowDisks[:2:2], fastDisks...), func(s *side) { s.limited(s.stage.victim.Cgroup) }, func(s *side, c *namedCause) bool {
		return c.Cause == "pod-limit" && c.Disk == s.disk
	}},
	{"neighbour on the disk", slowDisks, func(s *side) {
		s.reads(s.neighbour(), deep...)
		if s.IntN(2) == 0 {
			s.reads(s.victim(), "--bs=4k")
			return
		}
		s.fio(s.victim(), s.file("w"), "--rw=write", "--direct=1", "--bs=16k", "--size=64M")
	}, besideOf("busy-disk")},
	{"neighbour by weight", slowDisks, func(s *side) {
		s.cost()
		s.weighs(s.stage.victim.Cgroup, s.one("10", "30"))
		s.weighs(s.stage.pods[s.slot].Cgroup, "1000")
		s.reads(s.neighbour(), deep...)
		s.reads(s.victim(), "--bs=4k")
	}, besideOf("share")},
	{"dirty pages of the node", []string{"vdb", "vdc"}, func(s *side) {
		lab.LittleDirty(s.T)
		s.limits(s.neighbour(), "vdd", "wbps=1048576")
		s.fio(s.neighbour(), filepath.Join(s.stage.dirs["vdd"], "dirty"), "--rw=write", "--bs=1M", "--size=512M")
		s.fio(s.victim(), s.file("w"), "--rw=write", "--bs=128k", "--size=256M")
	}, func(s *side, c *namedCause) bool { return c.Cause == "dirty-node" }},
	{"dirty pages of the cgroup", slowDisks, func(s *side) {
		s.sets(s.victim(), "memory.max", s.one("100663296", "134217728"), "max")
		s.fio(s.victim(), s.file("w"), "--rw=write", "--bs=256k", "--size=128M")
	}, func(s *side, c *namedCause) bool { return c.Cause == "dirty-cgroup" }},
	{"journal", []string{journalDisk}, func(s *side) {
		s.limits(s.neighbour(), s.disk, "wbps="+s.one("262144", "524288"))
		s.fio(s.neighbour(), s.file("n"), "--rw=write", "--bs=64k", "--fsync="+s.one("2", "6", "16"), "--size=256M")
		s.fio(s.victim(), s.file("w"), "--rw=write", "--bs=4k", "--fsync=1", "--size=64M")
	}, ofNeighbour("journal")},
	{"another owner", []string{"vdb", "vdc"}, func(s *side) {
		shared := s.file("shared")
		s.owns(s.neighbour(), shared)
		s.limits(s.neighbour(), s.disk, "wbps="+s.one("524288", "1048576"))
		s.fio(s.neighbour(), shared, "--rw=write", "--bs=64k", "--fsync=4", "--size=16M")
		s.fio(s.victim(), shared, "--rw=write", "--bs=64k", "--fsync=1", "--offset=16M", "--size=16M")
	}, ofNeighbour("other-owner")},
	{"the reserve", slowDisks, func(s *side) {
		s.cost()
		s.weighs(s.stage.system.Name, "100")
		s.weighs(strings.Split(strings.Trim(s.victim(), "/"), "/")[0], s.one("1", "5"))
		s.reads(s.stage.system.Name, deep...)
		s.reads(s.victim(), "--bs=4k")
	}, func(s *side, c *namedCause) bool { return c.Cause == "reserve" && c.Disk == s.disk }},
	{"CPU starvation", nil, func(s *side) {
		s.sets(s.victim(), "cpu.max", "5000 100000", "max")
		for range 1 + s.IntN(2) {
			s.runs(s.victim(), "sh", "-c", "while :; do :; done")
		}
	}, nil},
	{"none", []string{"vdb", "vdd"}, func(s *side) {
		s.limits(s.neighbour(), s.disk, "wbps=1048576")
		s.fio(s.neighbour(), s.file("n"), "--rw=write", "--direct=1", "--bs=64k", "--size=64M")
	}, nil},
}
