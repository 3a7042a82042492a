package writeback

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/ringbuf"
)

// alarm reports the first page of another cgroup's file that a cgroup makes dirty, a few
// times each time that it is set: a writer that syncs small writes has nothing dirty for
// long. A cgroup that does so all the time has it ring once.
//
// The zero value never rings.
type alarm struct {
	set    *ebpf.Map // how often it rings yet
	rung   *ebpf.Map // the cgroups that have had it ring
	rings  *ebpf.Map
	reader *ringbuf.Reader
	rang   chan Dirtied
	broken atomic.Pointer[error] // of the reader
}

// maxRings is how often an alarm rings, each time for another cgroup.
const maxRings = 4

// newAlarm makes what the program needs; nothing where a program must not use a ring
// buffer. The caller closes it, also after an error.
func newAlarm(l *layout) (a *alarm, err error) {
	if l.ringSleeps() {
		return &alarm{}, nil
	}
	a = &alarm{rang: make(chan Dirtied, maxRings)}
	if a.set, err = ebpf.NewMap(&ebpf.MapSpec{Name: "blkio_alarm", Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1}); err != nil {
		return a, err
	}
	if a.rung, err = ebpf.NewMap(&ebpf.MapSpec{Name: "blkio_rung", Type: ebpf.Hash, KeySize: 8, ValueSize: 8, MaxEntries: maxRings, Flags: noPrealloc}); err != nil {
		return a, err
	}
	// A ring is of whole pages; there are a few counts in it at a time.
	if a.rings, err = ebpf.NewMap(&ebpf.MapSpec{Name: "blkio_rings", Type: ebpf.RingBuf, MaxEntries: uint32(os.Getpagesize())}); err != nil {
		return a, err
	}
	if a.reader, err = ringbuf.NewReader(a.rings); err != nil {
		return a, err
	}
	go a.listen()
	return a, nil
}

// listen ends with the reader.
func (a *alarm) listen() {
	var r ringbuf.Record
	for {
		if err := a.reader.ReadInto(&r); err != nil {
			a.broken.Store(&err)
			return
		}
		if len(r.RawSample) < slotSize {
			continue
		}
		d := decode((*[keySize]byte)(r.RawSample), (*[valueSize]byte)(r.RawSample[keySize:]))
		select {
		case a.rang <- d:
		default: // who listens is late, and has the one before
		}
	}
}

// canRing reports whether the alarm can ring.
func (a *alarm) canRing() bool { return a.reader != nil }

func (a *alarm) close() error {
	if a == nil {
		return nil
	}
	var err error
	if a.reader != nil {
		err = a.reader.Close()
	}
	return errors.Join(err, a.set.Close(), a.rung.Close(), a.rings.Close())
}

// Foreign receives after each call of [Observer.SetAlarm] when a cgroup makes a page dirty
// of a watched file that belongs to another, metadata of btrfs left out: once for each
// cgroup, of the first few.
// Bytes are 0: the page is counted by Read. It may receive what was written before the
// call.
func (o *Observer) Foreign() <-chan Dirtied { return o.alarm.rang }

// HasAlarm reports whether [Observer.Foreign] can receive. It cannot on a kernel with
// PREEMPT_RT whose ring buffers sleep.
func (o *Observer) HasAlarm() bool { return o.alarm.canRing() }

// SetAlarm is to be called before [Observer.Read]: what a cgroup goes on writing to
// the file that it wrote to last does not ring until the next Read.
func (o *Observer) SetAlarm() error {
	if !o.alarm.canRing() {
		return nil
	}
	err := o.alarm.again()
	if broken := o.alarm.broken.Load(); broken != nil {
		err = *broken
	}
	if err != nil {
		return fmt.Errorf("read alarms of written files: %w", err)
	}
	return nil
}

// again has it ring again.
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

// RootCgroup is the number of the root of cgroupfs, where kernel threads are.
const RootCgroup = 1

// ring has the alarm ring with what the slot has begun to count, if the writer is not
// the owner, and no kernel thread that writes for the owner.
func (c *chase) ring(a *alarm) {
	if !a.canRing() {
		return
	}
	const silent, foreign = "no alarm", "another's file"
	c.add(
		asm.LoadMem(asm.R1, slot, keySize+valueOwner, asm.DWord),
		asm.JEq.Imm(asm.R1, 0, silent),
		asm.LoadMem(asm.R2, slot, keyWriter, asm.DWord),
		asm.JEq.Reg(asm.R1, asm.R2, silent),
		asm.LoadMem(asm.R1, slot, keySize+valueRoot, asm.DWord),
		asm.JEq.Imm(asm.R1, BtrfsRootTree, silent),
		asm.JNE.Imm(asm.R2, RootCgroup, foreign),
		asm.LoadMem(asm.R1, slot, keySize+valueOwner, asm.DWord),
		asm.LoadMem(asm.R2, slot, keySize+valueCharged, asm.DWord),
		asm.JEq.Reg(asm.R1, asm.R2, silent),
		asm.Mov.Imm(asm.R0, 0).WithSymbol(foreign),
		asm.StoreImm(asm.RFP, stackIndex, 0, asm.Word),
	)
	c.lookup(a.set, stackIndex)
	c.add(
		asm.JEq.Imm(asm.R0, 0, silent),
		asm.StoreMem(asm.RFP, stackTaken, asm.R0, asm.DWord),
		asm.LoadMem(asm.R1, asm.R0, 0, asm.DWord), // so that CPUs share it until it is set
		asm.JEq.Imm(asm.R1, 0, silent),
		asm.StoreMem(asm.RFP, scratch, asm.R1, asm.DWord),
		asm.LoadMapPtr(asm.R1, a.rung.FD()),
		asm.Mov.Reg(asm.R2, slot), asm.Add.Imm(asm.R2, keyWriter),
		asm.Mov.Reg(asm.R3, asm.RFP), asm.Add.Imm(asm.R3, scratch),
		asm.Mov.Imm(asm.R4, 1), // BPF_NOEXIST
		asm.FnMapUpdateElem.Call(),
		asm.JNE.Imm(asm.R0, 0, silent), // it has rung for this one, or for enough others
		asm.LoadMem(asm.R2, asm.RFP, stackTaken, asm.DWord),
		asm.Mov.Imm(asm.R1, -1),
		asm.StoreXAdd(asm.R2, asm.R1, asm.DWord),

		asm.LoadMapPtr(asm.R1, a.rings.FD()),
		asm.Mov.Reg(asm.R2, slot),
		asm.Mov.Imm(asm.R3, slotSize),
		asm.Mov.Imm(asm.R4, 0),
		asm.FnRingbufOutput.Call(),
		asm.Mov.Imm(asm.R0, 0).WithSymbol(silent),
	)
}
