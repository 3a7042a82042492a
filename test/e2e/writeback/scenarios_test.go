package writeback

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

var scenarios = []scenario{
	{name: "escape by rewrite", play: escape(), beside: []string{"ext4", twoDisks}},
	{name: "escape by rewrite, pod fully limited", play: escapeWithin, beside: []string{"xfs"}},
	{name: "escape by append", play: escape("--append")},
	{name: "escape by mmap", play: escape("--mmap", "--span", "16Mi")},
	{name: "escape, many small files", play: smallFiles},
	{name: "escape, one 1 GiB file", play: bigFile},
	{name: "two pods on one volume", play: twoPods, beside: []string{"btrfs"}},
	{name: "inversion", play: inversion, beside: []string{"xfs"}},
	{name: "inversion while the limited one writes", play: inversionBeside(nil)},
	{name: "inversion while the limited one writes, with memory.high", play: inversionBeside(highMemory)},
	{name: "owner throttled with a full queue", play: fullQueue},
	{name: "contested file", play: contested, beside: []string{"ext4"}},
	{name: "limited without a memory limit", play: dirtyPages(nil), once: true},
	{name: "limited with memory.high", play: dirtyPages(highMemory), once: true},
	{name: "limited with strict_limit", play: dirtyPages(strictLimit), once: true},
	{name: "restart", play: restart(limit), alone: true},
	{name: "restart with a changed limit", play: restart(raised)},
	{name: "new pod on an old volume", play: newPod},
	{name: "frozen filesystem", play: frozen, alone: true, once: true},
	{name: "lost race", play: lostRace, alone: true, once: true},
}

// oneLimited and allLimited are the usual pods: a is the limited writer.
var (
	oneLimited = lab.Annotations{"container.a": "/data wbps=2Mi"}
	allLimited = lab.Annotations{"container.a": "/data wbps=2Mi", "container.b": "/data wbps=4Mi"}
)

// escape has a, which is limited, write to a file that the unlimited b has created.
func escape(args ...string) func(*stage) {
	return func(s *stage) {
		pod, actors := s.usual("one", oneLimited)
		file := s.file("f")
		actors["b"].makes(file, "16Mi")
		account := s.count(pod, actors, "a", "b").films(file, "a", s.due(limit), "b")
		if len(args) == 0 {
			args = []string{"--span", "16Mi"}
		}
		wrote := actors["a"].writes(file, args...)
		s.limited = wrote.Rate() / s.due(limit)
		account.done(0, wrote.Bytes)
		s.byItself(actors["a"], s.due(limit), args...)
	}
}

// escapeWithin is escape with a limit on b as well, so that the pod has a backstop.
func escapeWithin(s *stage) {
	pod, actors := s.usual("all", allLimited)
	file := s.file("f")
	actors["b"].makes(file, "16Mi")
	account := s.count(pod, actors, "a", "b").films(file, "a", s.due(limit), "b")
	wrote := actors["a"].writes(file, "--span", "16Mi")
	s.limited = wrote.Rate() / s.due(limit)
	account.done(s.due(limit+raised), wrote.Bytes)
	s.byItself(actors["a"], s.due(limit), "--span", "16Mi")
}

func smallFiles(s *stage) {
	pod, actors := s.usual("one", oneLimited)
	files := s.file("d")
	small := []string{"write", "--path", files, "--files", "200", "--block", "4Ki", "--span", "800Ki"}
	actors["b"].does(append(small, "--size", "800Ki", "--fsync")...)
	account := s.count(pod, actors, "a", "b")
	wrote := actors["a"].writes(files, append(small[3:], "--sync", "64Ki")...)
	s.limited = wrote.Rate() / s.due(limit)
	account.done(0, wrote.Bytes)
}

func bigFile(s *stage) {
	pod, actors := s.usual("one", oneLimited)
	file := s.file("f")
	actors["b"].does("write", "--path", file, "--mmap", "--span", "1Gi", "--size", "1Mi", "--fsync")
	account := s.count(pod, actors, "a", "b").films(file, "a", s.due(limit), "b")
	wrote := actors["a"].writes(file, "--span", "1Gi", "--sync", "8Mi")
	s.limited = wrote.Rate() / s.due(limit)
	account.done(0, wrote.Bytes)
	s.byItself(actors["a"], s.due(limit), "--span", "1Gi", "--sync", "8Mi")
}

// twoPods has a write to a file that a container of another pod, without annotations, has created.
func twoPods(s *stage) {
	_, others := s.cast("other", nil, "b")
	pod, actors := s.cast("pod", oneLimited, "a")
	file := s.file("f")
	others["b"].makes(file, "16Mi")
	account := s.count(pod, actors, "a").films(file, "a", s.due(limit))
	s.limited = actors["a"].writes(file, "--span", "16Mi").Rate() / s.due(limit)
	account.done(s.due(limit), 0)
	s.byItself(actors["a"], s.due(limit), "--span", "16Mi")
}

// inversion has the unlimited b write to a file that the limited a has created.
func inversion(s *stage) {
	pod, actors := s.usual("one", oneLimited)
	file := s.file("f")
	actors["a"].makes(file, "4Mi")
	alone := actors["b"].alone()
	account := s.count(pod, actors, "a", "b").films(file, "b", alone, "a")
	wrote := actors["b"].writes(file, "--span", "4Mi")
	s.free = wrote.Rate() / alone
	account.done(0, wrote.Bytes)
}

// inversionBeside is inversion while a fills the page cache by writes to a file of its own. The node allows as
// few dirty pages as in dirtyPages. This alone lowers the rate of b, so the rate of b on a file of its own is
// measured as well.
func inversionBeside(cure func(s *stage, a *cri.Container)) func(*stage) {
	return func(s *stage) {
		lab.LittleDirty(s.T)
		pod, actors := s.cast("pod", oneLimited, "a", "b")
		file, own := s.file("f"), s.file("own")
		actors["a"].makes(file, "4Mi")
		alone := actors["b"].alone()
		if cure != nil {
			cure(s, actors["a"].Container)
		}
		var beside sync.WaitGroup
		before := s.written(actors["a"].Cgroup)
		beside.Go(func() { actors["a"].does("write", "--path", own, "--span", "4Gi", "--seconds", seconds(3*s.duration)) })
		lab.Eventually(s.T, "a writes", func() error {
			if s.written(actors["a"].Cgroup) == before {
				return errors.New("no further write is charged to it")
			}
			return nil
		})
		s.note = "on a file of its own " + ratio(actors["b"].writes(s.file("b"), "--span", "4Mi").Rate()/alone)
		account := s.count(pod, actors, "a", "b").films(file, "b", alone)
		s.free = actors["b"].writes(file, "--span", "4Mi").Rate() / alone
		account.done(0, 0)
		beside.Wait()
	}
}

// fullQueue is inversion while a has much unwritten data.
func fullQueue(s *stage) {
	pod, actors := s.usual("one", oneLimited)
	file := s.file("f")
	alone := actors["b"].alone()
	actors["a"].does("write", "--path", file, "--size", "32Mi", "--span", "32Mi")
	account, began := s.count(pod, actors, "a", "b").films(file, "b", alone, "a"), time.Now()
	s.free = actors["b"].writes(file, "--append").Rate() / alone
	account.done(0, 0)
	s.drains(began)
}

// contested has both containers keep writing to one file.
func contested(s *stage) {
	pod, actors := s.usual("one", oneLimited)
	file := s.file("f")
	alone := actors["b"].alone()
	account := s.count(pod, actors, "a", "b")
	var both sync.WaitGroup
	both.Go(func() { s.limited = actors["a"].writes(file, "--span", "16Mi").Rate() / s.due(limit) })
	both.Go(func() { s.free = actors["b"].writes(file, "--span", "16Mi").Rate() / alone })
	both.Wait()
	account.done(0, 0)
}

// dirtyPages has a write to the page cache as fast as it can, until a has all dirty pages that the node allows.
// b then writes to the same disk and to another one. The node allows few dirty pages, so that this takes
// seconds.
func dirtyPages(cure func(s *stage, a *cri.Container)) func(*stage) {
	return func(s *stage) {
		lab.LittleDirty(s.T)
		pod, actors := s.cast("pod", oneLimited, "b")
		other, elsewhere := s.file("other"), "/other/scenario-dirty-pages"
		s.Cleanup(func() { os.Remove(s.volume.other() + "/scenario-dirty-pages") })
		burst := func(path string) float64 {
			return actors["b"].does("write", "--path", path, "--size", "16Mi", "--fsync").Rate()
		}
		burst(other) // the file is there, as it is the second time
		burst(elsewhere)
		alone, aloneThere := burst(other), burst(elsewhere)

		cfg := stageContainer("a", s.volume)
		cfg.Args = []string{"write", "--path", s.file("f"), "--span", "4Gi"}
		a := pod.MustRun(cfg)
		if cure != nil {
			cure(s, a)
		}
		time.Sleep(s.duration)
		s.free = burst(other) / alone
		s.note = "unlimited on another disk " + ratio(burst(elsewhere)/aloneThere)
		for _, disk := range s.volume.disks { // else it ends slowly
			writeCgroup(s.T, a.Cgroup, "io.max", lab.Node.Disks[disk]+" wbps=max")
		}
		s.ends(actor{a, s})
	}
}

// highMemory bounds what a has in memory, dirty pages among it.
func highMemory(s *stage, a *cri.Container) { writeCgroup(s.T, a.Cgroup, "memory.high", "32M") }

// strictLimit bounds what the disk may have of the node's dirty pages. It is one of a
// filesystem of one disk: btrfs has a bdi of its own.
func strictLimit(s *stage, _ *cri.Container) {
	bdi := "/sys/class/bdi/" + lab.Node.Disks[s.volume.disks[0]] + "/"
	for name, value := range map[string]string{"strict_limit": "1", "max_ratio": "10"} {
		old, err := os.ReadFile(bdi + name)
		if err != nil {
			s.note = "no " + name + " in this kernel"
			continue
		}
		lab.WriteFile(s.T, bdi+name, value)
		s.Cleanup(func() { lab.WriteFile(s.T, bdi+name, string(old)) })
	}
}

// restart ends the container while it has much unwritten data. The next container, with this limit, writes to
// the same file.
func restart(next int) func(*stage) {
	return func(s *stage) {
		scopes := lab.Annotations{"container.a": "/data wbps=2Mi", "container.next": "/data wbps=4Mi"}
		if next == limit {
			scopes["container.next"] = "/data wbps=2Mi"
		}
		pod, actors := s.cast("pod", scopes, "a")
		file := s.file("f")
		actors["a"].does("write", "--path", file, "--size", "16Mi")
		s.ends(actors["a"])
		s.drains(time.Now())
		actors["next"] = s.enter(pod, "next")
		account := s.count(pod, actors, "next").films(file, "next", s.due(next))
		wrote := actors["next"].writes(file, "--span", "16Mi")
		s.limited = wrote.Rate() / s.due(next)
		account.done(s.due(next), wrote.Bytes)
		s.byItself(actors["next"], s.due(next), "--span", "16Mi")
	}
}

// newPod deletes the pod while it has much unwritten data. Another pod with a higher limit then has its volume.
func newPod(s *stage) {
	old, actors := s.cast("old", oneLimited, "a")
	file := s.file("f")
	actors["a"].does("write", "--path", file, "--size", "16Mi")
	if err := old.RemoveSandbox(s.Context()); err != nil {
		s.Fatal(err)
	}
	s.drains(time.Now())
	pod, actors := s.cast("new", lab.Annotations{"container.next": "/data wbps=4Mi"}, "next")
	account := s.count(pod, actors, "next").films(file, "next", s.due(raised))
	wrote := actors["next"].writes(file, "--span", "16Mi")
	s.limited = wrote.Rate() / s.due(raised)
	account.done(s.due(raised), wrote.Bytes)
	s.byItself(actors["next"], s.due(raised), "--span", "16Mi")
}

// frozen freezes the volume for some seconds when the container ends. Other containers keep writing. (Freezing
// writes out all that was queued.)
func frozen(s *stage) {
	pod, actors := s.cast("own", oneLimited, "a", "b")
	actors["a"].does("write", "--path", s.file("f"), "--size", "4Mi")
	thaw := freeze(s.T, filepath.Dir(s.volume.dir))
	s.ends(actors["a"])
	began := time.Now()
	pod.MustRun(lab.Sleeper("beside"))
	s.note = "another container started in " + time.Since(began).Round(100*time.Millisecond).String()
	time.Sleep(2 * time.Second)
	thaw()
}

// lostRace ends the container while the plugin is stopped.
func lostRace(s *stage) {
	_, actors := s.cast("own", oneLimited, "a", "b")
	actors["a"].does("write", "--path", s.file("f"), "--size", "16Mi")
	lost := s.plugin.Count(lab.LogLost)
	s.plugin.Signal(s.T, syscall.SIGSTOP)
	var stop sync.WaitGroup
	stop.Go(func() { s.ends(actors["a"]) }) // the runtime asks the plugin
	began := time.Now()
	lab.Eventually(s.T, "cgroup was removed", func() error {
		if _, err := os.Stat(filepath.Join(cri.CgroupRoot, actors["a"].Cgroup)); !errors.Is(err, os.ErrNotExist) {
			return errors.New("the cgroup exists")
		}
		return nil
	})
	s.plugin.Signal(s.T, syscall.SIGCONT)
	stop.Wait()
	s.drains(began)
	if s.parts != noParts && s.parts != "backstop" {
		lab.Eventually(s.T, "the log says that the limits were lifted too late", func() error {
			if s.plugin.Count(lab.LogLost) <= lost {
				return errors.New("the log has no such line")
			}
			return nil
		})
	}
}

// ends kills a container.
func (s *stage) ends(a actor) {
	if err := a.Stop(s.Context()); err != nil {
		s.Error(err)
	}
}

const fiFreeze, fiThaw = 0xc0045877, 0xc0045878 // linux/fs.h

// freeze stops all writing to a filesystem until thaw, or the end of the test.
func freeze(t *testing.T, mountpoint string) (thaw func()) {
	t.Helper()
	dir, err := os.Open(mountpoint)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetInt(int(dir.Fd()), fiFreeze, 0); err != nil {
		t.Fatalf("freeze %s: %v", mountpoint, err)
	}
	thaw = sync.OnceFunc(func() {
		if err := unix.IoctlSetInt(int(dir.Fd()), fiThaw, 0); err != nil {
			t.Errorf("thaw %s: %v", mountpoint, err)
		}
		dir.Close()
	})
	t.Cleanup(thaw)
	return thaw
}
