package enforce

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/policy"
)

func TestClear(t *testing.T) {
	write := []string{`write io.max "8:0 wbps=max"`}
	marked := append([]string{"mark as cleared"}, write...)
	for _, tt := range []struct {
		name        string
		record      record.Record
		dryRun      bool
		want        []string
		wantMax     string // of the cgroup; "": as it was
		wantCleared bool
	}{
		{name: "limits", want: marked, wantMax: "8:0 wbps=max", wantCleared: true},
		{name: "dry run", dryRun: true, want: marked},
		{name: "cleared before", record: record.Record{Cleared: true}, want: write, wantMax: "8:0 wbps=max", wantCleared: true},
		{name: "observed", record: record.Record{Observed: true}, want: marked[:1], wantCleared: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			const before = "8:0 wbps=1048576"
			n := newNode(t, a)
			n.write(a+"/io.max", before)
			r := tt.record
			r.Kind, r.Namespace, r.Pod, r.Container, r.Settings = record.KindContainer, "prod", "db-0", "db", limit(sda, 1<<20)
			cg := n.Cgroups.Cgroup(a)
			if err := record.Write(cg, &r); err != nil {
				t.Fatal(err)
			}
			c := Clearer{DryRun: tt.dryRun}
			steps, err := c.Clear(cg, &r)
			if d := cmp.Diff(tt.want, steps); d != "" || err != nil {
				t.Errorf("%v; steps, -want +got:\n%s", err, d)
			}
			if tt.wantMax == "" {
				tt.wantMax = before
			}
			if got := n.ioMax(a); got != tt.wantMax {
				t.Errorf("io.max: %q, want %q", got, tt.wantMax)
			}
			now, err := record.Read(cg, record.KindContainer)
			if err != nil || now.Cleared != tt.wantCleared {
				t.Errorf("record: %+v, %v", now, err)
			}
		})
	}
}

// TestClearGone verifies that the record of a container, and so its mark, is on the pod's cgroup.
func TestClearGone(t *testing.T) {
	n := newNode(t, a)
	var c Clearer
	steps, err := c.Clear(n.Cgroups.Cgroup(b), &record.Record{Kind: record.KindContainer, Settings: limit(sda, 1)})
	if d := cmp.Diff([]string{"mark as cleared"}, steps); d != "" || !errors.Is(err, blkio.ErrGone) {
		t.Errorf("%v; -want +got:\n%s", err, d)
	}
}

// TestClearFails verifies that the steps before an error are reported, and the other files are written.
func TestClearFails(t *testing.T) {
	n := newNode(t, a)
	if err := os.Remove(filepath.Join(n.dir, a, "io.max")); err != nil {
		t.Fatal(err)
	}
	n.write(a+"/io.weight", "default 500")
	weight := policy.Setting{Value: blkio.Value{Address: blkio.Address{Key: blkio.Weight}, Amount: 500}}
	r := record.Record{Kind: record.KindPod, Namespace: "prod", Pod: "db-0", Settings: policy.NewSettings(limit(sda, 1)[0], weight)}
	var c Clearer
	steps, err := c.Clear(n.Cgroups.Cgroup(a), &r)
	if d := cmp.Diff([]string{"mark as cleared", `write io.weight "default 100"`}, steps); d != "" || err == nil {
		t.Errorf("%v; -want +got:\n%s", err, d)
	}
}

// TestClearVerifies verifies that a plugin that inspected the cgroup when it was marked has written its record
// again, with more limits. They are removed, and the cgroup is marked again.
func TestClearVerifies(t *testing.T) {
	n := newNode(t, a)
	cg := n.Cgroups.Cgroup(a)
	if err := record.Write(cg, &record.Record{Kind: record.KindPod, Namespace: "prod", Pod: "db-0", Settings: limit(sdb, 5)}); err != nil {
		t.Fatal(err)
	}
	var c Clearer
	steps, err := c.verify(cg, record.KindPod)
	if d := cmp.Diff([]string{`write io.max "8:16 wbps=max"`}, steps); d != "" || err != nil {
		t.Errorf("%v; -want +got:\n%s", err, d)
	}
	if now, err := record.Read(cg, record.KindPod); err != nil || !now.Cleared {
		t.Errorf("record: %+v, %v", now, err)
	}
	if steps, err := c.verify(cg, record.KindPod); len(steps) > 0 || err != nil {
		t.Errorf("of a marked cgroup: %q, %v", steps, err)
	}
}

func TestUndo(t *testing.T) {
	for _, tt := range []struct {
		name            string
		cleared, dryRun bool
		want            []string
		wantCleared     bool
	}{
		{name: "cleared", cleared: true, want: []string{"remove the mark, the plugin restores the limits"}},
		{name: "dry run", cleared: true, dryRun: true, want: []string{"remove the mark, the plugin restores the limits"}, wantCleared: true},
		{name: "not cleared"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newNode(t, a)
			cg := n.Cgroups.Cgroup(a)
			r := record.Record{Kind: record.KindPod, Namespace: "prod", Pod: "db-0", Settings: limit(sda, 1), Cleared: tt.cleared}
			if err := record.Write(cg, &r); err != nil {
				t.Fatal(err)
			}
			c := Clearer{DryRun: tt.dryRun}
			steps, err := c.Undo(cg, &r)
			if d := cmp.Diff(tt.want, steps); d != "" || err != nil {
				t.Errorf("%v; -want +got:\n%s", err, d)
			}
			if now, err := record.Read(cg, record.KindPod); err != nil || now.Cleared != tt.wantCleared {
				t.Errorf("record: %+v, %v", now, err)
			}
		})
	}
}
