package calibrate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
	"github.com/nri-blkio/nri-blkio/internal/fakenode"
)

// sysfs is a sysfs whose disks have counters that a test chooses.
type sysfs struct {
	fstest.MapFS

	mu   sync.Mutex
	stat func() (string, error) // of each disk; guarded by mu
}

func (f *sysfs) ReadFile(name string) ([]byte, error) {
	if !strings.HasSuffix(name, "/stat") {
		return f.MapFS.ReadFile(name)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	text, err := f.stat()
	return []byte(text), err
}

func (f *sysfs) add(dir, dev string, attrs ...string) {
	for _, attr := range append(attrs, "dev="+dev) {
		key, value, _ := strings.Cut(attr, "=")
		f.MapFS["devices/"+dir+"/"+key] = &fstest.MapFile{Data: []byte(value + "\n")}
	}
	name := filepath.Base(dir)
	f.link("dev/block/"+dev, "../../devices/"+dir)
	f.link("class/block/"+name, "../../devices/"+dir)
	if !strings.Contains(dir, "/") {
		f.link("block/"+name, "../devices/"+dir)
	}
}

func (f *sysfs) link(name, target string) {
	f.MapFS[name] = &fstest.MapFile{Data: []byte(target), Mode: fs.ModeSymlink | 0o777}
}

const idle = "0 0 0 0 0 0 0 0 0 0 0"

// nodeWith returns a node with a disk vdb that has the partition vdb1, and devices made of disks.
func nodeWith(t *testing.T, cgroups map[string]string) (*Node, *sysfs) {
	t.Helper()
	return nodeAt(t, t.TempDir(), cgroups)
}

// nodeAt is nodeWith with the node's root filesystem in a directory.
func nodeAt(t *testing.T, root string, cgroups map[string]string) (*Node, *sysfs) {
	t.Helper()
	f := &sysfs{MapFS: fstest.MapFS{"fs/btrfs": &fstest.MapFile{Mode: fs.ModeDir}}, stat: func() (string, error) { return idle, nil }}
	const size, mq = "size=41943040", "mq/0/cpu_list=0"
	f.add("vdb", "254:16", size, mq, "serial=S1")
	f.add("vdb/vdb1", "254:17", size, "partition=1")
	f.add("vdc", "254:32", size, mq)
	f.add("vdd", "254:48", "size=2048", mq)
	f.add("zram0", "253:9", size)
	f.add("loop0", "7:0", size, mq, "loop/backing_file=/srv/data/a.img")
	f.add("empty", "8:0", "size=0")
	f.add("dm-0", "253:0", size, "dm/name=vg-a", "dm/uuid=LVM-a")
	f.link("devices/dm-0/slaves/vdb1", "../../vdb/vdb1")
	f.add("md0", "9:0", size, "md/level=raid1")
	f.link("devices/md0/slaves/vdb", "../../vdb")
	f.link("devices/md0/slaves/vdc", "../../vdc")
	fakenode.WriteFiles(t, root, map[string]string{"srv/data/a.img": "", "srv/raid/x": "", "srv/mem/x": "", "srv/other/x": ""})
	files := map[string]string{"cgroup.controllers": "io\n", "io.cost.qos": "", "io.stat": ""}
	maps.Copy(files, cgroups)
	dir := t.TempDir()
	fakenode.WriteFiles(t, dir, files)
	return &Node{
		Storage: fakenode.OpenStorage(t, f, root, `1 0 254:32 / / rw - ext4 /dev/vdc rw
2 1 253:0 / /srv/data rw - xfs /dev/mapper/vg-a rw
3 1 9:0 / /srv/raid rw - ext4 /dev/md0 rw
4 1 0:40 / /srv/mem rw - tmpfs tmpfs rw
`),
		Sysfs: storage.NewSysfs(f), Cgroups: fakenode.OpenCgroups(t, dir), Own: "system.slice/ssh.service",
	}, f
}

var vdb = blkio.Disk{Dev: blkio.Dev{Major: 254, Minor: 16}, Name: "vdb"}

func TestFind(t *testing.T) {
	n, _ := nodeWith(t, nil)
	for name, want := range map[string]string{
		"vdb": "", "/dev/vdb": "",
		"vdb1":             "vdb1 is a partition: calibrate its disk, vdb",
		"dm-0":             "dm-0 is a device of kind lvm: io.cost works on the disks below: calibrate vdb",
		"/dev/mapper/vg-a": "dm-0 is a device of kind lvm",
		"md0":              "md0 is a device of kind raid1: io.cost works on the disks below: calibrate vdb, vdc",
		"loop0":            "loop0 is a loop device: calibrate the disk of its file (dm-0, vdb)",
		"zram0":            "zram0 cannot have io.cost: its driver has no queue of requests (blk-mq)",
		"vdd":              "vdd is too small (1048576 bytes, minimum 67108864)",
		"empty":            `find "empty": no medium in the drive`,
		"vdz":              `find "vdz": no such disk`,
		"../vdb":           `find "../vdb": no such disk`,
	} {
		d, err := Find(t.Context(), n.Storage, n.Sysfs, name)
		switch {
		case want == "" && (err != nil || d.Disk != vdb || d.Serial != "S1"):
			t.Errorf("%s: %+v, %v", name, d, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
	if _, err := Find(t.Context(), n.Storage, n.Sysfs, "vdz"); !errors.Is(err, blkio.ErrNoDevice) {
		t.Errorf("a disk that does not exist: %v", err)
	}
}

func config(n *Node) *Config {
	return &Config{Node: n, Disk: &storage.DiskInfo{Disk: vdb, Drive: storage.Drive{Serial: "S1"}, Size: 20 * gib}, Progress: ignore}
}

// run calibrates a simulated disk.
func run(t *testing.T, cfg *Config, d *simDisk) (c *Calibration, err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { c, err = cfg.calibrate(t.Context(), d) })
	return c, err
}

func slowDisk() *simDisk { return &simDisk{iops: 1500, bps: 60 * mib} }

func TestCalibratesIdleDisk(t *testing.T) {
	n, _ := nodeWith(t, nil)
	c, err := run(t, config(n), slowDisk())
	if err != nil || c.Disk.Serial != "S1" || !c.IsPlausible() {
		t.Fatalf("%+v, %v", c, err)
	}
	near(t, "the model", float64(c.Model.RRandIOPS), 0.97*1500, 0.03)
	// Two calibrations of a disk agree.
	again, err := run(t, config(n), slowDisk())
	if err != nil {
		t.Fatal(err)
	}
	near(t, "the model, again", float64(again.Model.RRandIOPS), float64(c.Model.RRandIOPS), 0.03)
	near(t, "bytes, again", float64(again.Model.Rbps), float64(c.Model.Rbps), 0.03)
}

func TestRefusesBusyDisk(t *testing.T) {
	n, sys := nodeWith(t, nil)
	looks := 0
	sys.stat = func() (string, error) {
		looks++
		return fmt.Sprintf("%d 0 0 0 0 0 0 0 1 %d 0", 800*looks, 970*looks), nil
	}
	_, err := run(t, config(n), slowDisk())
	const want = "calibrate disk vdb: it is busy: 800 operations/s, 97 % of the time (add --force to calibrate anyway)"
	if busy, ok := errors.AsType[*BusyError](err); !ok || busy.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	cfg := config(n)
	cfg.Force = true
	c, err := run(t, cfg, slowDisk())
	if err != nil || c.IsPlausible() || !strings.Contains(fmt.Sprint(c.Warnings), "it is busy") {
		t.Errorf("forced: %+v, %v", c, err)
	}
}

func TestRefusesLimits(t *testing.T) {
	n, _ := nodeWith(t, map[string]string{
		"io.cost.qos":                     "254:16 enable=1 ctrl=auto rpct=95.00\n",
		"system.slice/io.max":             "254:16 rbps=1048576 wbps=max riops=max wiops=max\n",
		"system.slice/ssh.service/io.max": "254:32 rbps=1048576 wbps=max riops=max wiops=max\n",
	})
	_, err := run(t, config(n), slowDisk())
	if err == nil || !strings.Contains(err.Error(), "io.cost is enabled on it, and would slow the calibration down; this process is limited on it, by io.max of its cgroup system.slice (add") {
		t.Error(err)
	}
}

func TestDiskDisappears(t *testing.T) {
	n, sys := nodeWith(t, nil)
	d := slowDisk()
	d.fail = func(operations int) error {
		if operations == 5000 {
			delete(sys.MapFS, "dev/block/254:16")
			return unix.EIO
		}
		return nil
	}
	_, err := run(t, config(n), d)
	if err == nil || err.Error() != "disk vdb disappeared during the calibration: input/output error" {
		t.Error(err)
	}
}

func TestForeignIO(t *testing.T) {
	var c counter
	c.read.Store(80 * mib)
	c.written.Store(20 * mib)
	for _, tt := range []struct {
		done storage.DiskStat
		want string
	}{
		{storage.DiskStat{ReadBytes: 80 * mib, WrittenBytes: 21 * mib}, ""},
		{storage.DiskStat{ReadBytes: 80 * mib, WrittenBytes: 45 * mib}, "20 % of the bytes that the disk transferred meanwhile were those of other programs"},
		{storage.DiskStat{ReadBytes: 80 * mib, WrittenBytes: 5 * mib}, "only 25 % of the bytes written have reached the disk"},
	} {
		got := c.compare(tt.done)
		if tt.want == "" && len(got) > 0 || tt.want != "" && (len(got) != 1 || !got[0].Implausible || !strings.Contains(got[0].Text, tt.want)) {
			t.Errorf("%+v: %+v", tt.done, got)
		}
	}
}

func TestOpensNoOtherFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "vdb")
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if d, err := openDisk(t.Context(), name, vdb); err == nil || !strings.HasPrefix(err.Error(), "open disk vdb: ") {
		t.Errorf("%+v, %v", d, err)
	}
	if _, err := Run(t.Context(), Config{Disk: &storage.DiskInfo{Disk: vdb}, Device: name + "x"}); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

func TestLocks(t *testing.T) {
	name := filepath.Join(t.TempDir(), "disk")
	open := func() *os.File {
		f, err := os.OpenFile(name, os.O_RDONLY|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	first, second := open(), open()
	synctest.Test(t, func(t *testing.T) {
		if err := lock(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		if err := lock(t.Context(), second); !errors.Is(err, ErrLocked) {
			t.Errorf("locked twice: %v", err)
		}
		// udev releases the lock after a moment.
		go func() {
			time.Sleep(lockPause / 2)
			first.Close()
		}()
		if err := lock(t.Context(), second); err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		third := open()
		if err := lock(ctx, third); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}
