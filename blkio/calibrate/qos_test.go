package calibrate

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio/diskmodel"
	"github.com/nri-blkio/nri-blkio/internal/fakenode"
)

// measuredRates returns a direction with rates of 4, 8, 16, 64 KiB and 1 MiB.
func measuredRates(median time.Duration, iops ...float64) *Direction {
	d := direction(iops[0], math.Inf(1), Latency{P50: median})
	d.Random = nil
	for i, size := range []int{4 * kib, 8 * kib, 16 * kib, 64 * kib, mib} {
		d.Random = append(d.Random, diskmodel.Point{Size: size, IOPS: iops[i]})
	}
	d.Sequential = d.Random
	return d
}

// TestModelsOfDisks has the results for three kinds of disks. The SSD does 70,000 operations a second of 4 KiB,
// 51,000 of 8 KiB and 29,000 of 16 KiB. The NVMe does 150,000 up to 16 KiB, the hard disk 100.
func TestModelsOfDisks(t *testing.T) {
	for name, tt := range map[string]struct {
		reads, writes *Direction
		model, qos    string
		warning       string // beside that about writes
	}{
		"an SSD": {
			measuredRates(200*us, 70_000, 51_000, 29_000, 7_250, 453), measuredRates(900*us, 35_000, 25_500, 14_500, 3_625, 227),
			"rbps=461944397 rseqiops=67900 rrandiops=67900 wbps=231485400 wseqiops=33950 wrandiops=33950",
			"rpct=50.00 rlat=1000 wpct=50.00 wlat=1125 min=99.00 max=100.00",
			"",
		},
		"an NVMe": {
			measuredRates(80*us, 150_000, 150_000, 150_000, 37_500, 2_344), measuredRates(20*us, 150_000, 150_000, 150_000, 37_500, 2_344),
			"rbps=2412512820 rseqiops=145500 rrandiops=145500 wbps=2412512820 wseqiops=145500 wrandiops=145500",
			"rpct=50.00 rlat=1000 wpct=50.00 wlat=1000 min=99.00 max=100.00",
			"charges up to 74 % more than the disk needs",
		},
		"a hard disk": {
			measuredRates(12*time.Millisecond, 100, 100, 100, 98, 85), nil,
			"rbps=611004731 rseqiops=96 rrandiops=96 wbps=611004731 wseqiops=96 wrandiops=96",
			"rpct=50.00 rlat=50000 wpct=0.00 wlat=0 min=99.00 max=100.00",
			"",
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := Measurement{Reads: *tt.reads, Writes: tt.writes, Mixed: 1}
			c, err := New(Identity{Serial: "S"}, at, &m)
			if err != nil {
				t.Fatal(err)
			}
			if c.Model.String() != tt.model || c.QOS.String() != tt.qos {
				t.Errorf("got  %s, %s\nwant %s, %s", c.Model, c.QOS, tt.model, tt.qos)
			}
			var texts []string
			for _, w := range c.Warnings {
				if !strings.HasPrefix(w.Text, "writes were not measured") {
					texts = append(texts, w.Text)
				}
			}
			if got := strings.Join(texts, "\n"); !strings.Contains(got, tt.warning) || (got == "") != (tt.warning == "") || !c.IsPlausible() {
				t.Errorf("warnings %q, want %q", got, tt.warning)
			}
			costs, _ := fakenode.RandomOf(c.Model)
			for _, p := range tt.reads.Random {
				if got := costs.IOPS(p.Size); got > p.IOPS {
					t.Errorf("the model gives out %g of %g operations/s of %d bytes", got, p.IOPS, p.Size)
				}
			}
			if period := c.QOS.Period(); period < diskmodel.Period(c.Model)*9/10 {
				t.Errorf("a period of %v, at least %v are needed", period, diskmodel.Period(c.Model))
			}
		})
	}
}
