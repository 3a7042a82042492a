package limits

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/test/e2e/cgroup"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

// TestClockJumps verifies that, when the node's clock jumps ahead, and back to before the plugin's start, the
// reconciler keeps working, probes succeed, and the limits of an ended pod are removed.
func TestClockJumps(t *testing.T) {
	lab.StartPlugin(t)
	pod := lab.RunPod(t, "pod", lab.Limited)
	k := pod.MustRun(lab.Sleeper("c", "/data", "ext4"))
	for _, by := range []time.Duration{20 * time.Minute, -40 * time.Minute} {
		jumpClock(t, by)
		if err := cgroup.Dir(k.Cgroup).SetIOMax(lab.Node.Disks["vdb"] + " wbps=max"); err != nil {
			t.Fatal(err)
		}
		lab.AwaitIOMax(t, k.Cgroup, lab.LimitedDisk)
		lab.Eventually(t, "the plugin is ready", func() error {
			_, err := lab.Command(t, "status", "--ready", "limits")
			return err
		})
	}
	if err := k.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	lab.AwaitIOMax(t, pod.Cgroup, nil)
}

// jumpClock changes the node's clock, and sets it right at the end of the test.
func jumpClock(t *testing.T, by time.Duration) {
	t.Helper()
	set := func(to time.Time) {
		ts := unix.NsecToTimespec(to.UnixNano())
		if err := unix.ClockSettime(unix.CLOCK_REALTIME, &ts); err != nil {
			t.Fatal(err)
		}
	}
	before := time.Now()
	set(before.Add(by))
	t.Cleanup(func() { set(before.Add(time.Since(before))) }) // by the monotonic clock
}
