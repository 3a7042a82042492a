package wait

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
)

// readings returns two readings of a cgroup, two seconds apart, from the texts of its files.
func readings(t *testing.T, files [2]map[string]string) (out [2]Use) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "cgroup.controllers"), []byte("io"), 0o600); err != nil {
		t.Fatal(err)
	}
	tree, err := cgroupfs.OpenTree(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	for i := range out {
		for name, text := range files[i] {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if out[i], err = ReadUse(tree.Cgroup(".")); err != nil {
			t.Fatal(err)
		}
	}
	out[1].Time = out[0].Time.Add(2 * time.Second)
	return out
}

func TestUseBetween(t *testing.T) {
	u := readings(t, [2]map[string]string{{
		"io.max":      "254:0 rbps=max wbps=1000 riops=max wiops=100\n254:32 rbps=1000 wbps=max riops=max wiops=max\n",
		"io.stat":     "254:0 rbytes=100 wbytes=1000 rios=1 wios=10 dbytes=0 dios=0 cost.usage=5 cost.wait=1000000\n254:16 rbytes=7 wbytes=0 rios=7 wios=0 dbytes=0 dios=0\n254:48 rbytes=9 wbytes=0 rios=1 wios=0 dbytes=0 dios=0\n",
		"io.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=1000000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=1000000\n",
	}, {
		"io.stat":     "254:0 rbytes=100 wbytes=2900 rios=1 wios=110 dbytes=0 dios=0 cost.usage=9 cost.wait=2000000\n254:16 rbytes=4 wbytes=0 rios=2 wios=0 dbytes=0 dios=0\n254:48 rbytes=9 wbytes=0 rios=1 wios=0 dbytes=0 dios=0\n",
		"io.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=2800000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=2000000\n",
	}})
	some, full, waited := 0.9, 0.5, 0.5
	want := Activity{Duration: 2 * time.Second, Some: &some, Full: &full, Disks: []DiskUse{
		{Dev: blkio.Dev{Major: 254}, Rates: [4]float64{0, 950, 0, 50}, Limits: blkio.Limits{blkio.Max, 1000, blkio.Max, 100}, CostWait: &waited},
		{Dev: blkio.Dev{Major: 254, Minor: 16}, Rates: [4]float64{2, 0, 1, 0}}, // another disk of that number
		{Dev: blkio.Dev{Major: 254, Minor: 32}, Limits: blkio.Limits{1000, blkio.Max, blkio.Max, blkio.Max}},
	}}
	got := UseBetween(u[0], u[1])
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
	if key, part, ok := got.Disks[0].Fullest(None); key != blkio.Wbps || part != 0.95 || !ok {
		t.Errorf("the fullest limit is %v, %v, %t", key, part, ok)
	}
	if _, _, ok := got.Disks[1].Fullest(None); ok {
		t.Error("a disk without limits has a fullest one")
	}
	if got := UseBetween(u[1], u[1]); len(got.Disks) > 0 || got.Some != nil {
		t.Errorf("in no time: %+v", got)
	}
}

// TestNoPressure verifies that a cgroup can be read on a kernel without pressure stall information.
func TestNoPressure(t *testing.T) {
	u := readings(t, [2]map[string]string{{"io.max": "", "io.stat": ""}})
	if got := UseBetween(u[0], u[1]); got.Some != nil || got.Full != nil || len(got.Disks) > 0 {
		t.Errorf("%+v", got)
	}
}
