package node

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
	"github.com/nri-blkio/nri-blkio/plugin/record"
)

// modelKernel is a cgroup tree of plain files in which io.max behaves as the kernel's. A write changes the keys
// that it names, and a device without a limit has no line. It also has a mount table, and disks that do not
// answer.
type modelKernel struct {
	t    testing.TB
	dir  string
	tree *cgroupfs.Hierarchy

	mu     sync.Mutex // guards all below; never held while a disk hangs
	limits map[string]map[blkio.Dev]blkio.Limits
	trash  int // of removed cgroups so far
	writes int // of the plugin so far
	// hung has a channel for each thing that does not answer, which is closed when it answers again. The key is
	// the path of a cgroup for writes to it, and a host path for the rest.
	hung map[string]chan struct{}
	// mounted is true while a filesystem is mounted in modelPropagated.
	mounted bool
	// unreadable is true while the mount table cannot be read.
	unreadable bool
	watch      *modelWatch
	// faults has the errors of writes to io.max, and full those of attributes, by the path of a cgroup.
	faults, full map[string]error
	wasFull      bool // an attribute may not have been stored
}

var (
	thirdDisk = blkio.Disk{Dev: blkio.Dev{Major: 254, Minor: 32}, Name: "vdc"}
	slowDisk  = blkio.Disk{Dev: blkio.Dev{Major: 254, Minor: 48}, Name: "vdd"}
	usedDisk  = blkio.Disk{Dev: blkio.Dev{Major: 254, Minor: 64}, Name: "raw"} // of no mount
	lateDisk  = blkio.Disk{Dev: blkio.Dev{Major: 254, Minor: 80}, Name: "vdf"} // of a mount that comes and goes
)

func modelDisks() []blkio.Disk {
	return []blkio.Disk{rootDisk, dataDisk, thirdDisk, slowDisk, usedDisk, lateDisk}
}

func newModelKernel(t testing.TB) *modelKernel {
	k := &modelKernel{
		t: t, dir: memoryDir(t),
		limits: map[string]map[blkio.Dev]blkio.Limits{}, hung: map[string]chan struct{}{},
		faults: map[string]error{}, full: map[string]error{},
	}
	write(t, filepath.Join(k.dir, "cgroup.controllers"), "cpu io memory\n")
	tree, err := cgroupfs.OpenFake(k.dir, cgroupfs.Fake{Write: k.write, WriteXattr: k.writeXattr})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tree.Close() })
	k.tree = tree
	return k
}

// memoryDir is t.TempDir in memory, where that takes the attributes of files that records
// need (Linux 6.6). A disk takes ten times as long.
func memoryDir(t testing.TB) string {
	dir, err := os.MkdirTemp("/dev/shm", "nri-blkio-model-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if unix.Setxattr(dir, record.Xattr, []byte("{}"), 0) != nil {
		return t.TempDir()
	}
	return dir
}

// make makes a cgroup, as a runtime or the kubelet does, with a process in it or without.
func (k *modelKernel) make(cgroup string, populated bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	dir := filepath.Join(k.dir, cgroup)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		k.t.Error(err)
	}
	k.limits[cgroup] = map[blkio.Dev]blkio.Limits{}
	for name, data := range map[string]string{"io.max": "", "io.stat": "", "io.weight": "default 100\n", "cgroup.events": cgroupEvents(populated)} {
		write(k.t, filepath.Join(dir, name), data)
	}
}

func cgroupEvents(populated bool) string {
	if populated {
		return "populated 1\nfrozen 0\n"
	}
	return "populated 0\nfrozen 0\n"
}

// populate is the first process of a cgroup that was made empty.
func (k *modelKernel) populate(cgroup string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.replace(cgroup, "cgroup.events", cgroupEvents(true))
}

// empty is the end of the last process of a cgroup.
func (k *modelKernel) empty(cgroup string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.replace(cgroup, "cgroup.events", cgroupEvents(false))
	k.watch.fire(cgroup)
}

// remove removes a cgroup at once, as the kernel does.
func (k *modelKernel) remove(cgroup string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.trash++
	trash := filepath.Join(k.dir, fmt.Sprint("removed-", k.trash))
	if err := os.Rename(filepath.Join(k.dir, cgroup), trash); err != nil {
		k.t.Error(err)
	}
	if err := os.RemoveAll(trash); err != nil {
		k.t.Error(err)
	}
	delete(k.limits, cgroup)
	k.watch.fire(cgroup)
}

// write does a write of the plugin, as the kernel would.
func (k *modelKernel) write(name, data string) error {
	cgroup, file := path.Dir(name), path.Base(name)
	k.wait(cgroup)
	time.Sleep(k.latency())
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, ok := k.limits[cgroup]; !ok {
		return unix.ENOENT
	}
	switch file {
	case "io.max":
		if err := k.faults[cgroup]; err != nil {
			return err
		}
		return k.setLimits(cgroup, data)
	case "io.weight":
		k.replace(cgroup, file, data+"\n")
		return nil
	}
	return unix.ENOENT
}

// writeXattr fails the change of an attribute of a cgroup without room for it.
func (k *modelKernel) writeXattr(cgroup, _ string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.full[cgroup]
}

// latency is how long the next write takes, so that events meet a writer.
func (k *modelKernel) latency() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.writes++
	return time.Duration(k.writes%3) * 100 * time.Microsecond
}

// runtimeWrites writes the io.max of an OCI spec, as the runtime would.
func (k *modelKernel) runtimeWrites(cgroup, unified string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for line := range strings.Lines(unified) {
		if err := k.setLimits(cgroup, strings.TrimSpace(line)); err != nil {
			k.t.Errorf("the runtime writes %q to %s: %v", line, cgroup, err)
		}
	}
}

func (k *modelKernel) hasMount() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.mounted
}

// countUse counts I/O of a container to a disk, for its cgroup and that of its pod.
func (k *modelKernel) countUse(cgroup string, dev blkio.Dev) {
	k.mu.Lock()
	defer k.mu.Unlock()
	text := fmt.Sprintf("%s rbytes=%d wbytes=0 rios=1 wios=0 dbytes=0 dios=0\n", dev, 2*inventory.MinUsage)
	k.replace(cgroup, "io.stat", text)
	k.replace(path.Dir(cgroup), "io.stat", text)
}

func (k *modelKernel) setWeight(cgroup, weight string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.replace(cgroup, "io.weight", "default "+weight+"\n")
}

// setLimits is the kernel's tg_set_limit. The caller holds mu.
func (k *modelKernel) setLimits(cgroup, line string) error {
	if strings.Contains(strings.TrimSpace(line), "\n") {
		return unix.EINVAL // one device for each write
	}
	parsed, err := blkio.ParseIOMax(line)
	if err != nil || len(parsed) != 1 {
		return unix.EINVAL
	}
	of := k.limits[cgroup]
	for dev := range parsed {
		now, ok := of[dev]
		if !ok {
			now = blkio.Limits{blkio.Max, blkio.Max, blkio.Max, blkio.Max}
		}
		for pair := range strings.FieldsSeq(line) {
			name, _, _ := strings.Cut(pair, "=")
			if key, ok := blkio.ParseKey(blkio.IOMax, name); ok {
				now[key] = parsed[dev][key]
			}
		}
		if of[dev] = now; now == (blkio.Limits{blkio.Max, blkio.Max, blkio.Max, blkio.Max}) {
			delete(of, dev)
		}
	}
	k.replace(cgroup, "io.max", blkio.FormatIOMax(of))
	return nil
}

// replace changes a file so that a reader sees one version. The caller holds mu.
func (k *modelKernel) replace(cgroup, file, data string) {
	fresh := filepath.Join(k.dir, "fresh")
	write(k.t, fresh, data)
	if err := os.Rename(fresh, filepath.Join(k.dir, cgroup, file)); err != nil {
		k.t.Error(err)
	}
}

// has returns the limits of a cgroup.
func (k *modelKernel) has(cgroup string) map[blkio.Dev]blkio.Limits {
	k.mu.Lock()
	defer k.mu.Unlock()
	return maps.Clone(k.limits[cgroup])
}

// unplug is a disk that goes away and comes back with the same number.
func (k *modelKernel) unplug(dev blkio.Dev) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for cgroup, of := range k.limits {
		if _, ok := of[dev]; ok {
			delete(of, dev)
			k.replace(cgroup, "io.max", blkio.FormatIOMax(of))
		}
	}
}

// wait returns when the disk of a place answers.
func (k *modelKernel) wait(place string) {
	k.mu.Lock()
	gate := k.hung[place]
	k.mu.Unlock()
	if gate != nil {
		<-gate
	}
}

func (k *modelKernel) hangs(place string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.hung[place] != nil
}

func (k *modelKernel) hang(place string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.hung[place] == nil {
		k.hung[place] = make(chan struct{})
	}
}

// answer ends all calls that hang, and all errors.
func (k *modelKernel) answer() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, gate := range k.hung {
		close(gate)
	}
	clear(k.hung)
	clear(k.faults)
	clear(k.full)
	k.unreadable = false
}

func (k *modelKernel) setUnreadable() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.unreadable = true
}

// modelStorage is the mount table of a modelKernel.
type modelStorage struct {
	disks
	k *modelKernel
}

func (s modelStorage) Refresh(context.Context) error {
	s.k.mu.Lock()
	defer s.k.mu.Unlock()
	if s.k.unreadable {
		return errors.New("no mounts")
	}
	return nil
}

func (s modelStorage) Resolve(_ context.Context, host string) blkio.Backing {
	s.k.wait(host)
	return modelBacking(host)
}

func (s modelStorage) Submounts(_ context.Context, host string) iter.Seq2[string, blkio.Backing] {
	isAbove := host == modelPropagated && s.k.hasMount()
	return func(yield func(string, blkio.Backing) bool) {
		if isAbove {
			yield("late", modelBacking(modelPropagated+"/late"))
		}
	}
}

// modelPropagated is a directory of the host. What is mounted in it later propagates into containers.
const modelPropagated = "/mnt/propagated"

// modelBacking returns the disks of a host path.
func modelBacking(host string) blkio.Backing {
	at := func(mountpoint string, disk blkio.Disk) blkio.Backing {
		b := on(disk)
		b.Mountpoint = mountpoint
		return b
	}
	switch {
	case strings.HasPrefix(host, "/mnt/data"):
		return at("/mnt/data", dataDisk)
	case host == modelPropagated+"/late":
		return at(host, lateDisk)
	case strings.HasPrefix(host, "/mnt/third"):
		return at("/mnt/third", thirdDisk)
	case strings.HasPrefix(host, "/mnt/slow"):
		return at(host, slowDisk)
	case strings.HasPrefix(host, "/mnt/mem"):
		return blkio.Backing{FSType: "tmpfs", Reason: "tmpfs is memory, not a disk"}
	}
	return at("/", rootDisk)
}
