package inspect

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/internal/fakenode"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/policy"
)

func limitOf(key blkio.Key, dev blkio.Dev, amount blkio.Amount) policy.Setting {
	return policy.Setting{Value: blkio.Value{Address: blkio.Address{Key: key, Dev: dev}, Amount: amount}}
}

func exit(name string, id uint64, limits ...policy.Setting) record.Exit {
	return record.Exit{Container: name, CgroupIDs: []uint64{id}, Limits: limits, At: time.Unix(1e9, 0)}
}

// goneID and the IDs after it belong to no existing cgroup.
const goneID = 1 << 52

const since = "2001-09-09T01:46:40Z"

const (
	dirty9Mi = "file_dirty 8388608\nfile_writeback 1048576\n"
	noDirty  = "file_dirty 0\nfile_writeback 0\n"
)

// deadTest has the counters of a pod and of its running container, and the row of the report.
type deadTest struct {
	pod, container string // memory.stat; "" for no such file
	exits          []record.Exit
	change         func(r *record.Record)
	want           *DeadRow
}

func (tt deadTest) run(t *testing.T) {
	files := map[string]string{"cgroup.controllers": "io memory\n", "pod/c/io.max": ""}
	for name, data := range map[string]string{"pod/memory.stat": tt.pod, "pod/c/memory.stat": tt.container} {
		if data != "" {
			files[name] = data
		}
	}
	dir := t.TempDir()
	fakenode.WriteFiles(t, dir, files)
	tree := fakenode.OpenCgroups(t, dir)
	r := &record.Record{
		Kind: record.KindPod, Namespace: "prod", Pod: "db-0", UID: "1", Exits: tt.exits,
		Settings: policy.NewSettings(limitOf(blkio.Wbps, blkio.Dev{Major: 8}, 4<<20), limitOf(blkio.Rbps, blkio.Dev{Major: 8}, 1)),
	}
	if tt.change != nil {
		tt.change(r)
	}
	want := []DeadRow{}
	if tt.want != nil {
		want = append(want, *tt.want)
	}
	container := &record.Record{Kind: record.KindContainer}
	name := func(dev blkio.Dev) string { return map[string]string{"8:0": "sda"}[dev.String()] }
	got := FindDead([]Recorded{{tree.Cgroup("pod"), r}, {tree.Cgroup("pod/c"), container}}, name)
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

func TestDead(t *testing.T) {
	row := func(container, disk, dev, at string) *DeadRow {
		return &DeadRow{Namespace: "prod", Pod: "db-0", UID: "1", Container: container, Disk: disk, Dev: dev, DrainsAt: at, Left: 9 << 20, Since: since}
	}
	sda, sdb := blkio.Dev{Major: 8}, blkio.Dev{Major: 8, Minor: 16}
	slow, lifted := exit("slow", goneID, limitOf(blkio.Wbps, sda, 512<<10), limitOf(blkio.Wiops, sda, 100)), exit("lifted", goneID+1)
	for name, tt := range map[string]deadTest{
		"none ended":           {pod: dirty9Mi, container: noDirty},
		"of the living":        {pod: dirty9Mi, container: dirty9Mi, exits: []record.Exit{slow}},
		"noise":                {pod: "file_dirty 1048576\nfile_writeback 0\n", container: noDirty, exits: []record.Exit{slow}},
		"no memory controller": {exits: []record.Exit{slow}},
		"unknown living":       {pod: dirty9Mi, exits: []record.Exit{slow}},
		"less than the living": {pod: noDirty, container: dirty9Mi, exits: []record.Exit{slow}},
		"own limit":            {pod: dirty9Mi, container: noDirty, exits: []record.Exit{slow}, want: row("slow", "sda", "8:0", "wbps=512Ki wiops=100")},
		"of several":           {pod: dirty9Mi, container: noDirty, exits: []record.Exit{slow, lifted}, want: row("slow", "sda", "8:0", "wbps=512Ki wiops=100")},
		"lifted: the pod's":    {pod: dirty9Mi, container: noDirty, exits: []record.Exit{lifted}, want: row("lifted", "sda", "8:0", "wbps=4Mi")},
		"above the pod's": {
			pod: dirty9Mi, container: noDirty, exits: []record.Exit{exit("a", goneID, limitOf(blkio.Wbps, sda, 8<<20))},
			want: row("a", "sda", "8:0", "wbps=4Mi"),
		},
		"two disks": {
			pod: dirty9Mi, container: noDirty, exits: []record.Exit{exit("a", goneID, limitOf(blkio.Wiops, sdb, 9))},
			want: row("a", "", "", "8:0 wbps=4Mi; 8:16 wiops=9"),
		},
		"pod cleared": {
			pod: dirty9Mi, container: noDirty, exits: []record.Exit{lifted}, change: func(r *record.Record) { r.Cleared = true },
			want: row("lifted", "", "", noLimit),
		},
		"pod observed": {
			pod: dirty9Mi, container: noDirty, exits: []record.Exit{exit("a", goneID, limitOf(blkio.Wbps, sda, 8<<20))},
			change: func(r *record.Record) { r.Observed = true }, want: row("a", "sda", "8:0", "wbps=8Mi"),
		},
	} {
		t.Run(name, tt.run)
	}
}

// TestWritebackNoise verifies that 64 KiB are noise for each CPU, and at least 1 MiB.
func TestWritebackNoise(t *testing.T) {
	for cpus, want := range map[int]uint64{1: 1 << 20, 16: 1 << 20, 17: 17 << 16, 256: 16 << 20} {
		if got := writebackNoise(cpus); got != want {
			t.Errorf("%d CPUs: %d, want %d", cpus, got, want)
		}
	}
}

// TestDiskName verifies that a disk has the name of sysfs, and a removed one its number.
func TestDiskName(t *testing.T) {
	h := statusHost(t)
	for dev, want := range map[blkio.Dev]string{{Major: 8}: "sda", {Major: 8, Minor: 200}: "8:200"} {
		if got := h.DiskName(dev); got != want {
			t.Errorf("%v is %q, want %q", dev, got, want)
		}
	}
}
