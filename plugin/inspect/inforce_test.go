package inspect

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
	"github.com/nri-blkio/nri-blkio/internal/fakenode"
	"github.com/nri-blkio/nri-blkio/plugin/health"
	"github.com/nri-blkio/nri-blkio/plugin/iocost"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/policy"
)

// noDisks are the disks of a node without any.
type noDisks struct{}

func (noDisks) Disks() ([]storage.DiskInfo, error) { return nil, nil }

func (noDisks) Calibration(*storage.DiskInfo) (iocost.Known, error) { return iocost.Known{}, nil }

func (noDisks) SetQueue(blkio.Dev, string, string) error { return nil }

func (noDisks) Udev(*storage.DiskInfo) (iocost.Known, error) { return iocost.Known{}, nil }

// TestRemoval verifies that the removal is done only once an instance observes, and the kernel has no value of a record any
// more, whatever the record says about itself.
func TestRemoval(t *testing.T) {
	const ours, other = "8:32 rbps=max wbps=1048576 riops=max wiops=max\n", "8:32 rbps=max wbps=2097152 riops=max wiops=max\n"
	line := []string{"kubepods/pod1: 8:32 wbps=1048576"}
	for _, tt := range []struct {
		name, ioMax, state, mode string
		observed                 bool
		want                     []string
		done                     bool
	}{
		{name: "enforced", ioMax: ours, state: health.Connected, mode: "enforce", want: line},
		{name: "removed by an instance that enforces", state: health.Connected, mode: "enforce"},
		{name: "observed, and not removed yet", ioMax: ours, state: health.Connected, mode: "observe", observed: true, want: line},
		{name: "removed", state: health.Connected, mode: "observe", observed: true, done: true},
		{name: "another program's", ioMax: other, state: health.Connected, mode: "observe", observed: true, done: true},
		{name: "disconnected", state: health.Disconnected, mode: "observe", observed: true},
		{name: "no instance", observed: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := statusHost(t)
			fakenode.WriteFiles(t, string(h.Root), map[string]string{"cg/kubepods/pod1/io.max": tt.ioMax, "cg/io.cost.qos": "", "cg/io.cost.model": ""})
			h.StateDir = t.TempDir()
			if tt.state != "" {
				h.StateDir = writeState(t, &health.Report{Part: health.Limits, At: time.Now(), State: tt.state, Mode: tt.mode})
			}
			records, err := Records(h.Cgroups, Filter{})
			if err != nil {
				t.Fatal(err)
			}
			r := records[0].Record
			r.Observed = tt.observed
			// A limit and a weight that are the kernel's defaults never go away.
			dev := r.Settings[0].Dev
			r.Settings = append(r.Settings, policy.Setting{Value: blkio.Value{Address: blkio.Address{Key: blkio.Rbps, Dev: dev}}.Removal()})
			if err := record.Write(records[0].Cgroup, r); err != nil {
				t.Fatal(err)
			}
			got, err := h.Removal(noDisks{})
			if err != nil || got.IsDone() != tt.done {
				t.Errorf("done %t, %v", got.IsDone(), err)
			}
			if d := cmp.Diff(tt.want, got.InForce); d != "" {
				t.Errorf("-want +got\n%s", d)
			}
		})
	}
}

// TestRemovalUnreadable verifies that a record that cannot be read is an error.
func TestRemovalUnreadable(t *testing.T) {
	h := statusHost(t)
	dir, name := h.Cgroups.Cgroup("kubepods/pod1").Above(record.Xattr)
	if err := dir.WriteXattr(name, []byte("{")); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Removal(noDisks{}); err == nil || !strings.Contains(err.Error(), "kubepods/pod1") {
		t.Errorf("%v", err)
	}
}
