package node

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"

	"github.com/nri-blkio/nri-blkio/blkio/kernel"
	"github.com/nri-blkio/nri-blkio/plugin/handover"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/policy"
)

// TestLateChildIsRecorded verifies that the exit of a container has the cgroups that were made below its own after the first
// comparison, as by a container runtime within it, and those that were removed again.
func TestLateChildIsRecorded(t *testing.T) {
	early, late := cgroupOf("a")+"/early", cgroupOf("a")+"/late"
	h, dir := tree(t, podCgroup, cgroupOf("a"), early)
	n := newNode(t, h)
	start(t, n, limited("rootfs wbps=1Mi"), "a")
	want, err := h.Cgroup(cgroupOf("a")).IDs()
	if err := errors.Join(err, os.Mkdir(filepath.Join(dir, late), 0o755), os.RemoveAll(filepath.Join(dir, early))); err != nil {
		t.Fatal(err)
	}
	id, err := h.Cgroup(late).ID()
	if err != nil {
		t.Fatal(err)
	}
	c, do := n.noteEnded(cgroupOf("a"))
	(&endedContainer{n, c, do}).Lifted(true)
	n.pass(t.Context())
	r, err := record.Read(h.Cgroup(podCgroup), record.KindPod)
	if err != nil || len(r.Exits) != 1 || !slices.Equal(r.Exits[0].CgroupIDs, append(want, id)) {
		t.Errorf("%v, exits %+v, want one of %v", err, r, append(want, id))
	}
}

// TestSlowSyncKeepsLittle verifies that neither a removed pod nor its container is kept during a sync, which
// can take hours.
func TestSlowSyncKeepsLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := tree(t, podCgroup, cgroupOf("a"))
		n := newNode(t, h)
		hung := make(chan struct{})
		n.exits.writeout.Syncs.Sync = func(context.Context, string) error { <-hung; return nil }
		gone := func() weak.Pointer[pod] {
			sb := limited("rootfs wbps=1Mi")
			if err := n.start(t.Context(), sb, ctr("a"), true); err != nil {
				t.Fatal(err)
			}
			c, _ := n.noteEnded(cgroupOf("a"))
			n.exits.writeout.Write(t.Context(), endedPod{n, c.pod.group}, c.id, handover.Unsynced{Volumes: []handover.Volume{{Path: "/", Disk: rootDisk.Dev}}})
			n.Stopped("sb1", c.id)
			n.Removed("sb1", c.id)
			n.RemovedPod("sb1")
			return weak.Make(c.pod.in(n.peek()))
		}()
		synctest.Wait()
		runtime.GC()
		runtime.GC()
		if gone.Value() != nil {
			t.Error("the pod is kept")
		}
		close(hung)
		time.Sleep(2 * time.Minute)
	})
}

// TestReleaseGate verifies that no cgroup is removed to move the inodes of ended containers, on a kernel that
// is not known to have the corrections, unless the policy asks for it.
func TestReleaseGate(t *testing.T) {
	affected := kernel.Release{Uname: "6.18.38-talos"}.Writeback()
	fixed := kernel.Release{Uname: "6.18.39-talos"}.Writeback()
	for _, tt := range []struct {
		name     string
		kernel   kernel.Verdict
		repair   policy.Repair
		released bool
	}{
		{"fixed", fixed, policy.RepairAuto, true},
		{"fixed, repair is off", fixed, policy.RepairOff, true}, // hand-over needs it, too
		{"affected", affected, policy.RepairAuto, false},
		{"affected, repair is off", affected, policy.RepairOff, false},
		{"affected, overridden", affected, policy.RepairOn, true},
		{"unknown", kernel.Verdict{}, policy.RepairAuto, false},
		{"unknown, overridden", kernel.Verdict{}, policy.RepairOn, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h, dir := tree(t, podCgroup)
			log, logged := logtest.NewNullLogger()
			n := newNode(t, h)
			n.log, n.exits.tidier.Log, n.kernel = log, log, tt.kernel
			pol := policy.Default()
			pol.Writeback.Repair = tt.repair
			n.Reload(pol)
			said := len(logged.AllEntries()) == 1 && logged.LastEntry().Level == logrus.InfoLevel &&
				strings.Contains(logged.LastEntry().Message, "writeback.repair: true")
			if said == tt.released || said && logged.LastEntry().Data["kernel"] != tt.kernel.String() {
				t.Errorf("logged %+v", logged.AllEntries())
			}
			logged.Reset()
			// A cgroup that cannot be removed shows that the plugin tried to.
			stuck := filepath.Join(dir, filepath.Dir(podCgroup), "nri-blkio-release", "x")
			if err := os.MkdirAll(stuck, 0o755); err != nil {
				t.Fatal(err)
			}
			n.exits.tidier.Tidy(t.Context(), endedPod{n, newGroup(podCgroup, podCgroup).identity()})
			if got := len(logged.AllEntries()) > 0; got != tt.released {
				t.Errorf("a release was tried: %v, want %v", got, tt.released)
			}
		})
	}
}
