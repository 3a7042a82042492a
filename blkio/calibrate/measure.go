package calibrate

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio/diskmodel"
)

// Source is the disk to measure. The disk itself is only read.
type Source struct {
	Disk io.ReaderAt
	Size int64 // of the disk
	// File is a file on the disk for writes. All of it was written before. It is nil if writes are not
	// measured.
	File     io.WriterAt
	FileSize int64
	// CPUTime returns how long the threads of this process have used processors, and have waited
	// for one.
	CPUTime func() time.Duration
}

func (s *Source) area(t transfer, size int64) area { return area{t, size, s.CPUTime} }

// Latency has percentiles of latencies.
type Latency struct {
	P50 time.Duration `json:"p50Ns"`
	P75 time.Duration `json:"p75Ns"`
	P95 time.Duration `json:"p95Ns"`
	P99 time.Duration `json:"p99Ns"`
}

// Depth is the rate of random operations of 4 KiB at a queue depth.
type Depth struct {
	Depth   int     `json:"depth"`
	IOPS    float64 `json:"iops"`
	Latency Latency `json:"latency"`
}

// Direction has the measurements of reads or of writes.
type Direction struct {
	diskmodel.Measured
	Depths []Depth `json:"depths"`
	// Relaxed has the latencies at 90 % of the rate of random operations of 4 KiB, before the
	// disk's queue grows.
	Relaxed Latency `json:"relaxed"`
	// Last is the rate of random operations of 4 KiB at the end, relative to that at the start.
	Last float64 `json:"last"`
	// Lowest is the lower rate of the halves of a load, relative to that of the whole load: the
	// median of all loads.
	Lowest float64 `json:"lowest"`
	// Zeros is the part of the random operations of 4 KiB that have read zeros only.
	Zeros float64 `json:"zeros,omitempty"`
	// CPUBound is true if the processors were the bottleneck of a load.
	CPUBound bool `json:"cpuBound,omitempty"`
}

// Progress is called before each step with the part of all steps that is done.
type Progress func(done float64, step string)

// sizes are the block sizes that are measured.
var sizes = [...]int{4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 256 << 10, 1 << 20} // constant

// depths are queue depths. They are tried in this order, until the rate rises no more.
var depths = [...]int{1, 4, 16, 64, 128} // constant

const (
	smallest = 4 << 10 // sizes[0], io.cost's unit
	// faster is how much faster a queue depth has to be than the one before.
	faster = 1.05
	// minDepth keeps a disk busy while this process submits the next operation.
	minDepth = 4
	// maxQueue is the part of a second's throughput that is under way at the same time. It is small, so that a
	// slow disk completes it soon after a load has ended.
	maxQueue = 0.25
	// maxMemory bounds the memory of the operations on the way.
	maxMemory = 32 << 20
	// relaxed is the part of the rate at which latencies are measured. The kernel's own tool,
	// tools/cgroup/iocost_coef_gen.py, has the same.
	relaxed = 0.9
	// A load with a half that is slower than steady is applied once more, because another program may have
	// delayed it. retries is the largest number of repetitions.
	steady  = 0.9
	retries = 4
	// A load that seems bound by the processors is applied again with so many times the depth.
	deeper = 4
	// A rate that is lower than that of larger blocks by more than noise was delayed as well.
	noise = 0.15
)

// Measurement has the measurements of a disk.
type Measurement struct {
	Reads  Direction  `json:"reads"`
	Writes *Direction `json:"writes,omitempty"` // nil if writes were not measured
	// Mixed is the sum of the rates of random reads and writes of 4 KiB at the same time, each relative to its
	// rate alone. It is 1 if they share the disk, and 2 if they do not affect one another. It is 0 if writes
	// were not measured.
	Mixed float64 `json:"mixed,omitempty"`
}

// Measure measures reads of a disk, and writes of a file on it. It ends soon after ctx.
func Measure(ctx context.Context, s Source, progress Progress) (*Measurement, error) {
	var out Measurement
	var err error
	m := measuring{area: s.area(s.Disk.ReadAt, s.Size), name: "read", total: stepsOf, progress: progress}
	if s.File != nil {
		m.total = 2*stepsOf + 1
	}
	if out.Reads, err = m.direction(ctx); err != nil || s.File == nil {
		return &out, err
	}
	ofReads := m.depth
	m.area, m.name = s.area(s.File.WriteAt, s.FileSize), "write"
	writes, err := m.direction(ctx)
	if err != nil {
		return &out, err
	}
	m.area, m.name = s.area(s.mix(), s.FileSize), "read and write"
	m.depth = 2 * max(ofReads, m.depth, minDepth) // each direction has half of it
	both, err := m.point(ctx, load{isRandom: true, size: smallest}, "random")
	out.Writes = &writes
	out.Mixed = both.IOPS/2/out.Reads.Random[0].IOPS + both.IOPS/2/writes.Random[0].IOPS
	return &out, err
}

func (s Source) mix() transfer {
	var n atomic.Uint64
	spread := max(1, s.Size/max(1, s.FileSize))
	return func(block []byte, offset int64) (int, error) {
		if n.Add(1)%2 == 0 {
			return s.File.WriteAt(block, offset)
		}
		return s.Disk.ReadAt(block, offset*spread)
	}
}

// measuring measures one direction after the other.
type measuring struct {
	area
	name        string // of the direction
	done, total int    // steps
	progress    Progress
	current     Direction
	depth       int       // with which the disk is saturated
	retries     int       // left
	lowest      []float64 // of each load
	bps         float64   // the largest throughput so far
}

// stepsOf is the number of steps of one direction.
const stepsOf = len(depths) + 2*len(sizes) + 2

func (m *measuring) direction(ctx context.Context) (Direction, error) {
	m.current, m.bps, m.retries, m.lowest = Direction{}, 0, retries, nil
	begin, err := m.depthsOf(ctx)
	if err != nil {
		return Direction{}, err
	}
	for _, size := range sizes {
		for _, pattern := range []struct {
			name     string
			isRandom bool
			points   *[]diskmodel.Point
		}{
			{"sequential", false, &m.current.Sequential},
			{"random", true, &m.current.Random},
		} {
			point, err := m.point(ctx, load{isRandom: pattern.isRandom, size: size}, pattern.name)
			if err != nil {
				return Direction{}, err
			}
			*pattern.points = append(*pattern.points, point)
		}
	}
	undelay(m.current.Sequential)
	undelay(m.current.Random)
	last, err := m.point(ctx, load{isRandom: true, size: smallest}, "repeated random")
	if err != nil {
		return Direction{}, err
	}
	m.current.Last = last.IOPS / begin
	slices.Sort(m.lowest)
	m.current.Lowest = m.lowest[len(m.lowest)/2]
	first := &m.current.Random[0]
	if first.IOPS = (first.IOPS + last.IOPS) / 2; m.current.Last < fallen {
		first.IOPS = last.IOPS // the one that lasts
	}
	slow, err := m.apply(ctx, load{isRandom: true, size: smallest, depth: max(m.depth, minDepth), pace: relaxed * first.IOPS}, "latencies of")
	m.current.Relaxed = slow.latencies()
	return m.current, err
}

// undelay corrects rates that cannot be the disk's. With a larger size, the operations per second do not grow,
// because a disk can read a part of a block as often as the whole. The bytes per second do not fall.
func undelay(points []diskmodel.Point) {
	for i := len(points) - 2; i >= 0; i-- {
		if larger := points[i+1].IOPS; points[i].IOPS < larger*(1-noise) {
			points[i].IOPS = larger
		}
	}
	for i := 1; i < len(points); i++ {
		smaller := points[i-1].IOPS * float64(points[i-1].Size) / float64(points[i].Size)
		if points[i].IOPS < smaller*(1-noise) {
			points[i].IOPS = smaller
		}
	}
}

// depthsOf tries queue depths, and returns the rate of the one that saturates the disk.
func (m *measuring) depthsOf(ctx context.Context) (saturated float64, err error) {
	before := m.done
	for _, depth := range depths {
		out, err := m.apply(ctx, load{isRandom: true, size: smallest, depth: depth}, "random")
		if err != nil {
			return 0, err
		}
		iops, err := out.rate()
		if err != nil {
			return 0, fmt.Errorf("%s at queue depth %d: %w", m.name, depth, err)
		}
		m.current.Depths = append(m.current.Depths, Depth{depth, iops, out.latencies()})
		if saturated > 0 && iops < faster*saturated {
			break
		}
		m.depth, saturated = depth, iops
	}
	m.done = before + len(depths)
	m.bps = saturated * smallest
	return saturated, nil
}

func (m *measuring) point(ctx context.Context, l load, name string) (diskmodel.Point, error) {
	queue := int(min(maxQueue*m.bps, maxMemory) / float64(l.size))
	l.depth = max(2, min(queue, max(m.depth, minDepth)))
	out, err := m.apply(ctx, l, name)
	if err == nil && out.lowest() < steady && m.retries > 0 {
		m.retries--
		var again outcome
		if again, err = l.run(ctx, m.area); err == nil && again.lowest() > out.lowest() {
			out = again
		}
	}
	if err == nil && out.isCPUBound && !m.current.CPUBound { // or the depth is too small: more operations wait at the bottleneck
		m.depth = deeper * l.depth
		l.depth = max(l.depth, min(queue, m.depth))
		out, err = l.run(ctx, m.area)
	}
	if err != nil {
		return diskmodel.Point{}, err
	}
	iops, err := out.rate()
	if err != nil {
		return diskmodel.Point{}, fmt.Errorf("%s blocks of %d bytes: %w", m.name, l.size, err)
	}
	m.bps = max(m.bps, iops*float64(l.size))
	m.lowest = append(m.lowest, out.lowest())
	m.current.CPUBound = m.current.CPUBound || out.isCPUBound
	return diskmodel.Point{Size: l.size, IOPS: iops}, nil
}

func (m *measuring) apply(ctx context.Context, l load, name string) (outcome, error) {
	m.progress(float64(m.done)/float64(m.total), fmt.Sprintf("%s %ss, %d KiB, queue depth %d", name, m.name, l.size>>10, l.depth))
	m.done++
	out, err := l.run(ctx, m.area)
	if err != nil {
		return outcome{}, err
	}
	if l.isRandom && l.size == smallest {
		m.current.Zeros = out.zeros()
	}
	return out, nil
}

func (o outcome) latencies() Latency {
	return Latency{P50: o.latency(50), P75: o.latency(75), P95: o.latency(95), P99: o.latency(99)}
}

// zeros returns the part of the operations that have read zeros only.
func (o outcome) zeros() float64 {
	n := 0
	for i := range o.operations {
		if o.operations[i].isZero {
			n++
		}
	}
	return float64(n) / float64(max(1, len(o.operations)))
}
