package e2e

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/nri-blkio/nri-blkio/test/e2e/cgroup"
	"github.com/nri-blkio/nri-blkio/test/e2e/noise"
	"github.com/nri-blkio/nri-blkio/test/generated"
)

// shareCase is what two containers with weights 200 and 300 do, each to a file of its own.
type shareCase struct {
	name string
	args []string
	// owner has written the file of the one with 200 before; nil for none.
	owner   *held
	seconds int // for how long it is measured
}

// shareSeconds is for how long the figures of TestShareFigures are measured.
const shareSeconds = 60

// shareSize is the size of the file of each container, as fio takes it.
const shareSize = "--size=128M"

// TestShareFigures measures how weights 200 and 300 divide a disk, in 60 windows of a second.
func TestShareFigures(t *testing.T) {
	b := newSlowBench(t, sharedDisk)
	startPlugin(t, "--policy", policyFile(t, noise.Policy))
	// A limit on writes, which does not hold it back, has repair watch its files.
	light := annotations{weight + "containers": "200", limits + "containers": "/data wbps=50Mi"}
	pair := []held{b.holder("light", light), b.holder("heavy", annotations{weight + "containers": "300"})}
	owner := b.holder("owner", annotations{weight + "containers": "1000"})
	b.awaitCost(true)
	b.fio("--rw=randread", "--direct=1", "--runtime=1") // makes the file
	buffered := []string{"--rw=write", "--bs=1M", "--fdatasync=1", "--numjobs=4"}
	for _, c := range []shareCase{
		{"direct reads", []string{"--rw=randread", "--direct=1", "--ioengine=libaio", "--iodepth=16"}, nil, shareSeconds},
		{"direct writes", []string{"--rw=randwrite", "--direct=1", "--ioengine=libaio", "--iodepth=16"}, nil, shareSeconds},
		{"buffered writes of 1 MiB, with fdatasync", buffered, nil, shareSeconds},
		{"the same, of a file that repair has moved from a container with 1000", buffered, &owner, shareSeconds},
	} {
		var row generated.Row
		for range figureRounds {
			share, isolation := b.share(t, pair, c)
			row.Add(map[string]float64{"share": 100 * share, "isolation": 100 * isolation})
		}
		publish(t, &row, c.name)
		if got, _ := row.Figure("share"); math.Abs(got.Median-60) > 10 {
			t.Errorf("%s: weight 300 beside 200 gets %.1f %%", c.name, got.Median)
		}
	}
}

// share returns the part of the disk that the second of two containers gets, and the first
// percentile of what it gets in a second of what it is due, at most 1.
func (b *slowBench) share(t *testing.T, pair []held, c shareCase) (share, isolation float64) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var group errgroup.Group
	start := func(i int) {
		args := append(slices.Clone(c.args), "--runtime=600", "--filename="+b.shareFile(i), shareSize)
		group.Go(func() error {
			_, err := b.disk().Victim(ctx, pair[i].Cgroup, args...)
			return err
		})
	}
	if c.owner != nil {
		b.own(t, *c.owner, b.shareFile(0))
	}
	start(0)
	if c.owner != nil {
		b.awaitCharged(pair[0], *c.owner)
	}
	start(1)
	time.Sleep(5 * time.Second)
	light, heavy, windows := b.windows(pair, c.seconds)
	if ctx.Err() != nil {
		t.Fatal(context.Cause(ctx))
	}
	cancel()
	_ = group.Wait() // killed
	return heavy / (light + heavy), windows[0]
}

// windows measures some seconds. It returns the bytes of two containers, and the parts that the second
// got of the 60 % that it is due in each second, at most 1, the least first.
func (b *slowBench) windows(pair []held, seconds int) (light, heavy float64, parts []float64) {
	b.Helper()
	first := []float64{b.bytes(pair[0]), b.bytes(pair[1])}
	before := slices.Clone(first)
	for range seconds {
		time.Sleep(time.Second)
		now := []float64{b.bytes(pair[0]), b.bytes(pair[1])}
		light, heavy := now[0]-before[0], now[1]-before[1]
		if light == 0 && heavy == 0 {
			b.Fatal("neither of the containers did any I/O in a second")
		}
		parts = append(parts, min(1, heavy/(light+heavy)/0.6))
		before = now
	}
	slices.Sort(parts)
	return before[0] - first[0], before[1] - first[1], parts
}

// bytes returns what is charged to a container on the disk.
func (b *slowBench) bytes(k held) float64 {
	b.Helper()
	dir := cgroup.Dir(k.Cgroup)
	return float64(b.counter(dir, "rbytes") + b.counter(dir, "wbytes"))
}

func (b *slowBench) shareFile(i int) string { return filepath.Join(b.dir, fmt.Sprint("share", i)) }

// own has a container write a file, so that the kernel charges it for later writeback of the file.
func (b *slowBench) own(t *testing.T, k held, file string) {
	t.Helper()
	administer(t, "rm", "-f", file)
	before := b.bytes(k)
	if _, err := b.disk().Victim(t.Context(), k.Cgroup, "--rw=write", "--bs=1M", "--fsync_on_close=1", "--filename="+file, shareSize); err != nil {
		t.Fatal(err)
	}
	if charged := b.bytes(k) - before; charged < 64*mib {
		t.Fatalf("%.0f bytes of the file are charged to its owner", charged)
	}
}

// awaitCharged waits until what is written is charged to the writer, and not to a former owner.
func (b *slowBench) awaitCharged(writer, owner held) {
	b.Helper()
	eventually(b.T, "the file is moved to its writer", func() error {
		w, o := b.bytes(writer), b.bytes(owner)
		time.Sleep(time.Second)
		if w, o = b.bytes(writer)-w, b.bytes(owner)-o; w < mib || o > w/10 {
			return fmt.Errorf("in a second %.0f bytes are charged to the writer, and %.0f to the owner", w, o)
		}
		return nil
	})
}
