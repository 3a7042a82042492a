package inspect

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
	"github.com/nri-blkio/nri-blkio/internal/fakenode"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/policy"
)

// deadPod is a pod's cgroup with a living container, as files.
func deadPod(t *testing.T, files map[string]string, exits ...record.Exit) (deadFinder, string) {
	t.Helper()
	dir := t.TempDir()
	files["cgroup.controllers"] = "io memory\n"
	files["pod/c/io.max"] = ""
	put(t, dir, files)
	tree, err := cgroupfs.OpenTree(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tree.Close() })
	record := &record.Record{
		Kind: record.KindPod, Namespace: "prod", Pod: "db-0", UID: "1", Exits: exits,
		Settings: policy.NewSettings(limitOf(blkio.Wbps, blkio.Dev{Major: 8}, 4<<20), limitOf(blkio.Rbps, blkio.Dev{Major: 8}, 1)),
	}
	return deadFinder{
		tree: tree, debugfs: fstest.MapFS{}, records: []Recorded{{tree.Cgroup("pod"), record}},
		everyPod: true, noise: writebackNoise(2),
		wait: func() time.Duration { t.Error("waited, without a reason"); return time.Second },
		name: func(dev blkio.Dev) string { return map[string]string{"8:0": "sda"}[dev.String()] },
	}, dir
}

func put(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, data := range files {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func limitOf(key blkio.Key, dev blkio.Dev, amount blkio.Amount) policy.Setting {
	return policy.Setting{Value: blkio.Value{Address: blkio.Address{Key: key, Dev: dev}, Amount: amount}}
}

func exit(name string, id uint64, limits ...policy.Setting) record.Exit {
	return record.Exit{Container: name, CgroupIDs: []uint64{id}, Limits: limits, At: time.Unix(1e9, 0)}
}

// goneID and the IDs after it belong to no existing cgroup.
const goneID = 1 << 52

const since = "2001-09-09T01:46:40Z"

// deadTest is the kernel's list for one cgroup, and the rows of the report.
type deadTest struct {
	exits  []record.Exit
	bdi    string
	change func(f *deadFinder, dir string)
	stat   cgroupfs.WritebackStat
	want   []DeadRow
}

func (tt deadTest) run(t *testing.T) {
	f, dir := deadPod(t, map[string]string{}, tt.exits...)
	if tt.change != nil {
		tt.change(&f, dir)
	}
	if tt.stat == (cgroupfs.WritebackStat{}) {
		tt.stat = cgroupfs.WritebackStat{CgroupID: goneID, Dirty: 8 << 20, Writeback: 1 << 20, Inodes: 1}
	}
	if tt.bdi == "" {
		tt.bdi = "8:0"
	}
	f.debugfs = fstest.MapFS{"bdi/" + tt.bdi + "/wb_stats": {Data: []byte(cgroupfs.FormatWritebackStats([]cgroupfs.WritebackStat{tt.stat}))}}
	got := f.find()
	if tt.want == nil {
		tt.want = []DeadRow{}
	}
	if d := cmp.Diff(DeadReport{Rows: tt.want}, got, cmp.AllowUnexported(DeadReport{})); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

func TestDeadListed(t *testing.T) {
	const mib = 1 << 20
	known := func(id uint64, container, disk, dev, at string) DeadRow {
		return DeadRow{
			Owner: Owner{Namespace: "prod", Pod: "db-0", UID: "1", Container: container}, CgroupID: id,
			Disk: disk, Dev: dev, DrainsAt: at, Left: 9 * mib, Since: since,
		}
	}
	nobody := DeadRow{Owner: Owner{Pod: unknownPod}, CgroupID: goneID, Disk: "sda", Dev: "8:0", DrainsAt: unknownRate, Left: 9 * mib}
	sda, sdb := blkio.Dev{Major: 8}, blkio.Dev{Major: 8, Minor: 16}
	for name, tt := range map[string]deadTest{
		"own limit":         {exits: []record.Exit{exit("a", goneID, limitOf(blkio.Wbps, sda, 512<<10), limitOf(blkio.Wiops, sda, 100))}, want: []DeadRow{known(goneID, "a", "sda", "8:0", "wbps=512Ki wiops=100")}},
		"lifted: the pod's": {exits: []record.Exit{exit("a", goneID)}, want: []DeadRow{known(goneID, "a", "sda", "8:0", "wbps=4Mi")}},
		"above the pod's":   {exits: []record.Exit{exit("a", goneID, limitOf(blkio.Wbps, sda, 8<<20))}, want: []DeadRow{known(goneID, "a", "sda", "8:0", "wbps=4Mi")}},
		"another disk":      {exits: []record.Exit{exit("a", goneID)}, bdi: "8:16", want: []DeadRow{known(goneID, "a", "", "8:16", noLimit)}},
		"a btrfs": {
			exits: []record.Exit{exit("a", goneID, limitOf(blkio.Wiops, sdb, 9))}, bdi: "btrfs-1",
			want: []DeadRow{known(goneID, "a", "btrfs-1", "", "8:0 wbps=4Mi; 8:16 wiops=9")},
		},
		"pod cleared": {
			exits: []record.Exit{exit("a", goneID)}, change: func(f *deadFinder, _ string) { f.records[0].Record.Cleared = true },
			want: []DeadRow{known(goneID, "a", "sda", "8:0", noLimit)},
		},
		"pod observed": {
			exits: []record.Exit{exit("a", goneID, limitOf(blkio.Wbps, sda, 8<<20))}, change: func(f *deadFinder, _ string) { f.records[0].Record.Observed = true },
			want: []DeadRow{known(goneID, "a", "sda", "8:0", "wbps=8Mi")},
		},
		"nobody's":                 {want: []DeadRow{nobody}},
		"nobody's, other disk":     {bdi: "8:16"},
		"nobody's, one pod asked":  {change: func(f *deadFinder, _ string) { f.everyPod = false }},
		"nobody's, in a namespace": {change: func(_ *deadFinder, dir string) { put(t, dir, map[string]string{"cgroup.events": "populated 1\n"}) }},
		"the root's":               {stat: cgroupfs.WritebackStat{CgroupID: 1, Dirty: 9 * mib, Inodes: 1}},
		"noise":                    {exits: []record.Exit{exit("a", goneID)}, stat: cgroupfs.WritebackStat{CgroupID: goneID, Dirty: mib}},
		"an inode alone":           {exits: []record.Exit{exit("a", goneID)}, stat: cgroupfs.WritebackStat{CgroupID: goneID, Inodes: 1}},
	} {
		t.Run(name, tt.run)
	}
}

// TestDeadOfSeveral verifies that the data of a container's cgroups is added up, and rows are in order.
func TestDeadOfSeveral(t *testing.T) {
	const mib = 1 << 20
	two := exit("b", goneID)
	two.CgroupIDs = []uint64{goneID, goneID + 1}
	f, _ := deadPod(t, map[string]string{}, two, exit("a", goneID+2))
	f.name = blkio.Dev.String
	stats := func(w ...cgroupfs.WritebackStat) *fstest.MapFile {
		return &fstest.MapFile{Data: []byte(cgroupfs.FormatWritebackStats(w))}
	}
	f.debugfs = fstest.MapFS{
		"bdi/8:0/wb_stats": stats(
			cgroupfs.WritebackStat{CgroupID: goneID, Writeback: mib}, cgroupfs.WritebackStat{CgroupID: goneID + 1, Dirty: 2 * mib}, cgroupfs.WritebackStat{CgroupID: goneID + 2, Dirty: 4 * mib},
		),
		"bdi/8:16/wb_stats": stats(
			cgroupfs.WritebackStat{CgroupID: goneID, Inodes: 1}, cgroupfs.WritebackStat{CgroupID: goneID + 1, Dirty: 4096}, cgroupfs.WritebackStat{CgroupID: goneID + 2, Dirty: 4096},
		),
	}
	var got []string
	for _, r := range f.find().Rows {
		got = append(got, fmt.Sprintf("%s %s %d", r.Container, r.Dev, r.Left))
	}
	if d := cmp.Diff([]string{"a 8:0 4194304", "b 8:0 3145728", "b 8:16 4096"}, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// TestDeadOfUnknownPod verifies that data of no record's container is shown for each disk with a limit, also
// with one of an ended container.
func TestDeadOfUnknownPod(t *testing.T) {
	sdb := blkio.Dev{Major: 8, Minor: 16}
	f, _ := deadPod(t, map[string]string{}, exit("a", goneID, limitOf(blkio.Wbps, sdb, 1<<20)))
	stat := &fstest.MapFile{Data: []byte(cgroupfs.FormatWritebackStats([]cgroupfs.WritebackStat{{CgroupID: goneID + 1, Dirty: 9 << 20}}))}
	f.debugfs = fstest.MapFS{"bdi/8:16/wb_stats": stat, "bdi/8:32/wb_stats": stat}
	got := f.find().Rows
	if len(got) != 1 || got[0].Pod != unknownPod || got[0].Dev != sdb.String() {
		t.Errorf("%+v", got)
	}
}

// TestHolds verifies that with inodes any data counts, without only more than the counters are wrong by.
func TestHolds(t *testing.T) {
	f := deadFinder{noise: 1 << 20}
	for _, tt := range []struct {
		stat cgroupfs.WritebackStat
		want bool
	}{
		{cgroupfs.WritebackStat{}, false},
		{cgroupfs.WritebackStat{Inodes: 1}, false},
		{cgroupfs.WritebackStat{Dirty: 4096, Inodes: 1}, true},
		{cgroupfs.WritebackStat{Dirty: 1 << 19, Writeback: 1 << 19}, false},
		{cgroupfs.WritebackStat{Dirty: 1 << 19, Writeback: 1<<19 + 4096}, true},
	} {
		if got := f.holds(tt.stat); got != tt.want {
			t.Errorf("%+v: %t", tt.stat, got)
		}
	}
}

// TestWritebackNoise verifies that 64 KiB for each CPU, and 1 MiB for a few.
func TestWritebackNoise(t *testing.T) {
	for cpus, want := range map[int]uint64{1: 1 << 20, 16: 1 << 20, 17: 17 << 16, 256: 16 << 20} {
		if got := writebackNoise(cpus); got != want {
			t.Errorf("%d CPUs: %d, want %d", cpus, got, want)
		}
	}
}

// TestFindDead verifies that disks have the names of sysfs, and a removed one has its number.
func TestFindDead(t *testing.T) {
	f, _ := deadPod(t, map[string]string{}, exit("a", goneID))
	stat := &fstest.MapFile{Data: []byte(cgroupfs.FormatWritebackStats([]cgroupfs.WritebackStat{{CgroupID: goneID, Dirty: 1 << 30}}))}
	debugfs := fstest.MapFS{"bdi/8:0/wb_stats": stat, "bdi/8:200/wb_stats": stat}
	sys := storage.NewSysfs(fakenode.Sysfs())
	var got []string
	for _, r := range FindDead(f.tree, sys, debugfs, f.records, true).Rows {
		got = append(got, r.Disk+" "+r.Dev)
	}
	if d := cmp.Diff([]string{"8:200 8:200", "sda 8:0"}, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if r := FindDead(f.tree, sys, debugfs, nil, true); len(r.Rows) > 0 || r.Rows == nil || r.Note != "" {
		t.Errorf("without records: %+v", r)
	}
}

// TestDeadLives verifies that an empty cgroup that was not removed is not reported.
func TestDeadLives(t *testing.T) {
	f, dir := deadPod(t, map[string]string{})
	fi, err := os.Stat(filepath.Join(dir, "pod/c"))
	if err != nil {
		t.Fatal(err)
	}
	id := fi.Sys().(*syscall.Stat_t).Ino
	f.records[0].Record.Exits = []record.Exit{exit("c", id)}
	stats := cgroupfs.FormatWritebackStats([]cgroupfs.WritebackStat{{CgroupID: id, Dirty: 1 << 30, Inodes: 1}})
	f.debugfs = fstest.MapFS{"bdi/8:0/wb_stats": {Data: []byte(stats)}}
	if got := f.find(); len(got.Rows) > 0 {
		t.Errorf("%+v", got.Rows)
	}
}

// TestSortDead verifies the order by pod, container, time and disk. Rows of unknown pods come last.
func TestSortDead(t *testing.T) {
	row := func(namespace, pod, container, at, disk string) DeadRow {
		return DeadRow{Owner: Owner{Namespace: namespace, Pod: pod, Container: container}, Since: at, Disk: disk}
	}
	want := []DeadRow{
		row("a", "p", "c", "1", "sda"), row("a", "p", "c", "1", "sdb"), row("a", "p", "c", "2", "sda"),
		row("a", "p", "d", "1", "sda"), row("a", "q", "c", "1", "sda"), row("b", "a", "a", "1", "sda"),
		row("", unknownPod, "", "", "sda"), row("", unknownPod, "", "", "sdb"),
	}
	got := slices.Clone(want)
	slices.Reverse(got)
	sortDead(got)
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}
