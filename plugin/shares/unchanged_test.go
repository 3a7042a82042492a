package shares

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// TestUnchanged verifies that on a disk where nothing has changed nothing is computed.
func TestUnchanged(t *testing.T) {
	k := threePods(t)
	k.pass(vda, vdb)
	k.use(vda, a)
	before := k.pass(vda, vdb)
	k.use(vda, a)
	if after := k.pass(vda, vdb); &after[vda][0] != &before[vda][0] || &after[vdb][0] != &before[vdb][0] {
		t.Error("computed without a change")
	}
	k.use(vda, a, c)
	if after := k.pass(vda, vdb); &after[vda][0] == &before[vda][0] || &after[vdb][0] != &before[vdb][0] {
		t.Error("one disk has changed")
	}
	// A disk that refuses weights is tried again in each pass, and no other one with it.
	k.without[vda] = true
	k.use(vda, a, b)
	var err error
	var failing Result
	for range 2 {
		failing, err = k.tryPass(vda, vdb)
	}
	if err == nil || failing.Failed[vda] == nil || len(failing.Failed) != 1 || &failing.Shares[vdb][0] != &before[vdb][0] {
		t.Errorf("the other disk was computed beside one that fails with %v", err)
	}
	k.without[vda] = false
	k.pass(vda, vdb)
	if got := k.read(burstable + "/io.weight"); got != "default 100\n254:0 1100\n254:16 900\n" {
		t.Errorf("the QoS class has %q", got)
	}
}

// TestUnchangedAgrees verifies that a Keeper that computes only changed disks sets the weights of one that
// computes all.
func TestUnchangedAgrees(t *testing.T) {
	for seed := range uint64(5) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		lazy, eager := threePods(t), threePods(t)
		for step := range 60 {
			change := changeOf(rnd, step)
			for _, k := range []*kernel{lazy, eager} {
				change(k)
			}
			disks := [][]blkio.Dev{{vda, vdb}, {vda, vdb}, {vda, vdb}, {vda}}[rnd.IntN(4)]
			eager.keeper.last = nil
			eagerResult, eagerErr := eager.tryPass(disks...)
			lazyResult, lazyErr := lazy.tryPass(disks...)
			d := cmp.Diff(eagerResult.Shares, lazyResult.Shares) + cmp.Diff(eager.weights(), lazy.weights()) + cmp.Diff(fmt.Sprint(eagerErr), fmt.Sprint(lazyErr))
			if d != "" {
				t.Fatalf("seed %d, step %d: -eager +lazy:\n%s", seed, step, d)
			}
		}
	}
}

// changeOf returns a random change of a node.
func changeOf(rnd *rand.Rand, step int) func(*kernel) {
	leaf := []string{a, b, c}[rnd.IntN(3)]
	dev := []blkio.Dev{vda, vdb}[rnd.IntN(2)]
	weight := uint32(1 + rnd.IntN(5000))
	switch rnd.IntN(9) {
	case 0:
		return func(k *kernel) { k.given[leaf] = blkio.Weights{Default: weight} }
	case 1:
		return func(k *kernel) { k.given[leaf] = blkio.Weights{Devices: map[blkio.Dev]uint32{dev: weight}} }
	case 2:
		return func(k *kernel) { k.now = k.now.Add(time.Duration(weight) * 10 * time.Millisecond) }
	case 3: // another program
		return func(k *kernel) { k.put(podA+"/io.weight", fmt.Sprintf("default 100\n%s %d\n", dev, weight)) }
	case 4:
		return func(k *kernel) {
			k.make(fmt.Sprintf("%s/cri-%d.scope", podB, step), fmt.Sprintf("default %d\n", weight))
		}
	case 5:
		return func(k *kernel) {
			ended, _ := filepath.Glob(filepath.Join(k.dir, podB, "cri-?*[0-9].scope")) // the pattern is valid
			for _, dir := range ended {
				if err := os.RemoveAll(dir); err != nil {
					k.t.Fatal(err)
				}
			}
			k.use(dev, b)
		}
	case 6: // the kernel refuses a disk, or no more
		return func(k *kernel) { k.without[dev] = !k.without[dev] }
	default:
		return func(k *kernel) { k.use(dev, leaf) }
	}
}

// weights returns the content of all files io.weight, by cgroup.
func (k *kernel) weights() map[string]string {
	k.t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(k.dir, func(file string, _ os.DirEntry, err error) error {
		if err != nil || filepath.Base(file) != blkio.IOWeight {
			return err
		}
		name, err := filepath.Rel(k.dir, file)
		if err == nil {
			out[name] = k.read(name)
		}
		return err
	})
	if err != nil {
		k.t.Fatal(err)
	}
	return out
}
