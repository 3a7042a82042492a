package writeback

import (
	"encoding/binary"
	"errors"
	"io"
	"testing"
	"testing/synctest"

	"github.com/cilium/ebpf/ringbuf"
	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// ring is a ring buffer with records that a test puts into it.
type ring struct{ records chan []byte }

func (r *ring) ReadInto(to *ringbuf.Record) error {
	record, ok := <-r.records
	if !ok {
		return ringbuf.ErrClosed
	}
	to.RawSample = append(to.RawSample[:0], record...)
	return nil
}

func (r *ring) Close() error {
	close(r.records)
	return nil
}

// record is a slot as the program writes it.
func record(t *testing.T, s *slot) []byte {
	t.Helper()
	data, err := binary.Append(nil, binary.NativeEndian, s)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestAlarmListens verifies that an event that the program writes to the ring is received. An event that is cut
// off is not. An event that comes while enough others wait to be received is dropped.
func TestAlarmListens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &ring{make(chan []byte)}
		a := &alarm{reader: r, rang: make(chan Dirtied, maxRings)}
		go a.listen()
		s := slot{
			Key: countKey{Inode: 1, Number: 2, Writer: 3, Memcg: 4},
			Value: count{
				Charged: 5, Owner: 6, Root: 7, Dev: kernelDev(blkio.Dev{Major: 8, Minor: 16}), Generation: 9, First: 1, Last: 1,
			},
		}
		want := decode(&s.Key, &s.Value)
		full := record(t, &s)
		r.records <- full[:len(full)-1]
		r.records <- nil
		for range 2 * maxRings {
			r.records <- full
		}
		synctest.Wait()
		if len(a.rang) != maxRings {
			t.Errorf("%d of %d wait", len(a.rang), maxRings)
		}
		for range maxRings {
			if diff := cmp.Diff(want, <-a.rang); diff != "" {
				t.Errorf("(-want, +got):\n%s", diff)
			}
		}
		r.records <- full // it goes on
		if diff := cmp.Diff(want, <-a.rang); diff != "" {
			t.Errorf("(-want, +got):\n%s", diff)
		}
		if a.broken.Load() != nil {
			t.Errorf("broken: %v", a.broken.Load())
		}
		if err := a.reader.Close(); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if err := a.broken.Load(); err == nil || !errors.Is(*err, ringbuf.ErrClosed) {
			t.Errorf("closed: %v", err)
		}
	})
}

// brokenRing is one that cannot be read.
type brokenRing struct{ ring }

func (brokenRing) ReadInto(*ringbuf.Record) error { return io.ErrUnexpectedEOF }

// TestAlarmBreaks verifies that an observer whose ring buffer cannot be read any more reports it when the alarm
// is set.
func TestAlarmBreaks(t *testing.T) {
	a := &alarm{reader: &brokenRing{}, set: nil}
	a.listen()
	if err := a.broken.Load(); err == nil || !errors.Is(*err, io.ErrUnexpectedEOF) {
		t.Errorf("got %v", err)
	}
}

// TestCounting verifies that a CPU is asked for its count if it has one, or has begun with it.
func TestCounting(t *testing.T) {
	for _, tt := range []struct {
		slot slot
		want bool
	}{
		{slot{}, false},
		{slot{Key: countKey{Inode: 1}}, true},
		{slot{Value: count{Pages: 1}}, true},
		{slot{Key: countKey{Number: 1, Writer: 1}, Value: count{Last: 1}}, false}, // flushed
	} {
		if got := counting(&tt.slot); got != tt.want {
			t.Errorf("%+v: %v", tt.slot, got)
		}
	}
}
