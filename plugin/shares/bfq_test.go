package shares

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// TestBFQ verifies that on a disk with bfq all cgroups get weights of at most 1000 in io.bfq.weight, containers too, and that
// weights on other disks, the default of another program, and io.weight stay.
func TestBFQ(t *testing.T) {
	k := threePods(t)
	k.file = blkio.IOBFQWeight
	err := filepath.WalkDir(k.dir, func(name string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() && name != k.dir {
			k.put(strings.TrimPrefix(name, k.dir+"/")+"/io.bfq.weight", "default 100\n254:16 77\n")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	pass := func() {
		t.Helper()
		k.now = k.now.Add(2 * time.Second)
		if _, err := k.keeper.Pass(k.now, Demand{BFQ: []blkio.Dev{vda}, Given: k.given, Reserve: k.reserve}); err != nil {
			t.Fatal(err)
		}
	}
	before := k.read(podB + "/io.weight")
	k.given[a], k.given[b], k.given[c] = blkio.Weights{Default: 200}, blkio.Weights{Default: 9000}, blkio.Weights{Default: 300}
	pass()
	k.use(vda, a, b, c)
	pass()
	for name, want := range map[string]string{
		a: "200", b: "1000", c: "300", // each is alone in its pod, but for b
		podB: "1000",
	} {
		if got := k.read(name + "/io.bfq.weight"); got != "default 100\n254:0 "+want+"\n254:16 77\n" {
			t.Errorf("%s: %q, want %s", name, got, want)
		}
	}
	if got := k.read(podB + "/io.weight"); got != before {
		t.Errorf("io.weight is %q", got)
	}
	// A reserve, which goes again.
	k.reserve = 5000
	pass()
	if got := k.read("kubepods.slice/io.bfq.weight"); got != "default 100\n254:16 77\n" {
		t.Errorf("with a reserve of one half: %q", got)
	}
	k.reserve = 2000
	pass()
	if got := k.read("kubepods.slice/io.bfq.weight"); got != "default 100\n254:0 400\n254:16 77\n" {
		t.Errorf("with a reserve: %q", got)
	}
	k.reserve = 0
	pass()
	if got := k.read("kubepods.slice/io.bfq.weight"); got != "default 100\n254:16 77\n" {
		t.Errorf("without a reserve: %q", got)
	}
}
