package clear

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/hostfs"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
	"github.com/nri-blkio/nri-blkio/internal/fakenode"
	"github.com/nri-blkio/nri-blkio/plugin/health"
	"github.com/nri-blkio/nri-blkio/plugin/inspect"
	"github.com/nri-blkio/nri-blkio/plugin/iocost"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/plugin/shares"
	"github.com/nri-blkio/nri-blkio/policy"
)

// steps is a Reporter that keeps the steps as text, "POD CONTAINER: STEP".
type steps []string

func (s *steps) Cgroup(r *record.Record, steps []string) {
	for _, step := range steps {
		*s = append(*s, strings.TrimSpace(r.Pod+" "+r.Container)+": "+step)
	}
}

func (s *steps) Node(steps []string) { *s = append(*s, steps...) }

// noDisks are the disks of a node without any.
type noDisks struct{}

func (noDisks) Disks() ([]storage.DiskInfo, error) { return nil, nil }

func (noDisks) Calibration(*storage.DiskInfo) (iocost.Known, error) { return iocost.Known{}, nil }

func (noDisks) SetQueue(blkio.Dev, string, string) error { return nil }

func (noDisks) Udev(*storage.DiskInfo) (iocost.Known, error) { return iocost.Known{}, nil }

// newNode returns a node with the containers db and log of the pod db-0, and web of web-0. The first of them has a
// limit.
func newNode(t *testing.T) Node {
	t.Helper()
	dir := t.TempDir()
	fakenode.WriteFiles(t, dir, map[string]string{
		"cgroup.controllers": "io\n", "io.cost.qos": "", "pods/db-0/db/io.max": "8:0 wbps=1048576\n", "pods/db-0/io.max": "",
		"pods/db-0/log/io.max": "", "pods/web-0/web/io.max": "", "pods/web-0/io.max": "", "pods/io.weight": "",
	})
	n := Node{Cgroups: fakenode.OpenCgroups(t, dir), Disks: noDisks{}, StateDir: t.TempDir()}
	limit := policy.Settings{{Value: blkio.Value{Address: blkio.Address{Key: blkio.Wbps, Dev: blkio.Dev{Major: 8}}, Amount: 1 << 20}}}
	for path, settings := range map[string]policy.Settings{"db-0/db": limit, "db-0/log": nil, "web-0/web": nil} {
		pod, container, _ := strings.Cut(path, "/")
		r := &record.Record{Kind: record.KindContainer, Namespace: "prod", Pod: pod, Container: container, Settings: settings}
		if err := record.Write(n.Cgroups.Cgroup("pods/"+path), r); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

// run finds and makes the steps of a request.
func run(t *testing.T, n Node, r Request) (made steps, found bool, err error) {
	t.Helper()
	c, err := Find(n.Cgroups, r)
	if err != nil {
		t.Fatal(err)
	}
	found, err = c.Run(n, &made)
	return made, found, err
}

var db0 = inspect.Filter{Namespace: "prod", Name: "db-0"}

// TestClear verifies that the cgroups of the selected pods are cleared, with those of pods without a record, and that
// Undo is the way back.
func TestClear(t *testing.T) {
	const write, mark, undone = `: write io.max "8:0 wbps=max"`, ": mark as cleared", ": remove the mark, the plugin restores the limits"
	db0Steps := []string{"db-0 db" + mark, "db-0 db" + write, "db-0 log" + mark}
	for _, tt := range []struct {
		name    string
		request Request
		want    []string
		pods    int
	}{
		{name: "dry run", request: Request{Pod: db0, DryRun: true}, want: append(db0Steps[:3:3], "db-0"+mark), pods: 1},
		{name: "a pod", request: Request{Pod: db0}, want: append(db0Steps[:3:3], "db-0"+mark), pods: 1},
		{name: "undo of a pod", request: Request{Pod: db0, Undo: true}, want: []string{"db-0" + undone, "db-0 db" + undone, "db-0 log" + undone}, pods: 1},
		{name: "all pods", want: append(db0Steps[:3:3], "web-0 web"+mark, "db-0"+mark, "web-0"+mark), pods: 2},
		{name: "another pod", request: Request{Pod: inspect.Filter{Namespace: "prod", Name: "x"}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newNode(t)
			if tt.request.Undo {
				if _, _, err := run(t, n, Request{Pod: tt.request.Pod}); err != nil {
					t.Fatal(err)
				}
			}
			c, err := Find(n.Cgroups, tt.request)
			if err != nil || c.Pods() != tt.pods {
				t.Fatalf("%d pods, want %d, %v", c.Pods(), tt.pods, err)
			}
			got, found, err := run(t, n, tt.request)
			if err != nil || found != (tt.pods > 0) {
				t.Errorf("found %t, %v", found, err)
			}
			if d := cmp.Diff(tt.want, []string(got)); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		})
	}
}

// TestClearNode verifies that the settings of the whole node are removed only for all pods, and only if no plugin runs
// that removes them itself.
func TestClearNode(t *testing.T) {
	for _, tt := range []struct {
		name    string
		request Request
		running bool
		want    bool
	}{
		{name: "all pods", want: true},
		{name: "dry run", request: Request{DryRun: true}, want: true},
		{name: "a plugin runs", running: true},
		{name: "a pod", request: Request{Pod: db0}},
		{name: "undo", request: Request{Undo: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newNode(t)
			pods := n.Cgroups.Cgroup("pods")
			if err := pods.WriteXattr(shares.Attribute, []byte("8:0")); err != nil {
				t.Fatal(err)
			}
			if tt.running {
				report := health.Report{Part: health.Limits, State: health.Connected, At: time.Now()}
				if err := hostfs.WriteJSON(health.File(n.StateDir, health.Limits), &report); err != nil {
					t.Fatal(err)
				}
			}
			got, _, err := run(t, n, tt.request)
			if err != nil {
				t.Error(err)
			}
			const write = `pods: write io.weight "8:0 default"`
			if said := slices.Contains(got, write); said != tt.want {
				t.Errorf("%q, said %t, want %t", got, said, tt.want)
			}
			if left := slices.Contains(got, "leave to the plugin, which works by its last report: "+write); left != tt.running {
				t.Errorf("%q, left to the plugin %t, want %t", got, left, tt.running)
			}
			kept, err := pods.ReadXattr(shares.Attribute)
			if isKept := len(kept) > 0; err != nil || isKept == (tt.want && !tt.request.DryRun) {
				t.Errorf("kept %t, %v", isKept, err)
			}
		})
	}
}

// TestClearGoesOn verifies that a record that cannot be parsed, or a cgroup that cannot be written, keeps no other
// cgroup from being cleared, and is in the error.
func TestClearGoesOn(t *testing.T) {
	n := newNode(t)
	dir, name := n.Cgroups.Cgroup("pods/web-0/web").Above(record.Xattr)
	if err := dir.WriteXattr(name, []byte("{")); err != nil {
		t.Fatal(err)
	}
	got, found, err := run(t, n, Request{})
	if err == nil || !strings.Contains(err.Error(), "pods/web-0/web") || !found || len(got) != 4 {
		t.Errorf("%q, found %t, %v", got, found, err)
	}
	only, err := Find(n.Cgroups, Request{Pod: inspect.Filter{Namespace: "prod", Name: "web-0"}})
	if err == nil {
		t.Errorf("%d pods found although the only record is invalid", only.Pods())
	}
}

// TestClearGone verifies that a cgroup that was removed meanwhile is not an error. Its mark is on the pod's cgroup.
func TestClearGone(t *testing.T) {
	n := newNode(t)
	c, err := Find(n.Cgroups, Request{Pod: db0})
	if err != nil {
		t.Fatal(err)
	}
	c.records[0].Cgroup = n.Cgroups.Cgroup("pods/db-0/gone")
	var made steps
	_, err = c.Run(n, &made)
	want := steps{"db-0 db: mark as cleared", "db-0 log: mark as cleared", "db-0: mark as cleared"}
	if d := cmp.Diff(want, made); d != "" || err != nil {
		t.Errorf("%v; -want +got:\n%s", err, d)
	}
}
