package lab

import (
	"context"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/test/e2e/cgroup"
)

// MiB is 1,048,576 bytes.
const MiB = 1 << 20

const (
	// MemoryLimit bounds the dirty pages of a buffered writer, so that its
	// writes soon go at the pace of the disk.
	MemoryLimit = 96 * MiB
	// Settle is left out of a measurement: the cache fills, queues fill.
	Settle = 2 * time.Second
	// Measure is how long a rate is measured after that.
	Measure = 5 * time.Second
)

// IOReport is the line that iotool prints.
type IOReport struct {
	Bytes, Calls, Nanos, FirstNanos int64
}

// Rate returns bytes per second.
func (r IOReport) Rate() float64 { return float64(r.Bytes) / time.Duration(r.Nanos).Seconds() }

// LittleDirty has the node allow few dirty pages for the time of the test.
func LittleDirty(t *testing.T) {
	t.Helper()
	setVM(t, "dirty_bytes", 64*MiB)
	setVM(t, "dirty_background_bytes", 32*MiB)
}

// setVM sets a limit on dirty pages for the time of the test.
func setVM(t *testing.T, name string, bytes int) {
	t.Helper()
	file, ratio := "/proc/sys/vm/"+name, "/proc/sys/vm/"+strings.Replace(name, "bytes", "ratio", 1)
	old, err := os.ReadFile(ratio)
	if err != nil {
		t.Fatal(err)
	}
	WriteFile(t, file, strconv.Itoa(bytes))
	t.Cleanup(func() { WriteFile(t, ratio, string(old)) })
}

// WantRate measures a counter against a limit that is in full use, and returns the used part of the limit. No
// measurement may exceed it. A measurement far below it is repeated, because an emulated node under load does
// less than the limit allows.
func WantRate(t *testing.T, dir, disk, counter string, limit int64) float64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*Deadline)
	defer cancel()
	for range 10 {
		m, err := cgroup.Dir(dir).Measure(ctx, Node.Disks[disk], counter, Settle, Measure)
		if err != nil {
			t.Errorf("%s of %s: %v", counter, disk, err)
			return 0
		}
		t.Logf("%s of %s: %v, %.1f %% of the limit of %d/s", counter, disk, m, 100*m.Over(limit), limit)
		switch over := m.Over(limit); {
		case over > 1.1:
			t.Errorf("%s of %s: %v is more than 10 %% over %d/s", counter, disk, m, limit)
			return over
		case over >= 0.9:
			return over
		}
	}
	t.Errorf("%s of %s: no measurement was within 10 %% of %d/s", counter, disk, limit)
	return 0
}
