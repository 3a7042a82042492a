package fakenode

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
)

// Kernel is a cgroup tree of plain files in which io.max behaves as the kernel's. A write changes the keys that
// it names, and a device without a limit has no line. Writes can fail or hang.
type Kernel struct {
	Gates
	Latency time.Duration // of writes: they take none of it, all of it, and twice of it in turns
	Late    time.Duration // the time after which each fourth end of a cgroup is reported

	t   testing.TB
	dir string

	mu      sync.Mutex // guards all below; never held while a write hangs
	limits  map[string]map[blkio.Dev]blkio.Limits
	faults  map[string]error // of writes, by the path of the cgroup
	full    map[string]error // of attributes, by the path of the directory
	writes  []string         // of the plugin
	delayed int              // number of writes so far
	removed int
	lacks   string // a control file that no cgroup has
	watch   *Watch
}

// errProcessEnded is the error of a call of a process that has ended, which changes nothing any more.
var errProcessEnded = errors.New("the process has ended")

// NewKernel returns a tree without cgroups below a temporary directory.
func NewKernel(t testing.TB) *Kernel {
	k := &Kernel{t: t, dir: MemoryDir(t), limits: map[string]map[blkio.Dev]blkio.Limits{}, faults: map[string]error{}, full: map[string]error{}}
	WriteFiles(t, k.dir, map[string]string{"cgroup.controllers": "cpu io memory\n"})
	return k
}

// MemoryDir is t.TempDir in memory, where that takes the attributes of files that records need (Linux 6.6). A
// disk takes ten times as long, and ext4 has room for few attributes.
func MemoryDir(t testing.TB) string {
	dir, err := os.MkdirTemp("/dev/shm", "nri-blkio-fake-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if unix.Setxattr(dir, "user.nri-blkio", []byte("{}"), 0) != nil {
		return t.TempDir()
	}
	return dir
}

// Open opens the tree for a process that lives until ended is closed.
func (k *Kernel) Open(t testing.TB, ended <-chan struct{}) *cgroupfs.Hierarchy {
	t.Helper()
	tree, err := cgroupfs.OpenFake(k.dir, cgroupfs.Fake{
		Write: func(name, data string) error { return k.write(name, data, ended) },
		WriteXattr: func(cgroup, _ string) error {
			k.mu.Lock()
			defer k.mu.Unlock()
			return k.full[cgroup]
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

// Lack makes a kernel without a control file, before the first cgroup of a pod. A cgroup of the system has the io controller.
func (k *Kernel) Lack(file string) {
	WriteFiles(k.t, k.dir, map[string]string{"system.slice/cgroup.controllers": "io\n"})
	k.lacks = file
	k.Make("system.slice", true)
}

// Make makes a cgroup, as a runtime or the kubelet does, with a process in it or without.
func (k *Kernel) Make(cgroup string, populated bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.limits[cgroup] != nil {
		return
	}
	if err := os.MkdirAll(filepath.Join(k.dir, cgroup), 0o755); err != nil {
		k.t.Fatal(err)
	}
	k.limits[cgroup] = map[blkio.Dev]blkio.Limits{}
	for name, data := range map[string]string{"io.max": "", "io.stat": "", "io.weight": "default 100\n", "cgroup.events": cgroupEvents(populated)} {
		k.replace(cgroup, name, data)
	}
}

func cgroupEvents(populated bool) string {
	if populated {
		return "populated 1\nfrozen 0\n"
	}
	return "populated 0\nfrozen 0\n"
}

// Populate is the first process of a cgroup that was made empty.
func (k *Kernel) Populate(cgroup string) { k.Replace(cgroup, "cgroup.events", cgroupEvents(true)) }

// Empty is the end of the last process of a cgroup.
func (k *Kernel) Empty(cgroup string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.limits[cgroup] != nil {
		k.replace(cgroup, "cgroup.events", cgroupEvents(false))
		k.watch.fire(cgroup)
	}
}

// Remove removes a cgroup at once, as the kernel does.
func (k *Kernel) Remove(cgroup string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.limits[cgroup] == nil {
		return
	}
	k.removed++
	trash := filepath.Join(k.dir, fmt.Sprint("removed-", k.removed))
	if err := errors.Join(os.Rename(filepath.Join(k.dir, cgroup), trash), os.RemoveAll(trash)); err != nil {
		k.t.Fatal(err)
	}
	delete(k.limits, cgroup)
	k.watch.fire(cgroup)
}

// write does a write of a process that lives until ended is closed.
func (k *Kernel) write(name, data string, ended <-chan struct{}) error {
	cgroup, file := path.Dir(name), path.Base(name)
	if !k.Wait(cgroup, ended) {
		return errProcessEnded
	}
	time.Sleep(k.latency())
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.limits[cgroup] == nil {
		return unix.ENOENT
	}
	if err := k.faults[cgroup]; err != nil {
		return err
	}
	if file == k.lacks {
		return unix.ENOENT
	}
	k.writes = append(k.writes, name+" "+data)
	switch file {
	case "io.max":
		return k.setLimits(cgroup, data)
	case "io.weight", "memory.reclaim":
		k.replace(cgroup, file, data+"\n")
		return nil
	}
	return unix.ENOENT
}

// latency is how long the next write takes, so that events meet a writer.
func (k *Kernel) latency() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.delayed++
	return time.Duration(k.delayed%3) * k.Latency
}

// SetLimits writes lines to io.max, as another program does.
func (k *Kernel) SetLimits(cgroup, lines string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for line := range strings.Lines(lines) {
		if err := k.setLimits(cgroup, strings.TrimSpace(line)); err != nil {
			return fmt.Errorf("write %q to io.max of %s: %w", line, cgroup, err)
		}
	}
	return nil
}

// setLimits is the kernel's tg_set_limit. The caller holds mu.
func (k *Kernel) setLimits(cgroup, line string) error {
	if k.lacks == blkio.IOMax {
		return unix.ENOENT
	}
	of := k.limits[cgroup]
	parsed, err := blkio.ParseIOMax(line)
	if of == nil || err != nil || len(parsed) != 1 || strings.Contains(strings.TrimSpace(line), "\n") {
		return unix.EINVAL // one device for each write
	}
	unlimited := blkio.Limits{blkio.Max, blkio.Max, blkio.Max, blkio.Max}
	for dev := range parsed {
		now, isLimited := of[dev]
		if !isLimited {
			now = unlimited
		}
		for pair := range strings.FieldsSeq(line) {
			name, _, _ := strings.Cut(pair, "=")
			if key, ok := blkio.ParseKey(blkio.IOMax, name); ok {
				now[key] = parsed[dev][key]
			}
		}
		if of[dev] = now; now == unlimited {
			delete(of, dev)
		}
	}
	k.replace(cgroup, "io.max", blkio.FormatIOMax(of))
	return nil
}

// Replace changes a file of a cgroup so that a reader sees one version.
func (k *Kernel) Replace(cgroup, file, data string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.replace(cgroup, file, data)
}

func (k *Kernel) replace(cgroup, file, data string) {
	if file == k.lacks {
		return
	}
	fresh := filepath.Join(k.dir, "fresh")
	if err := errors.Join(os.WriteFile(fresh, []byte(data), 0o644), os.Rename(fresh, filepath.Join(k.dir, cgroup, file))); err != nil {
		k.t.Fatal(err)
	}
}

// Read returns a file of a cgroup.
func (k *Kernel) Read(cgroup, file string) (string, error) {
	data, err := os.ReadFile(filepath.Join(k.dir, cgroup, file))
	return strings.TrimSpace(string(data)), err
}

// Limits returns the limits of a cgroup, without those that are max.
func (k *Kernel) Limits(cgroup string) map[blkio.Dev]blkio.Limits {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := map[blkio.Dev]blkio.Limits{}
	for dev, of := range k.limits[cgroup] {
		for key, amount := range of {
			if amount == blkio.Max {
				of[key] = blkio.Unset
			}
		}
		out[dev] = of
	}
	return out
}

// Unplug is a disk that goes away, with all limits on it, and comes back with the same number.
func (k *Kernel) Unplug(dev blkio.Dev) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for cgroup, of := range k.limits {
		if _, isLimited := of[dev]; isLimited {
			delete(of, dev)
			k.replace(cgroup, "io.max", blkio.FormatIOMax(of))
		}
	}
}

// Away takes the cgroups of pods away, so that they cannot be read, or brings them back.
func (k *Kernel) Away(isAway bool) {
	const dir = "kubepods.slice"
	k.mu.Lock()
	defer k.mu.Unlock()
	at, away := filepath.Join(k.dir, dir), filepath.Join(k.dir, "away")
	var err error
	if isAway {
		err = errors.Join(os.Rename(at, away), os.WriteFile(at, nil, 0o600))
	} else {
		err = errors.Join(os.Remove(at), os.Rename(away, at))
	}
	if err != nil {
		k.t.Fatal(err)
	}
}

// HangReads makes reads of a file of a cgroup hang, until release is called. They hang also for the clock of a bubble.
func (k *Kernel) HangReads(cgroup, file string) (release func()) {
	pipe, at := filepath.Join(k.dir, "pipe"), filepath.Join(k.dir, cgroup, file)
	if err := errors.Join(unix.Mkfifo(pipe, 0o600), os.Remove(at), os.Link(pipe, at)); err != nil {
		k.t.Fatal(err)
	}
	return func() {
		fd, err := unix.Open(pipe, unix.O_WRONLY|unix.O_NONBLOCK, 0)
		if err != nil {
			k.t.Fatal(err)
		}
		unix.Close(fd)
	}
}

// Fail makes writes to a cgroup's files fail, until err is nil.
func (k *Kernel) Fail(cgroup string, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.faults[cgroup] = err
}

// FailAttributes makes changes of the attributes of a cgroup's directory fail, until err is nil.
func (k *Kernel) FailAttributes(cgroup string, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.full[cgroup] = err
}

// Heal ends all calls that hang, and all errors.
func (k *Kernel) Heal() {
	k.AnswerAll()
	k.mu.Lock()
	defer k.mu.Unlock()
	clear(k.faults)
	clear(k.full)
}

// Writes returns the writes of the plugin since the last call, such as "CGROUP/io.max 8:0 wbps=1".
func (k *Kernel) Writes() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := slices.Clone(k.writes)
	k.writes = nil
	return out
}
