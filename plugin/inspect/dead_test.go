package inspect

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
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

// goneID and those after it are of no cgroup that is there.
const goneID = 1 << 52

const since = "2001-09-09T01:46:40Z"

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
	tests := map[string]struct {
		exits  []record.Exit
		bdi    string
		change func(f *deadFinder, dir string)
		stat   cgroupfs.WritebackStat
		want   []DeadRow
	}{
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
		"nobody's":                 {want: []DeadRow{nobody}},
		"nobody's, other disk":     {bdi: "8:16"},
		"nobody's, one pod asked":  {change: func(f *deadFinder, _ string) { f.everyPod = false }},
		"nobody's, in a namespace": {change: func(_ *deadFinder, dir string) { put(t, dir, map[string]string{"cgroup.events": "populated 1\n"}) }},
		"the root's":               {stat: cgroupfs.WritebackStat{CgroupID: 1, Dirty: 9 * mib, Inodes: 1}},
		"noise":                    {exits: []record.Exit{exit("a", goneID)}, stat: cgroupfs.WritebackStat{CgroupID: goneID, Dirty: mib}},
		"an inode alone":           {exits: []record.Exit{exit("a", goneID)}, stat: cgroupfs.WritebackStat{CgroupID: goneID, Inodes: 1}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f, dir := deadPod(t, map[string]string{}, tt.exits...)
			if tt.change != nil {
				tt.change(&f, dir)
			}
			if tt.stat == (cgroupfs.WritebackStat{}) {
				tt.stat = cgroupfs.WritebackStat{CgroupID: goneID, Dirty: 8 * mib, Writeback: mib, Inodes: 1}
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
		})
	}
}

// TestDeadLives: a cgroup that emptied and was not removed is no dead one.
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

func TestDeadInferred(t *testing.T) {
	const (
		dying = "nr_descendants 1\nnr_dying_descendants 1\n"
		none  = "nr_descendants 1\nnr_dying_descendants 0\n"
		dirty = "file_dirty 8388608\nfile_writeback 1048576\n" // 9 MiB
		clean = "file_dirty 0\nfile_writeback 0\n"
	)
	stat := func(wbytes string) string {
		return "8:0 rbytes=0 wbytes=" + wbytes + " rios=0 wios=0 dbytes=0 dios=0\n8:32 rbytes=0 wbytes=" + wbytes + " rios=0 wios=0 dbytes=0 dios=0\n"
	}
	row := func(container, at string, measured, left uint64) DeadRow {
		return DeadRow{
			Owner: Owner{Namespace: "prod", Pod: "db-0", UID: "1", Container: container}, Disk: "sda", Dev: "8:0",
			DrainsAt: at, Measured: measured, Left: left, Since: since,
		}
	}
	slow := exit("slow", goneID, limitOf(blkio.Wbps, blkio.Dev{Major: 8}, 512<<10))
	lifted := exit("lifted", goneID+1)
	tests := map[string]struct {
		files, later map[string]string
		exits        []record.Exit
		want         []DeadRow
		noted        bool
	}{
		"none ended": {files: map[string]string{"pod/cgroup.stat": dying, "pod/memory.stat": dirty}},
		"none dying": {files: map[string]string{"pod/cgroup.stat": none, "pod/memory.stat": dirty}, exits: []record.Exit{slow}},
		"clean pages": {
			files: map[string]string{"pod/cgroup.stat": dying, "pod/memory.stat": dirty, "pod/c/memory.stat": dirty},
			exits: []record.Exit{slow}, noted: true,
		},
		"draining": {
			files: map[string]string{
				"pod/cgroup.stat": dying, "pod/memory.stat": dirty, "pod/c/memory.stat": clean,
				"pod/io.stat": stat("1000000"), "pod/c/io.stat": stat("5000"),
			},
			later: map[string]string{"pod/io.stat": stat("2000000"), "pod/c/io.stat": stat("105000")},
			exits: []record.Exit{slow, lifted}, noted: true,
			want: []DeadRow{row("slow", "wbps=512Ki", 450000, 9<<20)},
		},
		"the living write": {
			files: map[string]string{
				"pod/cgroup.stat": dying, "pod/memory.stat": dirty, "pod/c/memory.stat": clean,
				"pod/io.stat": stat("1000000"), "pod/c/io.stat": stat("5000"),
			},
			later: map[string]string{"pod/io.stat": stat("2000000"), "pod/c/io.stat": stat("1000000")},
			exits: []record.Exit{slow}, noted: true,
			want: []DeadRow{row("slow", "wbps=512Ki", 0, 9<<20)},
		},
		"no memory controller": {
			files: map[string]string{"pod/cgroup.stat": dying, "pod/io.stat": stat("0"), "pod/c/io.stat": ""},
			later: map[string]string{"pod/io.stat": stat("500000")},
			exits: []record.Exit{lifted}, noted: true,
			want: []DeadRow{row("lifted", "wbps=4Mi", 250000, 0)},
		},
		"no memory controller, nothing written": {
			files: map[string]string{"pod/cgroup.stat": dying, "pod/io.stat": stat("0"), "pod/c/io.stat": ""},
			later: map[string]string{}, exits: []record.Exit{lifted}, noted: true,
		},
		"no counters of I/O": {
			files: map[string]string{"pod/cgroup.stat": dying, "pod/memory.stat": dirty, "pod/c/memory.stat": clean},
			later: map[string]string{}, exits: []record.Exit{lifted}, noted: true,
			want: []DeadRow{row("lifted", "wbps=4Mi", 0, 9<<20)},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f, dir := deadPod(t, tt.files, tt.exits...)
			if tt.later != nil {
				f.wait = func() time.Duration { put(t, dir, tt.later); return 2 * time.Second }
			}
			got := f.find()
			if tt.want == nil {
				tt.want = []DeadRow{}
			}
			if d := cmp.Diff(tt.want, got.Rows); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
			if noted := strings.HasPrefix(got.Note, "not supported: debugfs is not mounted, so this is inferred"); noted != tt.noted {
				t.Errorf("note %q", got.Note)
			}
		})
	}
}

// TestDeadOfTwoDisks: without wb_stats nothing says on which of them it is.
func TestDeadOfTwoDisks(t *testing.T) {
	f, _ := deadPod(t, map[string]string{
		"pod/cgroup.stat": "nr_dying_descendants 1\n", "pod/memory.stat": "file_dirty 8388608\nfile_writeback 0\n",
		"pod/c/memory.stat": "file_dirty 0\nfile_writeback 0\n",
	}, exit("a", goneID, limitOf(blkio.Wbps, blkio.Dev{Major: 8, Minor: 16}, 64<<10)))
	f.wait = func() time.Duration { return time.Second }
	got := f.find().Rows
	if len(got) != 1 || got[0].Disk != "" || got[0].DrainsAt != "8:0 wbps=4Mi; 8:16 wbps=64Ki" || got[0].Left != 8<<20 {
		t.Errorf("%+v", got)
	}
}

func TestWrittenSince(t *testing.T) {
	dev := blkio.Dev{Major: 8}
	at := func(pod uint64, children map[string]uint64) written {
		w := written{pod: map[blkio.Dev]blkio.Stat{dev: {Wbytes: pod}}, children: map[string]map[blkio.Dev]blkio.Stat{}}
		for name, n := range children {
			w.children[name] = map[blkio.Dev]blkio.Stat{dev: {Wbytes: n}}
		}
		return w
	}
	before := at(100, map[string]uint64{"a": 10})
	for name, tt := range map[string]struct {
		after written
		want  uint64
	}{
		"the dead":        {at(150, map[string]uint64{"a": 20}), 40},
		"a new one":       {at(150, map[string]uint64{"a": 20, "b": 30}), 10},
		"one that ended":  {at(150, nil), 0},
		"read later":      {at(150, map[string]uint64{"a": 70}), 0},
		"nothing written": {before, 0},
	} {
		if got := tt.after.since(before)[dev]; got != tt.want {
			t.Errorf("%s: %d, want %d", name, got, tt.want)
		}
	}
}

// TestSortDead: by pod, container, time and disk; rows of unknown pods come last.
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
