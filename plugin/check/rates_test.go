package check

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/diskmodel"
	"github.com/nri-blkio/nri-blkio/plugin/manifest"
)

// sdaDev is the disk of all paths of testChecker.
var sdaDev = blkio.Dev{Major: 8}

// slowChecker knows of the disk that it does 1500 operations and 60 MiB a second.
func slowChecker() *Checker {
	c := testChecker()
	c.Node.Disks = map[blkio.Dev]Disk{sdaDev: {Origin: "policy", State: "on demand", Model: &blkio.CostModel{
		Rbps: 60 << 20, RSeqIOPS: 1500, RRandIOPS: 1500, Wbps: 60 << 20, WSeqIOPS: 1500, WRandIOPS: 750,
	}}}
	return c
}

// notes returns the notes about a pod with limits of each container.
func notes(t *testing.T, c *Checker, limits string) []string {
	t.Helper()
	r := c.Pod(t.Context(), podOf(map[string]string{limitsOf + "containers": limits}, "a"))
	if len(r.Errors) > 0 {
		t.Fatal(r.Errors)
	}
	return r.Notes
}

// TestOperations verifies the operations per second that a limit of bytes allows.
func TestOperations(t *testing.T) {
	for limits, want := range map[string][]string{
		"rootfs wbps=10Mi":                    {"wbps=10Mi is 2560 operations/s of 4K, 640 of 16K, 160 of 64K or 10 of 1M"},
		"rootfs rbps=10Mi riops=200":          {"rbps=10Mi riops=200 is 200 operations/s of 4K, 200 of 16K, 160 of 64K or 10 of 1M"},
		"rootfs wbps=64Ki":                    {"wbps=64Ki is 16 operations/s of 4K, 4 of 16K, 1 of 64K or 0.062 of 1M"},
		"rootfs wiops=100 rbps=max":           nil,
		"rootfs wiops=100 wiops.burst=1k/60s": {"wiops.burst on sda: 54k above the limit in a whole burst, after 540 seconds without use"},
		"rootfs rbps=4Mi wbps=2Mi": {
			"rbps=4Mi is 1024 operations/s of 4K, 256 of 16K, 64 of 64K or 4 of 1M", "wbps=2Mi is 512 operations/s of 4K, 128 of 16K, 32 of 64K or 2 of 1M",
		},
	} {
		for name, c := range map[string]*Checker{"a node": testChecker(), "a disk with a model": slowChecker()} {
			c.Policy.Bursts[blkio.Wiops] = blkio.Max
			if d := cmp.Diff(want, notes(t, c, limits)); d != "" {
				t.Errorf("%s on %s: -want +got:\n%s", limits, name, d)
			}
		}
	}
}

// TestUnreachable covers a limit above the rates of the disk in any order and with any block size.
func TestUnreachable(t *testing.T) {
	const inOrder = "riops=1501 on sda has no effect: its model (policy) says 1500 operations/s of 4K"
	measured := slowChecker()
	d := measured.Node.Disks[sdaDev]
	d.Random = &diskmodel.Random{Reads: diskmodel.Linear{Base: 1. / 1600}, Writes: diskmodel.Linear{Base: 1. / 1600}}
	measured.Node.Disks[sdaDev] = d
	guess := slowChecker()
	d.Guess = true
	guess.Node.Disks[sdaDev] = d
	for _, tt := range []struct {
		name   string
		c      *Checker
		limits string
		want   []string
	}{
		{"reads", slowChecker(), "rootfs riops=50k", []string{"riops=50k on sda has no effect: its model (policy) says 1500 operations/s of 4K"}},
		{"just above", slowChecker(), "rootfs riops=1501", []string{inOrder}},
		{"just reached", slowChecker(), "rootfs riops=1500 wiops=1500", nil},
		{"bytes", slowChecker(), "rootfs wbps=61Mi", []string{
			"wbps=61Mi is 15616 operations/s of 4K, 3904 of 16K, 976 of 64K or 61 of 1M", "wbps=61Mi on sda has no effect: its model (policy) says 60Mi/s",
		}},
		{"more was measured than the model gives out", measured, "rootfs riops=1600", nil},
		{"more than was measured", measured, "rootfs riops=1700", []string{"riops=1700 on sda has no effect: its model (policy) says 1600 operations/s of 4K"}},
		{"a guess of the kernel", guess, "rootfs riops=50k", nil},
		{"no model", testChecker(), "rootfs riops=50k", nil},
		{"an unknown node", &Checker{Policy: testChecker().Policy}, "rootfs riops=50k", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if d := cmp.Diff(tt.want, notes(t, tt.c, tt.limits)); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		})
	}
}

// TestUnreachableBelow verifies that the model of the disk below a logical volume is used.
func TestUnreachableBelow(t *testing.T) {
	c := slowChecker()
	c.Node.Storage = below{}
	want := []string{"riops=50k on sda has no effect: the model of sdb (policy) says 1500 operations/s of 4K"}
	if d := cmp.Diff(want, notes(t, c, "rootfs riops=50k")); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// below has a disk that is made of another one.
type below struct{ numbered }

func (below) Physical(blkio.Dev) ([]blkio.Disk, error) {
	return []blkio.Disk{{Dev: sdaDev, Name: "sdb"}}, nil
}

// stacked has a disk that is made of two.
type stacked struct{ numbered }

func (stacked) Physical(blkio.Dev) ([]blkio.Disk, error) {
	return []blkio.Disk{{Dev: sdaDev, Name: "sdb"}, {Dev: blkio.Dev{Major: 8, Minor: 16}, Name: "sdc"}}, nil
}

// TestUnreachableStack verifies that a disk made of others reaches at most the sum of their rates.
func TestUnreachableStack(t *testing.T) {
	c := slowChecker()
	c.Node.Storage = stacked{}
	if got := notes(t, c, "rootfs riops=50k"); got != nil {
		t.Errorf("with one that is not known: %q", got)
	}
	second := c.Node.Disks[sdaDev]
	second.Origin = "udev"
	c.Node.Disks[blkio.Dev{Major: 8, Minor: 16}] = second
	if got := notes(t, c, "rootfs riops=3k"); got != nil {
		t.Errorf("%q", got)
	}
	want := []string{"riops=50k on sda has no effect: the models of sdb, sdc (policy, udev) say 3000 operations/s of 4K"}
	if d := cmp.Diff(want, notes(t, c, "rootfs riops=50k")); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// TestSums covers limits that the disk cannot serve together. Init containers do not run with the
// others, and the limit of a pod as a whole counts if it is lower.
func TestSums(t *testing.T) {
	c := slowChecker()
	limited := func(annotations map[string]string, change func(*manifest.Pod)) Result {
		m := podOf(annotations, "a", "b")
		if change != nil {
			change(m)
		}
		return c.Pod(t.Context(), m)
	}
	each := map[string]string{limitsOf + "containers": "rootfs wbps=31Mi riops=700"}
	whole := map[string]string{limitsOf + "containers": "rootfs wbps=31Mi", limitsOf + "pod-total": "rootfs wbps=50Mi"}
	alone := map[string]string{limitsOf + "container.a": "rootfs wbps=70Mi"}
	const tooMuch = "wbps of 2 containers on sda is 62Mi in total, but its model (policy) says 60Mi/s"
	for _, tt := range []struct {
		name string
		pods []Result
		want []string
	}{
		{"a pod", []Result{limited(each, nil)}, []string{tooMuch}},
		{"with an init container", []Result{limited(each, func(m *manifest.Pod) { m.Containers[0].Role = manifest.Init })}, nil},
		{"with a limit of the pod", []Result{limited(whole, nil)}, nil},
		{"one above the disk's", []Result{limited(alone, nil)}, nil},
		{"two pods", []Result{limited(whole, nil), limited(alone, nil)}, []string{
			"wbps of 3 containers on sda is 120Mi in total, but its model (policy) says 60Mi/s",
		}},
		{"operations", []Result{limited(map[string]string{limitsOf + "containers": "rootfs riops=800"}, nil)}, []string{
			"riops of 2 containers on sda is 1600 in total, but its model (policy) says 1500 operations/s of 4K",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if d := cmp.Diff(tt.want, c.Sums(tt.pods)); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		})
	}
}
