package why

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/blkio/wait"
	"github.com/nri-blkio/nri-blkio/plugin/runtimeconfig"
)

const (
	podDir  = "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod11_aa.slice"
	dbDir   = podDir + "/cri-containerd-0a.scope"
	pauseID = "0f"
	twinDir = "kubepods.slice/kubepods-pod22.slice"
)

// newTree makes a tree of plain files: a pod with a sandbox and a container, which has made a cgroup with the name of a pod's, and a
// pod with the same name in another namespace.
func newTree(t *testing.T) (*cgroupfs.Hierarchy, string) {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{podDir + "/cri-containerd-" + pauseID + ".scope", dbDir + "/kubepods-pod99.slice", twinDir, "system.slice"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range []string{podDir, podDir + "/cri-containerd-" + pauseID + ".scope", dbDir, twinDir} {
		write(t, dir, d+"/io.stat", "254:16 rbytes=0 wbytes=0 rios=0 wios=0 dbytes=0 dios=0\n")
		write(t, dir, d+"/io.max", "")
		write(t, dir, d+"/io.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n")
	}
	write(t, dir, "cgroup.controllers", "io memory\n")
	tree, err := cgroupfs.OpenTree(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tree.Close() })
	return tree, dir
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

var pods = []runtimeconfig.Pod{
	{Namespace: "prod", Name: "db-0", UID: "11-aa", Containers: map[string]string{"0a": "db"}},
	{Namespace: "test", Name: "db-0", UID: "22"},
}

// TestFind verifies which cgroup a target is, and that the names come from the runtime: a container chooses what is below its own
// cgroup.
func TestFind(t *testing.T) {
	tree, _ := newTree(t)
	n, err := newNames(tree, pods)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		target Target
		cgroup string
		err    string
	}{
		{target: Target{"prod", "db-0", ""}, cgroup: podDir},
		{target: Target{"prod", "db-0", "db"}, cgroup: dbDir},
		{target: Target{"", "db-0", "db"}, cgroup: dbDir},
		{target: Target{"", "db-0", ""}, err: "write prod/db-0 or test/db-0"},
		{target: Target{"prod", "db-0", "web"}, err: `no container "web" here: it has db`},
		{target: Target{"prod", "db-1", ""}, err: `no running pod "prod/db-1"`},
		{target: Target{"prod", "", ""}, err: "no running pod"},
		{target: Target{}, err: "no running pod"},
	} {
		got, err := n.find(tt.target)
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%+v: got %+v, %v; want %q", tt.target, got, err, tt.err)
			}
			continue
		}
		if err != nil || got.Cgroup != tt.cgroup {
			t.Errorf("%+v: got %+v, %v", tt.target, got, err)
		}
	}
	if got := n.at(dbDir + "/kubepods-pod99.slice"); !got.isMade() || got.Container != "db" {
		t.Errorf("a cgroup that the container made is of %+v", got)
	}
	if got := n.at(dbDir + "/container"); got != n.at(dbDir) || got.isMade() {
		t.Errorf("the cgroup that crun made for the container's processes is of %+v", got)
	}
	if got := n.at(dbDir + "/container/own"); !got.isMade() {
		t.Errorf("a cgroup that the container made below that is of %+v", got)
	}
	if got := n.at("system.slice"); got.String() != "cgroup system.slice" {
		t.Errorf("got %q", got)
	}
}

// TestFindNewest verifies which of two is meant while a former pod, or container, of the same name is not removed yet.
func TestFindNewest(t *testing.T) {
	n := names{
		paths: map[uint64]string{9: "kubepods/pod1", 8: "kubepods/pod2", 11: "kubepods/pod1/a1", 10: "kubepods/pod1/b2"},
		pods: map[string]runtimeconfig.Pod{
			"1": {Namespace: "prod", Name: "db-0", Containers: map[string]string{"a1": "db", "b2": "db"}}, "2": {Namespace: "prod", Name: "db-0"},
		},
	}
	for target, want := range map[Target]string{{Pod: "db-0"}: "kubepods/pod1", {Pod: "db-0", Container: "db"}: "kubepods/pod1/a1"} {
		if got, err := n.find(target); err != nil || got.Cgroup != want {
			t.Errorf("%+v: %+v, %v", target, got, err)
		}
	}
}

// counted is an observer that counts nothing.
type counted struct{ closed *bool }

func (counted) Read() (wait.Times, error)     { return wait.Times{At: map[wait.Place]wait.Time{}}, nil }
func (counted) Unknown() map[wait.Cause]error { return nil }
func (c counted) Close() error                { *c.closed = true; return nil }

func noBtrfs(blkio.Dev) bool { return false }

// TestMeasure verifies what is read of the node, and that the programs are removed.
func TestMeasure(t *testing.T) {
	tree, dir := newTree(t)
	closed := false
	node := Node{
		Cgroups: tree, Pods: pods, Disk: func(blkio.Dev) string { return "vdb" }, Btrfs: noBtrfs,
		Attach: func() (Observer, error) {
			go func() {
				time.Sleep(20 * time.Millisecond)
				write(t, dir, dbDir+"/io.stat", "254:16 rbytes=0 wbytes=1048576 rios=0 wios=16 dbytes=0 dios=0\n")
			}()
			return counted{&closed}, nil
		},
	}
	var m Measured
	var err error
	synctest.Test(t, func(t *testing.T) {
		m, err = Measure(t.Context(), node, Target{"prod", "db-0", "db"}, 200*time.Millisecond)
	})
	if err != nil {
		t.Fatal(err)
	}
	if !closed || len(m.Within) != 2 || len(m.Cgroups) != 6 || m.Cgroups[0].Cgroup != dbDir || m.Cgroups[1].Cgroup != podDir {
		t.Errorf("closed %v, %+v", closed, m)
	}
	a := Explain(m)
	if a.Cause != NothingOfDisks || len(a.Disks) != 1 || a.Disks[0].Disk != "vdb" || a.Disks[0].WriteBytes < 1<<20 {
		t.Errorf("got %+v", a)
	}
	node.Attach = func() (Observer, error) { return nil, errors.New("operation not permitted") }
	m, err = Measure(t.Context(), node, Target{"prod", "db-0", "db"}, time.Millisecond)
	if err != nil || len(Explain(m).Unknown) != 1 {
		t.Errorf("got %v, %+v", err, m)
	}
}

// TestMeasureStuck verifies that a thread is seen that has waited for a journal since before the measurement.
func TestMeasureStuck(t *testing.T) {
	tree, dir := newTree(t)
	write(t, dir, dbDir+"/cgroup.procs", "7\n8\n")
	write(t, dir, podDir+"/io.stat", "254:16 rbytes=0 wbytes=4096 rios=0 wios=1 dbytes=0 dios=0\n254:32 \n")
	proc := t.TempDir()
	for id, runs := range map[string]string{"7": "5", "8": ""} { // the second one has no status
		if err := os.MkdirAll(filepath.Join(proc, id, "task", id), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, proc, id+"/task/"+id+"/stat", id+" (db) D 1 7")
		write(t, proc, id+"/task/"+id+"/stack", "[<0>] jbd2_log_wait_commit+0xe6/0x150 [jbd2]\n")
		if runs != "" {
			write(t, proc, id+"/task/"+id+"/status", "Name:\tdb\nvoluntary_ctxt_switches:\t"+runs+"\n")
		}
	}
	closed := false
	node := Node{
		Cgroups: tree, Pods: pods, Proc: proc, Disk: func(blkio.Dev) string { return "vdb" }, Btrfs: noBtrfs,
		Attach: func() (Observer, error) { return counted{&closed}, nil },
	}
	m, err := Measure(t.Context(), node, Target{"prod", "db-0", ""}, 20*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	m.Times.Duration = time.Second // the observer has none
	for at := range m.Times.At {
		m.Times.At[at] = wait.Time{Sum: time.Second}
	}
	if a := Explain(m); a.Cause != Journal || a.Threads != 1 || !strings.Contains(a.Text, "the filesystem on an unknown disk") {
		t.Errorf("got %+v", a)
	}
	// Data of others delays the journal of a disk that the pod has used. One that it has not used has nothing to do with it.
	const other, journals = 99, 1
	for minor, want := range map[uint32]string{16: "the filesystem on vdb, behind the limit of ", 32: "the filesystem on an unknown disk"} {
		dev := blkio.Dev{Major: 254, Minor: minor}
		m.Times.At[wait.Place{Cause: wait.Writeback, Cgroup: journals, By: other, Dev: dev}] = wait.Time{Sum: time.Duration(minor) * time.Second}
		m.Times.At[wait.Place{Cause: wait.Limit, Op: wait.WriteOut, Cgroup: other, By: other, Dev: dev}] = wait.Time{Sum: time.Minute}
		m.Disks[dev] = map[uint32]string{16: "vdb", 32: "vdc"}[minor]
		if a := Explain(m); !strings.Contains(a.Text, want) {
			t.Errorf("device 254:%d: got %s", minor, a.Text)
		}
		delete(m.Times.At, wait.Place{Cause: wait.Writeback, Cgroup: journals, By: other, Dev: dev})
	}
}

// TestMeasureWithout verifies what is measured of a pod whose cgroup has no io controller, and where the kernel has no io.max: it has not
// ended. Limits of cgroups above the pod are read too, and each disk is named once.
func TestMeasureWithout(t *testing.T) {
	tree, dir := newTree(t)
	for _, file := range []string{twinDir + "/io.stat", twinDir + "/io.max", dbDir + "/io.max"} {
		if err := os.Remove(filepath.Join(dir, file)); err != nil {
			t.Fatal(err)
		}
	}
	write(t, dir, "kubepods.slice/io.stat", "254:16 rbytes=0 wbytes=0 rios=0 wios=0 dbytes=0 dios=0\n")
	write(t, dir, "kubepods.slice/io.max", "254:16 rbps=max wbps=1048576 riops=max wiops=max\n")
	named := map[blkio.Dev]int{}
	node := Node{
		Cgroups: tree, Pods: pods, Disk: func(dev blkio.Dev) string { named[dev]++; return "vdb" },
		Attach: func() (Observer, error) { return nil, errors.New("operation not permitted") },
	}
	for target, above := range map[Target]string{{"test", "db-0", ""}: "kubepods.slice", {"prod", "db-0", "db"}: "kubepods.slice"} {
		clear(named)
		m, err := Measure(t.Context(), node, target, time.Millisecond)
		if err != nil {
			t.Errorf("%+v: %v", target, err)
			continue
		}
		c := m.cgroup(Subject{Cgroup: above})
		if c == nil || len(c.Disks) != 1 || c.Disks[0].Limits[blkio.Wbps] != 1<<20 || named[vdb] != 1 {
			t.Errorf("%+v: above is %+v; disks were named %v times", target, c, named)
		}
	}
}

// TestMeasureMany verifies that a cgroup that the walk leaves out, because a container made very many, is found by its ID.
func TestMeasureMany(t *testing.T) {
	tree, _ := newTree(t)
	n, err := newNames(tree, pods)
	if err != nil {
		t.Fatal(err)
	}
	n.byID = func(id uint64) (cgroupfs.Cgroup, error) {
		if id != 1<<40 {
			return cgroupfs.Cgroup{}, blkio.ErrGone
		}
		return tree.Cgroup(dbDir + "/many/65"), nil
	}
	m := Measured{Target: n.at(dbDir)}
	m.Times.At = map[wait.Place]wait.Time{{Cause: wait.IO, Cgroup: 1 << 40}: {Sum: time.Second}, {Cause: wait.IO, Cgroup: 1 << 41}: {Sum: time.Second}}
	m.compare(Node{Cgroups: tree}, n, nil, nil)
	if !m.Within[1<<40] || m.Within[1<<41] || m.Subjects[1<<40].Container != "db" || m.Subjects[1<<41] != (Subject{}) {
		t.Errorf("within %v, subjects %v", m.Within, m.Subjects)
	}
}

// TestBtrfs verifies that waits for a journal are unknown only if the target, or for top some pod, uses a disk with btrfs.
func TestBtrfs(t *testing.T) {
	node := Node{Disk: func(blkio.Dev) string { return "vdc" }, Btrfs: func(d blkio.Dev) bool { return d.Minor == 32 }}
	neighbour := []Cgroup{{Activity: wait.Activity{Disks: []wait.DiskUse{{Dev: blkio.Dev{Major: 254, Minor: 32}}}}}}
	target := Subject{Pod: "db-0"}
	for name, tt := range map[string]struct {
		Measured
		unknown string
	}{
		"another disk":    {Measured{Target: target, Used: map[blkio.Dev]bool{vdb: true}, Cgroups: neighbour}, ""},
		"never used":      {Measured{Target: target, Used: map[blkio.Dev]bool{{Major: 254, Minor: 32}: false}}, ""},
		"btrfs":           {Measured{Target: target, Used: map[blkio.Dev]bool{vdb: true, {Major: 254, Minor: 32}: true}}, "commits of btrfs, which vdc has"},
		"top":             {Measured{Cgroups: neighbour}, "commits of btrfs, which vdc has"},
		"nothing counted": {Measured{NoWaits: errors.New("no BPF"), Cgroups: neighbour}, ""},
		"no hook either":  {Measured{Unknown: map[wait.Cause]error{wait.Journal: errors.New("no hook")}, Cgroups: neighbour}, "no hook"},
	} {
		tt.noteBtrfs(node)
		got := ""
		if err := tt.Unknown[wait.Journal]; err != nil {
			got = err.Error()
		}
		if !strings.HasPrefix(got, tt.unknown) || (got == "") != (tt.unknown == "") {
			t.Errorf("%s: unknown: %q, want %q", name, got, tt.unknown)
		}
	}
}
