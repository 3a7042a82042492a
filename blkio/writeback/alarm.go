package writeback

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
)

// alarm reports that a cgroup made a page of another cgroup's file dirty. It does so for a
// few cgroups each time that it is set, and once for each of them. A writer that syncs
// small writes has dirty pages only for a short time, so the observer's counts come too
// late for it.
type alarm struct {
	set    *ebpf.Map // the number of reports that are left
	rung   *ebpf.Map // the cgroups that were reported
	reader ringReader
	rang   chan Dirtied
	broken atomic.Pointer[error] // why the reader ended
}

// ringReader reads a ring buffer, see ringbuf.Reader.
type ringReader interface {
	ReadInto(r *ringbuf.Record) error
	Close() error
}

// maxRings is the number of reports after an alarm was set, each about another cgroup.
const maxRings = 4

func newAlarm(bpf *ebpf.Collection) (*alarm, error) {
	reader, err := ringbuf.NewReader(bpf.Maps["blkio_rings"])
	if err != nil {
		return nil, err
	}
	a := &alarm{set: bpf.Maps["blkio_alarm"], rung: bpf.Maps["blkio_rung"], reader: reader, rang: make(chan Dirtied, maxRings)}
	go a.listen()
	return a, nil
}

// listen ends with the reader.
func (a *alarm) listen() {
	var r ringbuf.Record
	var s slot
	for {
		if err := a.reader.ReadInto(&r); err != nil {
			a.broken.Store(&err)
			return
		}
		if _, err := binary.Decode(r.RawSample, binary.NativeEndian, &s); err != nil {
			continue // too short
		}
		select {
		case a.rang <- decode(&s.Key, &s.Value):
		default: // the receiver is late, and has the one before
		}
	}
}

// Foreign returns the channel of alarms. After each call of [Observer.SetAlarm] it receives
// a value when a cgroup makes a page dirty of a watched file that another cgroup owns. It
// receives one for each of the first four cgroups. Metadata of btrfs is left out. The field
// Bytes is 0, since Read counts the page. A value may be about a write before the call.
func (o *Observer) Foreign() <-chan Dirtied { return o.alarm.rang }

// SetAlarm allows each cgroup one more alarm. Call it before [Observer.Read]: a cgroup that
// continues to write to the same file causes no alarm until the next Read.
func (o *Observer) SetAlarm() error {
	err := o.alarm.again()
	if broken := o.alarm.broken.Load(); broken != nil {
		err = *broken
	}
	if err != nil {
		return fmt.Errorf("read alarms of written files: %w", err)
	}
	return nil
}

func (a *alarm) again() error {
	var left uint64
	if err := a.set.Lookup(uint32(0), &left); err != nil || left == maxRings {
		return err // it has not rung
	}
	rung, values := make([]uint64, maxRings), make([]uint64, maxRings)
	var cursor ebpf.MapBatchCursor
	_, err := a.rung.BatchLookupAndDelete(&cursor, rung, values, nil)
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return err
	}
	return a.set.Put(uint32(0), uint64(maxRings))
}

// RootCgroup is the cgroup ID of the root of cgroupfs. Kernel threads are in that cgroup.
const RootCgroup = 1
