package calibrate

import (
	"io"
	"sync"
	"time"
)

// simDisk is a disk that serves one operation after the other. It takes no real time within a
// bubble of synctest.
type simDisk struct {
	iops, bps float64       // two bounds, of which the lower one counts; 0 for none
	latency   time.Duration // of an operation, during which others are served
	seek      time.Duration // for an operation that does not follow the one before
	burst     float64       // operations that are served ten times as fast at first
	fail      func(operations int) error
	zeros     bool

	mu         sync.Mutex // guards the fields below
	free       time.Time  // when the operations submitted so far will have been served
	end        int64      // the offset after the last one
	operations int
	inFlight   int64
	mostBytes  int64
}

var _ interface {
	io.ReaderAt
	io.WriterAt
} = (*simDisk)(nil)

func (d *simDisk) ReadAt(p []byte, off int64) (int, error) {
	if d.zeros {
		clear(p)
	} else {
		p[0] = 1
	}
	return d.WriteAt(p, off)
}

func (d *simDisk) WriteAt(p []byte, off int64) (int, error) {
	done, err := d.submit(int64(len(p)), off)
	if err != nil {
		return 0, err
	}
	time.Sleep(time.Until(done))
	d.mu.Lock()
	defer d.mu.Unlock()
	d.inFlight -= int64(len(p))
	return len(p), nil
}

// submit returns when the operation will have completed.
func (d *simDisk) submit(n, off int64) (time.Time, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.operations++
	if d.fail != nil {
		if err := d.fail(d.operations); err != nil {
			return time.Time{}, err
		}
	}
	d.inFlight += n
	d.mostBytes = max(d.mostBytes, d.inFlight)
	cost := 0.0
	if d.iops > 0 {
		cost = 1 / d.iops
	}
	if d.bps > 0 {
		cost = max(cost, float64(n)/d.bps)
	}
	if float64(d.operations) < d.burst {
		cost /= 10
	}
	if off != d.end {
		cost += d.seek.Seconds()
	}
	d.end = off + n
	if now := time.Now(); d.free.Before(now) {
		d.free = now
	}
	d.free = d.free.Add(time.Duration(cost * float64(time.Second)))
	return d.free.Add(d.latency), nil
}
