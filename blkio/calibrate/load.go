package calibrate

import (
	"bytes"
	"context"
	cryptorand "crypto/rand"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/prometheus/procfs"
)

// transfer reads or writes a block at an offset: ReadAt of a disk, or WriteAt of a file.
type transfer func(block []byte, offset int64) (int, error)

// area is the part of a disk or file that is read or written.
type area struct {
	transfer transfer
	size     int64
	cpuTime  func() time.Duration // see Source.CPUTime
}

// load is I/O of one kind.
type load struct {
	isRandom bool
	size     int     // of a block
	depth    int     // operations at the same time
	pace     float64 // operations per second; 0 for as many as possible
}

const (
	// warmUp is not part of the figures: a disk that is throttled by a token bucket has tokens
	// left at first.
	warmUp = 200 * time.Millisecond
	// A load ends after shortest if it has enough operations, and after longest in any case.
	shortest = 900 * time.Millisecond
	longest  = 1200 * time.Millisecond
	enough   = 64
	// patience is how long the end of a load waits for operations on the way.
	patience = 500 * time.Millisecond
)

// operation is one that has completed.
type operation struct {
	at      time.Duration // of its completion, since the start of the load
	latency time.Duration
	isZero  bool // all bytes read were 0
}

// outcome has the results of a load since the end of the warm-up.
type outcome struct {
	operations []operation // in the order of their completion
	isCPUBound bool        // the processors were the bottleneck, not the disk
}

// running is a load in progress.
type running struct {
	load
	on      area
	start   time.Time
	next    atomic.Int64 // the number of the next operation
	done    atomic.Int64 // operations completed after the warm-up
	first   int64        // the block that a sequential load begins with
	isEnded atomic.Bool

	mu         sync.Mutex
	operations []operation // guarded by mu
}

// run applies the load to an area. It returns soon after ctx ends.
func (l load) run(ctx context.Context, on area) (outcome, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r := &running{load: l, on: on, start: time.Now(), first: rand.Int64N(on.blocks(l.size))}
	processors := on.cpuTime()
	var workers sync.WaitGroup
	for range l.depth {
		workers.Go(func() {
			if err := r.work(ctx); err != nil {
				cancel(err)
			}
		})
	}
	ended := make(chan struct{})
	go func() {
		workers.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
		select {
		case <-ended:
		case <-time.After(patience):
		}
	}
	if ctx.Err() != nil {
		return outcome{}, context.Cause(ctx)
	}
	out := r.outcome()
	busy := (on.cpuTime() - processors).Seconds()
	out.isCPUBound = busy > cpuBound*float64(l.depth)*time.Since(r.start).Seconds()
	return out, nil
}

// cpuBound is the part of the time of all workers from which on they have used processors, or have
// waited for one, rather than for the disk.
const cpuBound = 0.5

func (a area) blocks(size int) int64 { return max(1, a.size/int64(size)) }

// work submits one operation after another until the load ends.
func (r *running) work(ctx context.Context) error {
	block := newBlock(r.size)
	var mine []operation
	for ctx.Err() == nil && !r.ends() {
		n := r.next.Add(1)
		if err := r.wait(ctx, n); err != nil {
			return nil //nolint:nilerr // the load was cancelled, and run returns why
		}
		binary.LittleEndian.PutUint64(block, uint64(n)) // no two blocks written are equal
		before := time.Now()
		if _, err := r.on.transfer(block, r.offset(n)); err != nil {
			return err
		}
		after := time.Now()
		if at := after.Sub(r.start); at >= warmUp {
			r.done.Add(1)
			mine = append(mine, operation{at: at, latency: after.Sub(before), isZero: isZero(block)})
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.operations = append(r.operations, mine...)
	return nil
}

func (r *running) ends() bool {
	if r.isEnded.Load() {
		return true
	}
	at := time.Since(r.start)
	if at < shortest || at < longest && r.done.Load() < enough {
		return false
	}
	r.isEnded.Store(true)
	return true
}

// wait waits until it is the turn of an operation, if the load has a pace.
func (r *running) wait(ctx context.Context, n int64) error {
	if r.pace == 0 {
		return nil
	}
	turn := r.start.Add(time.Duration(float64(n) / r.pace * float64(time.Second)))
	select {
	case <-time.After(time.Until(turn)):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *running) offset(n int64) int64 {
	blocks := r.on.blocks(r.size)
	if r.isRandom {
		return rand.Int64N(blocks) * int64(r.size)
	}
	return (r.first + n) % blocks * int64(r.size)
}

// outcome sorts the operations of the workers. The last operations are left out: they ended while no new ones
// were submitted.
func (r *running) outcome() outcome {
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.SortFunc(r.operations, func(a, b operation) int { return int(a.at - b.at) })
	keep := len(r.operations) - r.depth
	if keep < 2 {
		keep = len(r.operations)
	}
	return outcome{operations: r.operations[:keep]}
}

// rate returns the operations per second: the slope of the line that fits the number of
// operations over time best. So neither the first nor the last operation counts more than others
// if there are few.
func rate(operations []operation) float64 {
	n := float64(len(operations))
	var meanAt float64
	for _, o := range operations {
		meanAt += o.at.Seconds() / n
	}
	var both, square float64
	for i, o := range operations {
		t := o.at.Seconds() - meanAt
		both += t * (float64(i) - (n-1)/2)
		square += t * t
	}
	if square == 0 {
		return 0
	}
	return both / square
}

// rate returns the operations per second. It returns an error if the disk is too slow to have any.
func (o outcome) rate() (float64, error) {
	if r := rate(o.operations); r > 0 {
		return r, nil
	}
	return 0, fmt.Errorf("only %d operations ended within %v", len(o.operations), longest)
}

// lowest returns the lowest rate of the halves of the load, as a part of its rate.
func (o outcome) lowest() float64 {
	half := len(o.operations) / 2
	all := rate(o.operations)
	if half < enough/2 || all == 0 {
		return 1 // too few to compare
	}
	return min(1, rate(o.operations[:half])/all, rate(o.operations[half:])/all)
}

// latency returns a percentile of the latencies, 0 without operations.
func (o outcome) latency(percent float64) time.Duration {
	if len(o.operations) == 0 {
		return 0
	}
	all := make([]time.Duration, len(o.operations))
	for i := range o.operations {
		all[i] = o.operations[i].latency
	}
	slices.Sort(all)
	return all[min(len(all)-1, int(float64(len(all))*percent/100))]
}

// alignment is the alignment of memory for direct I/O: at least a logical block of the disk.
const alignment = 4096

// newBlock returns memory for direct I/O with random content, which a disk can neither compress
// nor deduplicate.
func newBlock(size int) []byte {
	memory := make([]byte, size+alignment)
	// The garbage collector does not move it.
	skip := alignment - int(uintptr(unsafe.Pointer(unsafe.SliceData(memory)))%alignment)
	block := memory[skip : skip+size : skip+size]
	_, _ = cryptorand.Read(block) // it never fails
	return block
}

// isZero reports whether the start of a block has zeros only, as where nothing was ever written.
func isZero(block []byte) bool {
	var none [alignment]byte
	n := min(len(block), len(none))
	return bytes.Equal(block[:n], none[:n])
}

// processorTime returns how long the threads of this process have used processors, and have waited
// for one. It is 0 if the kernel does not count that.
func processorTime() (sum time.Duration) {
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return 0
	}
	threads, _ := proc.AllThreads(os.Getpid())
	for _, t := range threads {
		if s, err := t.Schedstat(); err == nil { // otherwise the thread has ended
			sum += time.Duration(s.RunningNanoseconds + s.WaitingNanoseconds)
		}
	}
	return sum
}
