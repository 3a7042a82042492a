package shares

import (
	"path"
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio"
)

func TestPodsWeight(t *testing.T) {
	for _, tt := range []struct {
		others  uint64
		share   blkio.Percent
		cgroups int
		want    uint32
	}{
		{100, 5000, 1, 100},
		{100, 3000, 1, 233},
		{300, 3000, 1, 700},
		{300, 3000, 2, 350},
		{100, 9000, 1, 11},
		{1, 9000, 1, 1},      // never 0
		{500, 100, 1, 10000}, // the kernel's largest
		{10000, 1, 3, 10000},
	} {
		if got := ofCost(nil).podsWeight(tt.others, tt.share, tt.cgroups); got != tt.want {
			t.Errorf("beside %d, with %s %% for them, %d cgroups get %d, want %d", tt.others, tt.share, tt.cgroups, got, tt.want)
		}
	}
}

// TestReserve verifies that the weight of all pods follows the disk's other users, and that the weights of
// others stay as they are.
func TestReserve(t *testing.T) {
	for driver, container := range map[string]string{
		"systemd":     "kubepods.slice/kubepods-podu1.slice/cri-a.scope",
		"cgroupfs":    "kubepods/podu1/a",
		"cgroup root": "cluster/kubepods/podu1/a",
	} {
		t.Run(driver, func(t *testing.T) {
			k := newKernel(t, map[string]string{container: "default 100\n"})
			k.make("user.slice/session.scope", "default 100\n")
			k.put("user.slice/io.weight", "default 100\n254:16 300\n")
			top := container
			for path.Dir(top) != "." {
				top = path.Dir(top)
			}
			want := func(when, weights string) {
				t.Helper()
				if got := k.read(top + "/io.weight"); got != weights {
					t.Errorf("%s: %q, want %q", when, got, weights)
				}
			}
			k.pass(vdb)
			want("without a reserve", "default 100\n")
			k.reserve = 2500
			k.pass(vdb)
			want("idle", "default 100\n254:16 900\n")
			k.use(vdb, "system.slice/kubelet.service")
			k.pass(vdb)
			want("beside the system", "default 100\n254:16 300\n")
			k.use(vdb, "system.slice/kubelet.service")
			k.useTimes(vdb, "user.slice/session.scope", 3)
			k.pass(vdb)
			want("beside the system and a user", "default 100\n254:16 1200\n")
			k.use(vdb, "system.slice/kubelet.service")
			k.useTimes(vdb, "user.slice/session.scope", 1000)
			k.pass(vdb)
			want("beside a user, and one operation of the system", "default 100\n254:16 900\n")
			k.useTimes(vdb, "system.slice/kubelet.service", 33)
			k.useTimes(vdb, "user.slice/session.scope", 1000)
			k.pass(vdb)
			want("beside nearly the same", "default 100\n254:16 900\n")
			k.put(top+"/io.weight", "default 100\n") // another program
			k.now = k.now.Add(allEvery)
			k.pass(vdb)
			want("after another program", "default 100\n254:16 900\n")
			k.pass()
			want("without a disk", "default 100\n")
			if got := k.read("system.slice/io.weight") + k.read("user.slice/io.weight"); got != "default 100\ndefault 100\n254:16 300\n" {
				t.Errorf("the weights of others: %q", got)
			}
		})
	}
}

// TestReserveBeforePods verifies that a reserve that is kept before the first pod comes holds for it.
func TestReserveBeforePods(t *testing.T) {
	k := newKernel(t, nil)
	k.reserve = 7500
	k.pass(vdb)
	k.pass(vdb)
	k.make(a, "default 100\n")
	for range 3 {
		k.use(vdb, a, "system.slice/kubelet.service")
		k.pass(vdb)
	}
	if got, want := k.read("kubepods.slice/io.weight"), "default 100\n254:16 33\n"; got != want {
		t.Errorf("pods have %q, want %q", got, want)
	}
}
