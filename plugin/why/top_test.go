package why

import (
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/wait"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/plugin/runtimeconfig"
	"github.com/nri-blkio/nri-blkio/policy"
)

// listed are what is measured of all pods, by the names of the golden files.
var listed = map[string]func(m *Measured){
	// Of two kinds of I/O that a limit holds at the same time, one is not added to the other.
	"own-limit": func(m *Measured) {
		waits(m, wait.IO, 0)
		m.Times.At[own(wait.Limit, dbID, wait.Direct)] = wait.Time{Sum: 3 * d, Wall: d}
		m.Times.At[own(wait.Limit, dbID, wait.WriteOut)] = wait.Time{Sum: d, Wall: d / 2}
	},
	// The pod has a row, with what its container waits for.
	"limit-of-pod": func(m *Measured) {
		waits(m, wait.IO, 0)
		m.Cgroups[1].Activity.Disks[0].Limits[blkio.Wbps] = 1 << 20
		m.Times.At[own(wait.Limit, podID, wait.Direct)] = wait.Time{Sum: d, Wall: d}
	},
	// The pod has no row: its limit is the sum of its containers' limits.
	"backstop": func(m *Measured) {
		waits(m, wait.IO, 0)
		m.Cgroups[1].Activity.Disks[0].Limits[blkio.Wbps] = 1 << 20
		m.Cgroups[1].Record = &record.Record{Settings: policy.NewSettings(policy.Setting{
			Value: blkio.Value{Address: blkio.Address{Key: blkio.Wbps, Dev: vdb}, Amount: 1 << 20}, Source: policy.Source{Kind: policy.FromBackstop},
		})}
		m.Times.At[own(wait.Limit, podID, wait.Direct)] = wait.Time{Sum: d, Wall: d}
	},
	// A limit of the record is raised to its burst.
	"burst": func(m *Measured) {
		waits(m, wait.IO, 0)
		m.Cgroups[0].Activity.Disks[0].Limits[blkio.Wbps] *= 2
	},
	// A limit above the pod is not its own. A container waits at a disk without I/O of its own, and for I/O that nothing names.
	"others": func(m *Measured) {
		m.Subjects[aboveID] = Subject{Cgroup: "kubepods.slice"}
		m.Times.At[own(wait.Limit, aboveID, wait.Direct)] = wait.Time{Sum: d, Wall: d}
		waits(m, wait.IO, 0)
		vdc := blkio.Dev{Major: 254, Minor: 32}
		m.Disks[vdc] = "vdc"
		m.Times.At[wait.Place{Cause: wait.Journal, Cgroup: dbID, Dev: vdc}] = wait.Time{Sum: 2 * d}
		m.Times.At[wait.Place{Cause: wait.DirtyNode, Cgroup: dbID, By: otherID}] = wait.Time{Sum: d}
		m.Times.At[wait.Place{Cause: wait.Journal, Cgroup: podID, Dev: vdc}] = wait.Time{Sum: d}
		m.Times.At[wait.Place{Cause: wait.Journal, Cgroup: endedID, Dev: vdc}] = wait.Time{Sum: d}
	},
	// What a container made below its own cgroup is the container's, its limit as well.
	"limit-of-made-cgroup": func(m *Measured) {
		m.Subjects[aboveID] = Subject{Namespace: "prod", Pod: "db-0", Container: "db", Cgroup: slice + "/cri-containerd-a.scope/own"}
		m.Times.At[wait.Place{Cause: wait.Limit, Op: wait.Read, Cgroup: aboveID, By: aboveID, Dev: vdb}] = wait.Time{Sum: d, Wall: d}
	},
	// With crun the child of a container's cgroup holds I/O, and its own holds it after that: 0.64 of the time together, not 0.4.
	"limit-of-crun": func(m *Measured) {
		m.Subjects[aboveID] = m.Subjects[dbID]
		for by, part := range map[uint64]time.Duration{aboveID: d / 2, dbID: 3 * d / 10} {
			m.Times.At[wait.Place{Cause: wait.Limit, Op: wait.Direct, Cgroup: aboveID, By: by, Dev: vdb}] = wait.Time{Sum: part, Wall: part}
		}
	},
	"no-bpf":       func(m *Measured) { m.NoWaits = errors.New("operation not permitted") },
	"hook-missing": func(m *Measured) { m.Unknown = map[wait.Cause]error{wait.IO: errors.New("no io_schedule")} },
}

// TestExplainAll compares the rows with golden files.
func TestExplainAll(t *testing.T) {
	for name, set := range listed {
		t.Run(name, func(t *testing.T) {
			m := measured()
			m.Target, m.Within = Subject{}, nil
			set(&m)
			top := ExplainAll(m)
			got := compareGolden(t, "top/"+name, top)
			if again, _ := json.MarshalIndent(ExplainAll(m), "", "  "); string(again) != got {
				t.Error("a second call has another result")
			}
		})
	}
}

// TestSort verifies the order of rows by each key: those with the same value are by name.
func TestSort(t *testing.T) {
	part := func(p float64) *float64 { return &p }
	row := func(name string, disk Disk, held, others, waiting float64) Row {
		r := Row{Subject: Subject{Namespace: "prod", Pod: name}, Disk: disk, Held: part(held), Others: part(others), Waiting: part(waiting)}
		if held == 0 {
			r.Held, r.Others, r.Waiting = nil, nil, nil
		}
		return r
	}
	top := Top{Rows: []Row{
		row("d", Disk{}, 0, 0, 0),
		row("c", Disk{ReadBytes: 9, ReadOps: 1}, 0.2, 0.3, 0.1),
		row("b", Disk{WriteBytes: 8, WriteOps: 3, Limit: &Limit{Used: 0.5}}, 0.1, 0.2, 0.3),
		row("a", Disk{WriteBytes: 7, WriteOps: 2, Limit: &Limit{Used: 0.6}}, 0.3, 0.1, 0.2),
	}}
	for key, want := range map[string]string{
		"rate": "cbad", "ops": "bacd", "limit": "abcd", "held": "acbd", "others": "cbad", "pressure": "bacd", "name": "abcd",
	} {
		top.Sort(key)
		got := ""
		for _, r := range top.Rows {
			got += r.Pod
		}
		if got != want || !slices.Contains(SortKeys(), key) {
			t.Errorf("%s: %s, want %s", key, got, want)
		}
	}
}

// TestIsWaiting verifies that each kind of waiting counts, from 1 % on.
func TestIsWaiting(t *testing.T) {
	little, much := 0.009, 0.01
	for _, tt := range []struct {
		row  Row
		want bool
	}{{Row{}, false}, {Row{Held: &little, Others: &little, Waiting: &little}, false}, {Row{Held: &much}, true}, {Row{Others: &much}, true}, {Row{Waiting: &much}, true}} {
		if got := tt.row.IsWaiting(); got != tt.want {
			t.Errorf("%+v: %v", tt.row, got)
		}
	}
}

// TestWatch verifies that each measurement begins where the last one ended, with the containers and names of that time.
func TestWatch(t *testing.T) {
	tree, dir := newTree(t)
	closed := false
	w, err := NewWatch(Node{Cgroups: tree, Btrfs: noBtrfs, Disk: func(blkio.Dev) string { return "vdb" }, Attach: func() (Observer, error) { return counted{&closed}, nil }})
	if err != nil {
		t.Fatal(err)
	}
	next := func() Top {
		time.Sleep(10 * time.Millisecond)
		m, err := w.Next()
		if err != nil {
			t.Fatal(err)
		}
		return ExplainAll(m)
	}
	stat := func(cgroup, bytes string) {
		write(t, dir, cgroup+"/io.stat", "254:16 rbytes=0 wbytes="+bytes+" rios=0 wios=1 dbytes=0 dios=0\n")
	}
	stat(dbDir, "1048576")
	top := next()
	if len(top.Rows) != 1 || top.Rows[0].Cgroup != dbDir || top.Rows[0].WriteBytes < 1<<20 || *top.Rows[0].Held != 0 {
		t.Fatalf("got %+v", top)
	}
	if pod, container := top.Rows[0].Names(); pod != "kubepods-burstable-pod11_aa.slice" || container != "cri-containerd-0a.scope" {
		t.Errorf("without names: %s, %s", pod, container)
	}
	const late = podDir + "/cri-containerd-0b.scope"
	if err := os.Mkdir(dir+"/"+late, 0o755); err != nil {
		t.Fatal(err)
	}
	stat(late, "1")
	w.Name([]runtimeconfig.Pod{{Namespace: "prod", Name: "db-0", UID: "11-aa", Containers: map[string]string{"0a": "db", "0b": "late"}}})
	if top = next(); len(top.Rows) != 0 {
		t.Errorf("a container without I/O since the last measurement: %+v", top.Rows)
	}
	stat(late, "9")
	if top = next(); len(top.Rows) != 1 || top.Rows[0].Container != "late" {
		t.Errorf("a container that began meanwhile: %+v", top.Rows)
	}
	if pod, container := top.Rows[0].Names(); pod != "prod/db-0" || container != "late" {
		t.Errorf("with names: %s, %s", pod, container)
	}
	if err := w.Close(); err != nil || !closed {
		t.Errorf("closed %v, %v", closed, err)
	}
}

// lossy is an observer that loses waits, for lack of room or for another reason.
type lossy struct {
	counted
	lost   *uint64
	isFull bool
}

func (l lossy) Read() (wait.Times, error) {
	*l.lost++
	return wait.Times{Lost: *l.lost, Full: l.isFull}, nil
}

// TestWatchAttachesAgain verifies that programs without room are attached anew: top runs for days, and cgroups come and go. Programs
// that lose waits for another reason stay attached.
func TestWatchAttachesAgain(t *testing.T) {
	tree, _ := newTree(t)
	for isFull, want := range map[bool]int{true: 2, false: 1} {
		closed, attached := false, 0
		w, err := NewWatch(Node{Cgroups: tree, Btrfs: noBtrfs, Attach: func() (Observer, error) {
			if attached++; attached > 1 {
				return counted{new(bool)}, nil
			}
			return lossy{counted{&closed}, new(uint64), isFull}, nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if _, err := w.Next(); err != nil {
				t.Fatal(err)
			}
		}
		if attached != want || closed != isFull || w.Close() != nil {
			t.Errorf("full %v: attached %d times, closed %v", isFull, attached, closed)
		}
	}
}

// unread is an observer that cannot be read.
type unread struct{ counted }

func (unread) Read() (wait.Times, error) { return wait.Times{}, errors.New("read waits: no memory") }

// TestWatchFails verifies that the programs are removed if they cannot be read, and that an unreadable record is mentioned.
func TestWatchFails(t *testing.T) {
	tree, _ := newTree(t)
	closed := false
	node := Node{Cgroups: tree, Btrfs: noBtrfs, Attach: func() (Observer, error) { return unread{counted{&closed}}, nil }}
	if _, err := NewWatch(node); err == nil || !closed {
		t.Errorf("closed %v, %v", closed, err)
	}
	node.Attach = func() (Observer, error) { return counted{&closed}, nil }
	w, err := NewWatch(node)
	if err != nil {
		t.Fatal(err)
	}
	if err := record.WriteRaw(tree.Cgroup(podDir), record.KindPod, []byte("{")); err != nil {
		t.Fatal(err)
	}
	m, err := w.Next()
	if top := ExplainAll(m); err != nil || len(top.Unknown) != 1 || !strings.Contains(top.Unknown[0], podDir) {
		t.Errorf("an unreadable record: %+v, %v", top, err)
	}
}
