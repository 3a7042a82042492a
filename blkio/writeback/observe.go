package writeback

import (
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/bpf"
)

// Dirtied counts the pages of one file that one cgroup made dirty. A page that is written
// to again before it goes to the disk counts once.
type Dirtied struct {
	Inode
	Writer  uint64 // cgroup ID of the process that wrote
	Charged uint64 // cgroup ID that the pages are charged to; 0 if unknown
	Owner   uint64 // cgroup ID of the file's owner when the first page became dirty; 0 if it had none
	// Bytes counts whole folios. The kernel marks a folio dirty as a whole, even if the
	// filesystem writes out only the part that was written to.
	Bytes uint64
	// First and Last are the lowest and the highest offset of these pages, in bytes. Some
	// pages may be outside of that range.
	First, Last uint64
}

// Inode identifies a file. Dev is the number of its filesystem (super_block.s_dev), which
// for btrfs differs from that of stat(2).
type Inode struct {
	Dev        blkio.Dev
	Number     uint64
	Generation uint32
	Root       uint64 // number of the subvolume on btrfs; otherwise 0
}

// BtrfsRootTree is the Root of the inodes of btrfs's own metadata
// (BTRFS_ROOT_TREE_OBJECTID). The process that commits makes them dirty, whichever cgroup
// caused the change.
const BtrfsRootTree = 1

// Observer counts the pages that become dirty on watched filesystems. While it watches
// none, its programs do not run. It is not safe for concurrent use.
type Observer struct {
	bpf        *ebpf.Collection
	alarm      *alarm
	link       link.Link // of the program that counts; nil while nothing is watched
	subvolumes bool
	watching   map[blkio.Dev]bool
	cpus       []slot // copies of the slots, by CPU
	keys       []countKey
	values     []count
}

const (
	// maxCounts is the number of pairs of a file and a writer between two calls of Read. Bytes of further pairs
	// are counted as lost.
	maxCounts = 1 << 14
	// Each writer can have fewCounts of them. Half of the room is kept for writers with fewer, so that a writer
	// with many files leaves room for others.
	fewCounts = 1 << 7
	batch     = 1 << 10 // that a system call reads
)

// NewObserver loads the BPF programs. It requires CAP_BPF and CAP_PERFMON. Its error wraps
// [ErrUnavailable] if the kernel does not load them.
func NewObserver() (*Observer, error) {
	types, err := loadKernelTypes()
	if err != nil {
		return nil, err
	}
	if types.ringSleeps() {
		return nil, fmt.Errorf("%w: PREEMPT_RT, and its BPF ring buffers can sleep (CVE-2024-50138)", ErrUnavailable)
	}
	spec, err := observerSpec()
	if err != nil {
		return nil, err
	}
	o := &Observer{
		subvolumes: types.has("btrfs_inode", "root"),
		watching:   map[blkio.Dev]bool{},
		keys:       make([]countKey, batch), values: make([]count, batch),
	}
	if o.bpf, err = ebpf.NewCollectionWithOptions(spec, types.options()); err != nil {
		return nil, notLoaded(err, lockdownFile)
	}
	if o.alarm, err = newAlarm(o.bpf); err != nil {
		o.bpf.Close()
		return nil, notLoaded(err, lockdownFile)
	}
	return o, nil
}

func observerSpec() (*ebpf.CollectionSpec, error) {
	spec, err := bpf.Load("observer")
	if err != nil {
		return nil, err
	}
	for name, value := range map[string]uint64{"max_counts": maxCounts, "few_counts": fewCounts} {
		if err := spec.Variables[name].Set(value); err != nil {
			return nil, fmt.Errorf("set %s of a BPF program: %w", name, err)
		}
	}
	spec.Maps["blkio_counts"].MaxEntries = maxCounts
	spec.Maps["blkio_rung"].MaxEntries = maxRings
	// A ring consists of whole pages. It holds few counts at a time.
	spec.Maps["blkio_rings"].MaxEntries = uint32(os.Getpagesize())
	return spec, nil
}

// Subvolumes reports whether the Root of files on btrfs is known. It is not if btrfs was
// loaded after the observer.
func (o *Observer) Subvolumes() bool { return o.subvolumes }

// Close unloads the programs.
func (o *Observer) Close() error {
	err := errors.Join(o.detach(), o.alarm.reader.Close())
	o.bpf.Close()
	return err
}

func (o *Observer) detach() error {
	if o.link == nil {
		return nil
	}
	err := o.link.Close()
	o.link = nil
	return err
}

// Watch replaces the set of watched filesystems, by their device numbers.
func (o *Observer) Watch(devs []blkio.Dev) error {
	want := make(map[blkio.Dev]bool, len(devs))
	for _, d := range devs {
		want[d] = true
	}
	for d := range o.watching {
		if !want[d] {
			if err := o.bpf.Maps["blkio_watched"].Delete(kernelDev(d)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
				return fmt.Errorf("stop watching the filesystem of %s: %w", d, err)
			}
			delete(o.watching, d)
		}
	}
	for d := range want {
		if !o.watching[d] {
			if err := o.bpf.Maps["blkio_watched"].Put(kernelDev(d), uint8(1)); err != nil {
				return fmt.Errorf("watch the filesystem of %s: %w", d, err)
			}
			o.watching[d] = true
		}
	}
	switch {
	case len(want) == 0:
		return o.detach()
	case o.link != nil:
		return nil
	}
	l, err := link.AttachTracing(link.TracingOptions{Program: o.bpf.Programs["blkio_dirtied"]})
	if err != nil {
		return notLoaded(err, lockdownFile)
	}
	o.link = l
	return nil
}

// kernelDev is the kernel's own form of a device number, MKDEV of
// include/linux/kdev_t.h.
func kernelDev(d blkio.Dev) uint32 { return d.Major<<20 | d.Minor }

func fromKernelDev(d uint32) blkio.Dev { return blkio.Dev{Major: d >> 20, Minor: d & 0xfffff} }

// Read returns the counts since the last call. lost is the number of bytes, since the
// observer exists, that were not counted for lack of room.
func (o *Observer) Read() (_ []Dirtied, lost uint64, err error) {
	found, err := o.readCounts()
	if err == nil {
		err = o.bpf.Maps["blkio_lost"].Lookup(uint32(0), &lost)
	}
	if err != nil {
		return found, 0, fmt.Errorf("read what was written to: %w", err)
	}
	return found, lost * uint64(os.Getpagesize()), nil // the programs count pages
}

func (o *Observer) readCounts() ([]Dirtied, error) {
	if err := o.flushSlots(); err != nil {
		return nil, err
	}
	var taken uint64
	if err := o.bpf.Maps["blkio_taken"].Lookup(uint32(0), &taken); err != nil || taken == 0 {
		return nil, err // reading an empty map takes 20 us
	}
	// Before the counts are read: one that is made meanwhile is counted, and seen
	// the next time at the latest.
	if err := o.freeRoom(); err != nil {
		return nil, err
	}
	out := make([]Dirtied, 0, min(taken, maxCounts))
	var cursor ebpf.MapBatchCursor
	for {
		n, err := o.bpf.Maps["blkio_counts"].BatchLookupAndDelete(&cursor, o.keys, o.values, nil)
		for i := range n {
			out = append(out, decode(&o.keys[i], &o.values[i]))
		}
		switch {
		case errors.Is(err, ebpf.ErrKeyNotExist):
			return out, nil
		case err != nil:
			return out, err
		}
	}
}

// freeRoom has the room for counts taken by no writer.
func (o *Observer) freeRoom() error {
	if err := o.bpf.Maps["blkio_taken"].Put(uint32(0), uint64(0)); err != nil {
		return err
	}
	var cursor ebpf.MapBatchCursor
	writers, counts := make([]uint64, batch), make([]uint64, batch)
	for {
		_, err := o.bpf.Maps["blkio_writers"].BatchLookupAndDelete(&cursor, writers, counts, nil)
		switch {
		case errors.Is(err, ebpf.ErrKeyNotExist):
			return nil
		case err != nil:
			return err
		}
	}
}

// flushSlots has each CPU flush that is counting something, and interrupts no
// other: that takes 10 us a CPU. One call reads the slots of all.
func (o *Observer) flushSlots() error {
	if err := o.bpf.Maps["blkio_slots"].Lookup(uint32(0), &o.cpus); err != nil {
		return err
	}
	for cpu := range o.cpus {
		if !counting(&o.cpus[cpu]) {
			continue
		}
		_, err := o.bpf.Programs["blkio_flush"].Run(&ebpf.RunOptions{Flags: runOnCPU, CPU: uint32(cpu)})
		if err != nil && !errors.Is(err, unix.ENXIO) { // it is offline, and counts nothing
			return err
		}
	}
	return nil
}

// counting reports whether a CPU has counted since its last flush. The words of the copy of
// a slot may be of different moments.
func counting(s *slot) bool { return s.Key.Inode != 0 || s.Value.Pages != 0 }

const runOnCPU = 1 // BPF_F_TEST_RUN_ON_CPU

func decode(key *countKey, value *count) Dirtied {
	page := uint64(os.Getpagesize())
	return Dirtied{
		Inode: Inode{
			Dev:        fromKernelDev(value.Dev),
			Number:     key.Number,
			Generation: value.Generation,
			Root:       value.Root,
		},
		Writer:  key.Writer,
		Charged: value.Charged,
		Owner:   value.Owner,
		Bytes:   value.Pages * page,
		// The first is none yet where a flush came in between the two.
		First: min(value.First, value.Last) * page,
		Last:  value.Last * page,
	}
}

// The structures of the programs. TestStructures compares them with those of the objects.

type count struct {
	Pages, Charged, Owner, Root uint64
	Dev, Generation             uint32
	First, Last                 uint64
}

type countKey struct{ Inode, Number, Writer, Memcg uint64 }

type slot struct {
	Key   countKey
	Value count
}

type answer struct {
	Owner, Bandwidth uint64
	Dev, Generation  uint32
	Average, History uint16
	Found            uint32
}
