package why

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
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
	if got := n.at(dbDir + "/kubepods-pod99.slice"); got.Cgroup != dbDir || got.Container != "db" {
		t.Errorf("a cgroup that the container made is of %+v", got)
	}
	if got := n.at("system.slice"); got.String() != "cgroup system.slice" {
		t.Errorf("got %q", got)
	}
}

// counted is an observer that counts nothing.
type counted struct{ closed *bool }

func (counted) Read() (wait.Times, error)     { return wait.Times{At: map[wait.Place]wait.Time{}}, nil }
func (counted) Unknown() map[wait.Cause]error { return nil }
func (c counted) Close() error                { *c.closed = true; return nil }

// TestMeasure verifies what is read of the node, and that the programs are removed.
func TestMeasure(t *testing.T) {
	tree, dir := newTree(t)
	closed := false
	node := Node{
		Cgroups: tree, Pods: pods, Disk: func(blkio.Dev) string { return "vdb" },
		Attach: func() (Observer, error) {
			go func() {
				time.Sleep(20 * time.Millisecond)
				write(t, dir, dbDir+"/io.stat", "254:16 rbytes=0 wbytes=1048576 rios=0 wios=16 dbytes=0 dios=0\n")
			}()
			return counted{&closed}, nil
		},
	}
	m, err := Measure(t.Context(), node, Target{"prod", "db-0", "db"}, 200*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if !closed || len(m.Within) != 2 || len(m.Cgroups) != 4 || m.Cgroups[0].Cgroup != dbDir || m.Cgroups[1].Cgroup != podDir {
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
