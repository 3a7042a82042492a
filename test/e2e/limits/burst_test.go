package limits

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/test/e2e/cgroup"
	"github.com/nri-blkio/nri-blkio/test/e2e/cri"
	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

// The burst of TestBurst: 20 MiB above the limit.
const (
	burstLimit   = lab.MiB
	burstRate    = 5 * lab.MiB
	burstSeconds = 5
	burstWhole   = (burstRate - burstLimit) * burstSeconds
)

var (
	lowered = lab.Disks{"vdb": "wbps=1048576"} // constant
	raised  = lab.Disks{"vdb": "wbps=5242880"} // constant
)

// TestBurst verifies that a writer has the burst for as long as there are credits, and then its limit; that a loop of restarts
// gives it nothing above the limit; and that an instance that ends, and one that follows a killed one, lower the limit.
func TestBurst(t *testing.T) {
	policy := lab.PolicyFile(t, `bursts: ["* wbps=4Mi"]`+"\n")
	p := lab.StartPlugin(t, "--policy", policy)
	// Credits stay: a pod of an earlier run on this node may not have its name.
	pod := lab.RunPod(t, "pod-"+strings.ToLower(rand.Text()[:8]), lab.Annotations{lab.Limits + "containers": fmt.Sprintf("/data wbps=1Mi wbps.burst=5Mi/%ds", burstSeconds)})
	k := pod.MustRun(lab.Sleeper("idle", "/data", "ext4"))
	lab.WantIOMax(t, k.Cgroup, lowered)
	lab.Eventually(t, "the credits are full", func() error {
		if got := creditsOf(t); got < burstWhole {
			return fmt.Errorf("%v bytes of %d", got, burstWhole)
		}
		return nil
	})
	lab.WantIOMax(t, k.Cgroup, raised)
	lab.AwaitIOMax(t, pod.Cgroup, raised) // the backstop
	measureBurst(t, pod, k)
	crashLoop(t, pod)

	lab.AwaitIOMax(t, k.Cgroup, raised)
	p.Kill(t)
	lab.WantIOMax(t, k.Cgroup, raised)
	p = lab.Launch(t, "--policy", policy) // not StartPlugin: a second later the limit may be raised again
	lab.Eventually(t, "the limit is lowered by the next instance", func() error { return lab.CheckIOMax(k.Cgroup, lowered) })
	lab.Eventually(t, "the limit is raised again", func() error { return lab.CheckIOMax(k.Cgroup, raised) })
	p.Signal(t, syscall.SIGTERM)
	p.Wait(t)
	lab.WantIOMax(t, k.Cgroup, lowered)
}

// creditsOf returns the credits that status shows, in bytes.
func creditsOf(t *testing.T) float64 {
	t.Helper()
	out, err := lab.Command(t, "status", "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	var status struct {
		Values []struct {
			Burst *struct{ Credits float64 }
		}
	}
	if err := json.Unmarshal([]byte(out), &status); err != nil {
		t.Fatal(err)
	}
	for _, v := range status.Values {
		if v.Burst != nil {
			return v.Burst.Credits * burstWhole
		}
	}
	return 0
}

// measureBurst has a container write from full credits until its limit is lowered.
func measureBurst(t *testing.T, pod lab.PodOf, k *cri.Container) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	file := "/data/" + filepath.Base(lab.File(t, "ext4", "burst"))
	written := make(chan error, 1)
	go func() {
		_, err := k.Exec(ctx, 4*lab.Deadline, "/bin/iotool", "write", "--direct", "--path", file, "--block", "64Ki", "--span", "8Mi", "--seconds", "300")
		written <- err
	}()
	dir := cgroup.Dir(k.Cgroup)
	used := func() int64 {
		n, err := dir.Counter(lab.Node.Disks["vdb"], "wbytes")
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	lab.Eventually(t, "the first write", func() error {
		if used() == 0 {
			return context.DeadlineExceeded
		}
		return nil
	})
	began, from := time.Now(), used()
	lab.Eventually(t, "the end of the burst", func() error { return lab.CheckIOMax(k.Cgroup, lowered) })
	lasted, bytes := time.Since(began), used()-from
	above := bytes - int64(burstLimit*lasted.Seconds())
	t.Logf("burst: %d bytes in %v, %d above the limit, which is %d more than a whole one", bytes, lasted, above, above-burstWhole)
	// The credits are settled once a second. What begins in between is not above one second of the difference.
	if above > burstWhole+burstRate-burstLimit {
		t.Errorf("%d bytes above the limit, a whole burst is %d", above, burstWhole)
	}
	if above < burstWhole/4 { // without a burst there are none; on a busy node some are written before the first is seen
		t.Errorf("%d bytes above the limit: the burst is of no use, a whole one is %d", above, burstWhole)
	}
	lab.AwaitIOMax(t, pod.Cgroup, lowered)
	lab.WantRate(t, k.Cgroup, "vdb", "wbytes", burstLimit)
	lab.Administer(t, "pkill", "--signal", "INT", "--full", "iotool write --direct --path "+file+" ")
	if err := <-written; err != nil {
		t.Error(err)
	}
}

// crashLoop starts containers that write until they end, one after another. They have the credits that are there, and no more.
func crashLoop(t *testing.T, pod lab.PodOf) {
	t.Helper()
	restarts := 10
	if *lab.Proof {
		restarts = 100
	}
	file := "/data/" + filepath.Base(lab.File(t, "ext4", "loop"))
	dir, disk := cgroup.Dir(pod.Cgroup), lab.Node.Disks["vdb"]
	from, err := dir.Counter(disk, "wbytes")
	if err != nil {
		t.Fatal(err)
	}
	credits, began := creditsOf(t), time.Now()
	for i := range restarts {
		config := lab.Sleeper(fmt.Sprint("loop-", i), "/data", "ext4")
		config.Args = []string{"write", "--direct", "--path", file, "--block", "64Ki", "--span", "8Mi", "--seconds", "2"}
		c := pod.MustRun(config)
		if _, err := c.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := c.Remove(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	took := time.Since(began)
	now, err := dir.Counter(disk, "wbytes")
	if err != nil {
		t.Fatal(err)
	}
	above := now - from - int64(burstLimit*took.Seconds())
	t.Logf("%d restarts in %v: %d bytes, %d above the limit, %.0f bytes of credits before", restarts, took, now-from, above, credits)
	// While status is read, credits are added. If each restart had those of two seconds, they would be eight times as many.
	if float64(above) > max(0, credits)+burstWhole/2 || now == from {
		t.Errorf("%d restarts have %d bytes above the limit, of %d", restarts, above, now-from)
	}
}
