package noise

import (
	"errors"
	"fmt"
	"time"

	"github.com/nri-blkio/nri-blkio/test/e2e/cgroup"
)

// Beside has the I/O of a neighbour on the shared disk beside a victim.
type Beside struct {
	Rates
	// Part is how much the neighbour used of what the victim left of the disk; 1 is all of it.
	Part float64
}

// sampleEvery is how often Beside counts.
const sampleEvery = 250 * time.Millisecond

// sample has counters at one moment.
type sample struct {
	at          time.Time
	victim      int64 // bytes that it has read and written
	wrote, read int64 // bytes of the neighbour
	operations  int64 // of the neighbour
}

// Beside returns what a neighbour did on the shared disk while a function ran in which a victim does
// operations of 4 KiB. It counts while the victim does I/O only: until fio has started, the
// neighbour has the disk for itself. Without a victim ("") it counts all the time.
func (d Disk) Beside(victim, neighbour string, run func() error) (Beside, error) {
	ended := make(chan error, 1)
	go func() { ended <- run() }()
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	var samples []sample
	for {
		s, err := d.sample(victim, neighbour)
		if err != nil {
			return Beside{}, errors.Join(err, <-ended)
		}
		samples = append(samples, s)
		select {
		case err := <-ended:
			if err != nil {
				return Beside{}, err
			}
			if victim != "" {
				samples = whileActive(samples)
			}
			return beside(samples)
		case <-tick.C:
		}
	}
}

// sample reads the counters.
func (d Disk) sample(victim, neighbour string) (sample, error) {
	s := sample{at: time.Now()}
	var errs []error
	add := func(to *int64, dir, counter string) {
		n, err := cgroup.Dir(dir).Counter(d.Number, counter)
		*to += n
		errs = append(errs, err)
	}
	if victim != "" {
		add(&s.victim, victim, "rbytes")
		add(&s.victim, victim, "wbytes")
	}
	add(&s.wrote, neighbour, "wbytes")
	add(&s.read, neighbour, "rbytes")
	add(&s.operations, neighbour, "wios")
	add(&s.operations, neighbour, "rios")
	return s, errors.Join(errs...)
}

// whileActive returns the samples between the victim's first I/O and its last one.
func whileActive(samples []sample) []sample {
	first, last := len(samples), -1
	for i := 1; i < len(samples); i++ {
		if samples[i].victim != samples[i-1].victim {
			first, last = min(first, i), i-1 // it may have ended before sample i
		}
	}
	if first > last {
		return nil
	}
	return samples[first : last+1]
}

// beside returns what the neighbour did between the first and the last sample.
func beside(samples []sample) (Beside, error) {
	if len(samples) < 2 {
		return Beside{}, fmt.Errorf("count what the neighbour does: the victim did no I/O for %v", 2*sampleEvery)
	}
	first, last := &samples[0], &samples[len(samples)-1]
	seconds := last.at.Sub(first.at).Seconds()
	per := func(from, to int64) float64 { return float64(to-from) / seconds }
	victim := per(first.victim, last.victim)
	wrote, read := per(first.wrote, last.wrote), per(first.read, last.read)
	return Beside{
		Rates: Rates{Wrote: wrote / MiB, Read: read / MiB},
		Part: max(
			partOf(per(first.operations, last.operations), SharedOperations, victim/victimBlock),
			partOf(wrote+read, SharedBytes, victim),
		),
	}, nil
}

// partOf returns what part a rate is of what another one leaves of a limit. At least 1 % of
// the limit counts as left: for a moment the disk does a little more than its limits say.
func partOf(rate, limit, taken float64) float64 { return rate / max(limit-taken, limit/100) }
