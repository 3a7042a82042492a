package inspect

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/policy"
)

const (
	oneDying  = "nr_descendants 1\nnr_dying_descendants 1\n"
	noneDying = "nr_descendants 1\nnr_dying_descendants 0\n"
	dirty9Mi  = "file_dirty 8388608\nfile_writeback 1048576\n"
	noDirty   = "file_dirty 0\nfile_writeback 0\n"
)

// statOf is an io.stat with so many bytes written to sda, which has a limit, and to a disk that has
// none.
func statOf(wbytes string) string {
	return "8:0 rbytes=0 wbytes=" + wbytes + " rios=0 wios=0 dbytes=0 dios=0\n8:32 rbytes=0 wbytes=" + wbytes + " rios=0 wios=0 dbytes=0 dios=0\n"
}

// inferTest is a pod whose files have other contents when they are read again, after two seconds.
type inferTest struct {
	files, later map[string]string
	exits        []record.Exit
	want         []DeadRow
	noted        bool
}

func (tt inferTest) run(t *testing.T) {
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
}

func inferredRow(container, at string, measured, left uint64) DeadRow {
	return DeadRow{
		Owner: Owner{Namespace: "prod", Pod: "db-0", UID: "1", Container: container}, Disk: "sda", Dev: "8:0",
		DrainsAt: at, Measured: measured, Left: left, Since: since,
	}
}

// slowExit ended with a limit, liftedExit without one.
func slowExit() record.Exit {
	return exit("slow", goneID, limitOf(blkio.Wbps, blkio.Dev{Major: 8}, 512<<10))
}

func liftedExit() record.Exit { return exit("lifted", goneID+1) }

func TestDeadInferred(t *testing.T) {
	slow, lifted := []record.Exit{slowExit()}, []record.Exit{liftedExit()}
	for name, tt := range map[string]inferTest{
		"none ended": {files: map[string]string{"pod/cgroup.stat": oneDying, "pod/memory.stat": dirty9Mi}},
		"none dying": {files: map[string]string{"pod/cgroup.stat": noneDying, "pod/memory.stat": dirty9Mi}, exits: slow},
		"clean pages": {
			files: map[string]string{"pod/cgroup.stat": oneDying, "pod/memory.stat": dirty9Mi, "pod/c/memory.stat": dirty9Mi},
			exits: slow, noted: true,
		},
		"draining": {
			files: map[string]string{
				"pod/cgroup.stat": oneDying, "pod/memory.stat": dirty9Mi, "pod/c/memory.stat": noDirty,
				"pod/io.stat": statOf("1000000"), "pod/c/io.stat": statOf("5000"),
			},
			later: map[string]string{"pod/io.stat": statOf("2000000"), "pod/c/io.stat": statOf("105000")},
			exits: []record.Exit{slowExit(), liftedExit()}, noted: true,
			want: []DeadRow{inferredRow("slow", "wbps=512Ki", 450000, 9<<20)},
		},
		"the living write": {
			files: map[string]string{
				"pod/cgroup.stat": oneDying, "pod/memory.stat": dirty9Mi, "pod/c/memory.stat": noDirty,
				"pod/io.stat": statOf("1000000"), "pod/c/io.stat": statOf("5000"),
			},
			later: map[string]string{"pod/io.stat": statOf("2000000"), "pod/c/io.stat": statOf("1000000")},
			exits: slow, noted: true,
			want: []DeadRow{inferredRow("slow", "wbps=512Ki", 0, 9<<20)},
		},
		"no memory controller": {
			files: map[string]string{"pod/cgroup.stat": oneDying, "pod/io.stat": statOf("0"), "pod/c/io.stat": ""},
			later: map[string]string{"pod/io.stat": statOf("500000")},
			exits: lifted, noted: true,
			want: []DeadRow{inferredRow("lifted", "wbps=4Mi", 250000, 0)},
		},
		"no memory controller, nothing written": {
			files: map[string]string{"pod/cgroup.stat": oneDying, "pod/io.stat": statOf("0"), "pod/c/io.stat": ""},
			later: map[string]string{}, exits: lifted, noted: true,
		},
	} {
		t.Run(name, tt.run)
	}
}

// TestDeadInferredLess verifies that without a counter, or with one that cannot be parsed, the rest is
// reported.
func TestDeadInferredLess(t *testing.T) {
	memory := map[string]string{"pod/cgroup.stat": oneDying, "pod/memory.stat": dirty9Mi, "pod/c/memory.stat": noDirty}
	counters := map[string]string{"pod/io.stat": statOf("0"), "pod/c/io.stat": statOf("0")}
	with := func(all ...map[string]string) map[string]string {
		out := map[string]string{}
		for _, m := range all {
			maps.Copy(out, m)
		}
		return out
	}
	later := map[string]string{"pod/io.stat": statOf("2000000")}
	lifted, unmeasured := []record.Exit{liftedExit()}, []DeadRow{inferredRow("lifted", "wbps=4Mi", 0, 9<<20)}
	measured := inferredRow("lifted", "wbps=4Mi", 1000000, 9<<20)
	unknownLeft := measured
	unknownLeft.Left = 0
	for name, tt := range map[string]inferTest{
		"all":                      {files: with(memory, counters), later: later, want: []DeadRow{measured}, noted: true},
		"no counters of I/O":       {files: with(memory), later: map[string]string{}, want: unmeasured, noted: true},
		"at first":                 {files: with(memory, counters, map[string]string{"pod/io.stat": "8:0 wbytes=x\n"}), later: later, want: unmeasured, noted: true},
		"of a container, at first": {files: with(memory, counters, map[string]string{"pod/c/io.stat": "8:0 wbytes=x\n"}), later: later, want: unmeasured, noted: true},
		"at last":                  {files: with(memory, counters), later: map[string]string{"pod/io.stat": "8:0 wbytes=x\n"}, want: unmeasured, noted: true},
		"of a container, at last":  {files: with(memory, counters), later: with(later, map[string]string{"pod/c/io.stat": "8:0 wbytes=x\n"}), want: unmeasured, noted: true},
		"of memory":                {files: with(memory, counters, map[string]string{"pod/memory.stat": "file_dirty x\n"}), later: later, want: []DeadRow{unknownLeft}, noted: true},
		"of a container's memory":  {files: with(memory, counters, map[string]string{"pod/c/memory.stat": "anon 1\n"}), later: later, want: []DeadRow{unknownLeft}, noted: true},
		"of removed cgroups":       {files: with(memory, counters, map[string]string{"pod/cgroup.stat": "nr_dying_descendants x\n"})},
	} {
		tt.exits = lifted
		t.Run(name, tt.run)
	}
}

// TestDeadInferredOf verifies that records of containers are none of a pod, and the rows of pods are in order.
func TestDeadInferredOf(t *testing.T) {
	f, dir := deadPod(t, map[string]string{
		"pod/cgroup.stat": oneDying, "pod/memory.stat": dirty9Mi, "pod/c/memory.stat": noDirty,
		"b/cgroup.stat": oneDying, "b/memory.stat": dirty9Mi,
	}, liftedExit())
	f.wait = func() time.Duration { return time.Second }
	first := *f.records[0].Record
	first.Namespace, first.Pod = "build", "ci"
	container := first
	container.Kind, container.Pod = record.KindContainer, "container"
	f.records = append(f.records, Recorded{f.tree.Cgroup("b"), &first}, Recorded{f.tree.Cgroup("b"), &container})
	var got []string
	for _, r := range f.find().Rows {
		got = append(got, r.Namespace+"/"+r.Pod)
	}
	if d := cmp.Diff([]string{"build/ci", "prod/db-0"}, got); d != "" {
		t.Errorf("%s: -want +got:\n%s", dir, d)
	}
}

// TestUnwritten verifies that a difference that may be an error of the kernel's counters counts as none.
func TestUnwritten(t *testing.T) {
	noise := writebackNoise(2)
	stat := func(dirty uint64) string { return fmt.Sprintf("file_dirty %d\nfile_writeback 0\n", dirty) }
	for _, tt := range []struct{ pod, container, want uint64 }{
		{noise, 0, 0},
		{noise + 1, 0, noise + 1},
		{noise + 101, 100, noise + 1},
		{noise + 100, 100, 0},
		{100, 100, 0},
		{0, 2 * noise, 0}, // the counters of the pod are older than those of the container
	} {
		f, _ := deadPod(t, map[string]string{"pod/memory.stat": stat(tt.pod), "pod/c/memory.stat": stat(tt.container)})
		if got, ok := f.unwritten(f.tree.Cgroup("pod")); got != tt.want || !ok {
			t.Errorf("%d of the pod, %d of its container: %d, %t, want %d", tt.pod, tt.container, got, ok, tt.want)
		}
	}
	f, _ := deadPod(t, map[string]string{})
	if got, ok := f.unwritten(f.tree.Cgroup("pod")); ok {
		t.Errorf("without the memory controller: %d", got)
	}
}

// TestGrowth verifies that more than the living can write between two reads counts, and less does not.
func TestGrowth(t *testing.T) {
	for bytes, want := range map[int]uint64{minGrowth - 1: 0, minGrowth: minGrowth / 2} {
		inferTest{
			files: map[string]string{
				"pod/cgroup.stat": oneDying, "pod/memory.stat": dirty9Mi, "pod/c/memory.stat": noDirty, "pod/io.stat": statOf("0"), "pod/c/io.stat": statOf("0"),
			},
			later: map[string]string{"pod/io.stat": statOf(fmt.Sprint(bytes))},
			exits: []record.Exit{liftedExit()}, noted: true,
			want: []DeadRow{inferredRow("lifted", "wbps=4Mi", want, 9<<20)},
		}.run(t)
	}
}

// TestLikeliest verifies that the last container with a limit left, or the last one.
func TestLikeliest(t *testing.T) {
	slow, lifted := slowExit(), liftedExit()
	for _, tt := range []struct {
		exits []record.Exit
		want  int
	}{{[]record.Exit{lifted}, 0}, {[]record.Exit{lifted, lifted}, 1}, {[]record.Exit{slow, lifted}, 0}, {[]record.Exit{slow, slow, lifted}, 1}, {[]record.Exit{lifted, slow}, 1}} {
		if got := likeliest(tt.exits); got != &tt.exits[tt.want] {
			t.Errorf("%+v: %+v, want the one at %d", tt.exits, got, tt.want)
		}
	}
}

func TestSoleDev(t *testing.T) {
	a, b := blkio.Dev{Major: 8}, blkio.Dev{Major: 8, Minor: 16}
	for _, tt := range []struct {
		name   string
		limits policy.Settings
		one    bool
	}{
		{"none", nil, false},
		{"one", policy.Settings{limitOf(blkio.Wbps, a, 1)}, true},
		{"two of one disk", policy.Settings{limitOf(blkio.Wbps, a, 1), limitOf(blkio.Wiops, a, 1)}, true},
		{"two disks", policy.Settings{limitOf(blkio.Wbps, a, 1), limitOf(blkio.Wbps, b, 1)}, false},
	} {
		if dev, one := soleDev(tt.limits); one != tt.one || one && dev != a {
			t.Errorf("%s: %v, %t", tt.name, dev, one)
		}
	}
}

// TestDeadOfTwoDisks verifies that the disk of the data is unknown without wb_stats.
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
