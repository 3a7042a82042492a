package inspect

import (
	"math"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nri-blkio/nri-blkio/internal/fakenode"
)

// TestMeasureUse verifies which values have a use: limits in force, of the disk and cgroup of the value.
func TestMeasureUse(t *testing.T) {
	dir := t.TempDir()
	fakenode.WriteFiles(t, dir, map[string]string{
		"cgroup.controllers": "io\n", "kubepods/pod1/io.max": "8:32 rbps=max wbps=1000000 riops=max wiops=100\n", "kubepods/pod1/io.stat": "8:32 rbytes=9 wbytes=0 rios=0 wios=0 dbytes=0 dios=0\n",
	})
	h := Host{Cgroups: fakenode.OpenCgroups(t, dir)}
	value := func(cgroup, dev, key string) Value {
		return Value{Subject: Subject{Cgroup: cgroup}, Dev: dev, Key: key}
	}
	values := []Value{
		value("kubepods/pod1", "8:32", "wbps"), value("kubepods/pod1", "8:32", "wiops"), // used
		value("kubepods/pod1", "8:32", "rbps"), value("kubepods/pod1", "8:16", "wbps"), value("kubepods/pod2", "8:32", "wbps"), value("kubepods/pod1", "", "weight"),
	}
	synctest.Test(t, func(t *testing.T) {
		go func() {
			time.Sleep(20 * time.Millisecond)
			_ = os.WriteFile(filepath.Join(dir, "kubepods/pod1/io.stat"), []byte("8:32 rbytes=9 wbytes=100000 rios=0 wios=5 dbytes=0 dios=0\n"), 0o644) // a missing text fails below
		}()
		h.MeasureUse(t.Context(), values, 200*time.Millisecond)
	})
	for i, want := range []float64{0.1 / 0.2, 0.05 / 0.2} {
		if u := values[i].Used; u == nil || math.Abs(*u-want) > 0.01 {
			t.Errorf("%s: used %v, want %v", values[i].Key, u, want)
		}
	}
	for _, v := range values[2:] {
		if v.Used != nil {
			t.Errorf("%+v: used %v", v, *v.Used)
		}
	}
	begin := time.Now()
	if h.MeasureUse(t.Context(), values[4:], time.Minute); time.Since(begin) > 30*time.Second {
		t.Error("it waits although there is no limit")
	}
}
