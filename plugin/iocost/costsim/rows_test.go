package costsim

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/diskmodel"
)

const (
	kib, mib = 1 << 10, 1 << 20
	diskOps  = 1500.
	diskBps  = 60. * mib
)

// fixedModel is the model of docs/reference/weights-figures.md: a part of both limits.
func fixedModel(part float64) blkio.CostModel { return symmetric(part*diskOps, part*diskBps) }

func symmetric(ops, bps float64) blkio.CostModel {
	o, b := uint64(ops), uint64(bps)
	return blkio.CostModel{Rbps: b, RSeqIOPS: o, RRandIOPS: o, Wbps: b, WSeqIOPS: o, WRandIOPS: o}
}

// fixedQOS is the one of the plugin for this disk.
func fixedQOS() blkio.CostQOS { return qosOf(diskmodel.Period(fixedModel(.97))) }

// qosOf returns a QOS with a period.
func qosOf(period time.Duration) blkio.CostQOS {
	return blkio.CostQOS{RPct: 5000, RLat: period / 10, WPct: 5000, WLat: period / 10, Min: 10000, Max: 10000}
}

// naivePrices is the controller of prices.py.
type naivePrices struct {
	s             *sim
	last          counters
	price, safe   float64
	ops, bytes    float64
	setTo, safeTo float64
}

func (p *naivePrices) model() blkio.CostModel {
	bps := min(p.safe*diskBps/max(1-p.price, 1e-4), 1e13)
	return symmetric(p.safe/(p.price/diskOps+(1-p.price)*4096/diskBps), bps)
}

func (p *naivePrices) step() {
	d := p.s.disk.total.minus(p.last)
	p.last = p.s.disk.total
	ops, bytes := d.Ops*2/diskOps, d.Bytes*2/diskBps
	p.ops, p.bytes = (p.ops+ops)/2, (p.bytes+bytes)/2
	if max(ops, bytes) > .6 {
		p.price = min(1, max(0, p.price+.25*(p.ops-p.bytes)))
	}
	if max(ops, bytes) > p.safe+.015 {
		p.safe = max(.85, p.safe-.06)
	} else {
		p.safe = min(.97, p.safe+.02)
	}
	if math.Abs(p.price-p.setTo) > .03 || math.Abs(p.safe-p.safeTo) > .015 {
		p.setTo, p.safeTo = p.price, p.safe
		p.s.write(p.model())
	}
}

// calibrated sets the safe model.
func (s *sim) calibrated(m blkio.CostModel) {
	s.safe = m
	s.ioc.set(m)
}

// row is what a mix does in the last seconds of a simulation.
type row struct {
	ops, bytes float64   // parts of the disk's limits
	each       []float64 // operations of each workload in a second
	p99        []float64 // in ms
}

type mode string

const (
	off   mode = "no io.cost"
	fixed mode = "fixed"
	naive mode = "two prices"
)

// start sets io.cost up.
func start(m mode, seed uint64) *sim {
	s := newSim(seed)
	if m == off {
		return s
	}
	s.calibrated(fixedModel(.97))
	s.ioc.setQOS(fixedQOS())
	if m == naive {
		followPrices(s)
	}
	return s
}

// measure runs a warm-up and then the seconds that count.
func (s *sim) measure(warmup, seconds float64) row {
	s.run(warmup)
	before := s.disk.total
	each := make([]float64, len(s.workloads))
	for i, w := range s.workloads {
		each[i], w.latencies = w.done.Ops, nil
	}
	s.run(seconds)
	d := s.disk.total.minus(before)
	out := row{ops: d.Ops / seconds / diskOps, bytes: d.Bytes / seconds / diskBps}
	for i, w := range s.workloads {
		out.each = append(out.each, (w.done.Ops-each[i])/seconds)
		slices.Sort(w.latencies)
		p99 := math.NaN()
		if n := len(w.latencies); n > 0 {
			p99 = 1000 * w.latencies[n*99/100]
		}
		out.p99 = append(out.p99, p99)
	}
	return out
}

func reads(size, depth int) *workload { return &workload{Size: size, Depth: depth} }

func writers() *workload {
	return &workload{Size: mib, Depth: 5, Write: true, Sequential: true, DebtEvery: 16}
}

// TestMeasuredRows compares the simulation with the measured rows of docs/reference/weights-figures.md, and of one run each on a
// node with this disk, with the same model and period (Linux 6.12).
func TestMeasuredRows(t *testing.T) {
	near := func(what string, got, want, tolerance float64) {
		t.Helper()
		if math.Abs(got-want) > tolerance {
			t.Errorf("%s: %.3f, measured %.3f (tolerance %.3f)", what, got, want, tolerance)
		}
	}
	for _, tt := range []struct {
		name        string
		size, depth int
		part        float64 // of the disk
	}{{"4 KiB", 4 * kib, 16, .97}, {"32 KiB", 32 * kib, 16, .57}, {"1 MiB", mib, 4, .94}} {
		for _, m := range []mode{off, fixed} {
			want := map[mode]float64{off: 1, fixed: tt.part}[m]
			s := start(m, 1)
			s.add("a", 100, reads(tt.size, tt.depth))
			r := s.measure(6, 10)
			near(fmt.Sprintf("%s, one alone, %s", m, tt.name), partOf(r, tt.size), want, .015)
		}
	}
	for m, want := range map[mode][2]float64{off: {.18, 1}, fixed: {.50, .52}} {
		s := start(m, 1)
		s.add("a", 100, reads(4*kib, 16))
		s.add("b", 100, reads(mib, 4))
		r := s.measure(6, 11)
		near(string(m)+", 4 KiB beside 1 MiB, operations", r.ops, want[0], .02)
		near(string(m)+", 4 KiB beside 1 MiB, bytes", r.bytes, want[1], .02)
	}
	for _, size := range []int{4 * kib, 64 * kib} {
		for m, want := range map[mode]float64{off: .5, fixed: .4} {
			s := start(m, 1)
			s.add("a", 200, reads(size, 16))
			s.add("b", 300, reads(size, 16))
			r := s.measure(6, 11)
			near(fmt.Sprintf("%s, share of 200 beside 300, %d", m, size), r.each[0]/(r.each[0]+r.each[1]), want, .01)
		}
	}
	for m, want := range map[mode][2]float64{off: {55, 30}, fixed: {1441, 15}} {
		near(string(m)+", victim's reads", victim(m, 4).each[0], want[0], want[1])
	}
}

// partOf returns what one container does, of what the disk can do with its blocks.
func partOf(r row, size int) float64 {
	if float64(size)*diskOps > diskBps {
		return r.bytes
	}
	return r.ops
}

// victim measures reads beside buffered writers and readers with a hundredth of the weight.
func victim(m mode, depth int) row {
	s := start(m, 1)
	s.add("victim", 1000, reads(4*kib, depth))
	s.add("neighbour", 10, writers(), reads(4*kib, 32))
	return s.measure(6, 11)
}

// TestNaiveController verifies that the simulation shows what prices.py showed on a node: a mix uses more of the disk, and a
// victim loses what it is due.
func TestNaiveController(t *testing.T) {
	s := start(naive, 1)
	s.add("a", 100, reads(4*kib, 16))
	s.add("b", 100, reads(mib, 4))
	if r := s.measure(6, 11); r.ops+r.bytes < 1.4 {
		t.Errorf("4 KiB beside 1 MiB use %.2f + %.2f of the disk, measured 0.70 + 0.88", r.ops, r.bytes)
	}
	if r := victim(naive, 4); r.each[0] > 1200 {
		t.Errorf("the victim reads %.0f/s, measured 340 instead of 1441", r.each[0])
	}
}

// TestTooHighModel verifies that the disk's own queue decides by a model of more than the disk can do.
func TestTooHighModel(t *testing.T) {
	s := start(fixed, 1)
	s.ioc.set(fixedModel(1.02))
	s.add("a", 200, reads(4*kib, 16))
	s.add("b", 300, reads(4*kib, 16))
	r := s.measure(6, 11)
	if share := r.each[0] / (r.each[0] + r.each[1]); math.Abs(share-.5) > .02 {
		t.Errorf("200 beside 300 has %.3f, want half", share)
	}
}

// TestDepths verifies that a victim keeps its reads at each depth, beside one process that reads 1 MiB at depth 16. If the disk stands
// still for 2 % of the time, its queue fills in some runs, and stays full. With twice the period it does not.
func TestDepths(t *testing.T) {
	const seeds = 40
	kept := func(period time.Duration, depth int, stalled float64) (mean float64, failed int) {
		for seed := range uint64(seeds) {
			s := start(fixed, seed)
			s.ioc.setQOS(qosOf(period))
			if stalled > 0 {
				s.stalls(stalled, .25)
			}
			s.add("victim", 1000, reads(4*kib, depth))
			s.add("neighbour", 10, reads(mib, 16))
			part := s.measure(6, 30).each[0] / diskOps
			mean += part / seeds
			if part < .5 {
				failed++
			}
		}
		return mean, failed
	}
	period := diskmodel.Period(fixedModel(.97))
	for _, depth := range []int{1, 4, 16} {
		if mean, _ := kept(period, depth, 0); mean < .95 {
			t.Errorf("depth %d: the victim keeps %.2f of its reads, want 0.95", depth, mean)
		}
	}
	if mean, failed := kept(period, 1, .02); failed < seeds/8 {
		t.Errorf("stalls: the victim keeps %.2f of its reads, and less than half in %d of %d runs, want some", mean, failed, seeds)
	}
	if mean, failed := kept(2*period, 1, .02); mean < .9 || failed > 0 {
		t.Errorf("stalls and twice the period: the victim keeps %.2f of its reads, and less than half in %d of %d runs", mean, failed, seeds)
	}
}
