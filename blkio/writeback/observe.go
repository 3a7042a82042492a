package writeback

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// Dirtied is what one cgroup wrote to one file: what became dirty in the page
// cache, and so goes to the disk once, however often it was written to meanwhile.
type Dirtied struct {
	Inode
	Writer  uint64 // number of the cgroup of who wrote
	Charged uint64 // that of the cgroup that the pages are charged to; 0: unknown
	Owner   uint64 // that of the inode's owner as the first page became dirty; 0: none yet
	// Bytes are counted by folios: the kernel marks one as dirty as a whole, also
	// where a filesystem writes out only the part that was written to.
	Bytes uint64
	// First and Last are where in the file the first and the last of what was
	// written are, in bytes. They may miss some of it.
	First, Last uint64
}

// Inode names a file. The device is that of the filesystem (super_block.s_dev),
// which for btrfs is not what stat(2) tells.
type Inode struct {
	Dev        blkio.Dev
	Number     uint64
	Generation uint32
	Root       uint64 // btrfs: of the subvolume; else 0
}

// BtrfsRootTree is the Root of inodes that btrfs has for its own metadata, which no
// cgroup is charged for by its own will (BTRFS_ROOT_TREE_OBJECTID).
const BtrfsRootTree = 1

// Observer counts what becomes dirty on watched filesystems. Nothing of it runs
// in the kernel while none is watched. It is not safe for concurrent use.
type Observer struct {
	dirtied, flush *ebpf.Program
	maps           countMaps
	alarm          *alarm
	link           link.Link // of dirtied; nil while nothing is watched
	subvolumes     bool
	watching       map[blkio.Dev]bool
	cpus           [][slotSize]byte // copies of the slots, by CPU
	keys           [][keySize]byte
	values         [][valueSize]byte
}

const (
	// maxWatched are filesystems; a node has some hundred volumes at most.
	maxWatched = 4096
	// maxCounts are files that are written to between two calls of Read, by
	// writers. What does not fit is counted as lost.
	maxCounts = 1 << 14
	// fewCounts of them each writer has for sure: half of the room is for writers
	// with fewer, so that one with many files leaves room for others.
	fewCounts = 1 << 7
	// maxWriters are cgroups that write between two calls of Read.
	maxWriters = 1 << 12
	batch      = 1 << 10 // that a system call reads
)

// NewObserver loads the program that counts. It takes CAP_BPF and CAP_PERFMON;
// errors are [ErrUnavailable].
func NewObserver() (_ *Observer, err error) {
	l, err := loadLayout()
	if err != nil {
		return nil, err
	}
	_, subvolumes := l.lookup("btrfs_inode", "root")
	o := &Observer{
		subvolumes: subvolumes,
		watching:   map[blkio.Dev]bool{},
		keys:       make([][keySize]byte, batch), values: make([][valueSize]byte, batch),
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, o.unload())
		}
	}()
	for _, m := range []struct {
		to   **ebpf.Map
		spec ebpf.MapSpec
	}{
		{&o.maps.watched, ebpf.MapSpec{Name: "blkio_watched", Type: ebpf.Hash, KeySize: 4, ValueSize: 1, MaxEntries: maxWatched, Flags: noPrealloc}},
		{&o.maps.slots, ebpf.MapSpec{Name: "blkio_slots", Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: slotSize, MaxEntries: 1}},
		{&o.maps.counts, ebpf.MapSpec{Name: "blkio_dirtied", Type: ebpf.Hash, KeySize: keySize, ValueSize: valueSize, MaxEntries: maxCounts, Flags: noPrealloc}},
		{&o.maps.writers, ebpf.MapSpec{Name: "blkio_writers", Type: ebpf.Hash, KeySize: 8, ValueSize: 8, MaxEntries: maxWriters, Flags: noPrealloc}},
		{&o.maps.taken, ebpf.MapSpec{Name: "blkio_taken", Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1}},
		{&o.maps.lost, ebpf.MapSpec{Name: "blkio_lost", Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1}},
	} {
		if *m.to, err = ebpf.NewMap(&m.spec); err != nil {
			return nil, notLoaded(err, lockdownFile)
		}
	}
	if o.alarm, err = newAlarm(l); err != nil {
		return nil, notLoaded(err, lockdownFile)
	}
	if o.dirtied, err = dirtiedProgram(l, o.maps, o.alarm); err != nil {
		return nil, err
	}
	o.flush, err = flushProgram(l, o.maps)
	return o, err
}

// Subvolumes says that files of btrfs are told apart by their subvolumes. They are
// not where btrfs was not loaded yet.
func (o *Observer) Subvolumes() bool { return o.subvolumes }

const noPrealloc = 1 // BPF_F_NO_PREALLOC

// Close ends counting.
func (o *Observer) Close() error { return errors.Join(o.detach(), o.unload()) }

func (o *Observer) unload() error {
	errs := []error{o.alarm.close()}
	for _, c := range []io.Closer{o.dirtied, o.flush, o.maps.watched, o.maps.slots, o.maps.counts, o.maps.writers, o.maps.taken, o.maps.lost} {
		errs = append(errs, c.Close()) // which a nil one allows
	}
	return errors.Join(errs...)
}

func (o *Observer) detach() error {
	if o.link == nil {
		return nil
	}
	err := o.link.Close()
	o.link = nil
	return err
}

// Watch names the filesystems that are to be counted from now on, by their
// device numbers.
func (o *Observer) Watch(devs []blkio.Dev) error {
	want := make(map[blkio.Dev]bool, len(devs))
	for _, d := range devs {
		want[d] = true
	}
	for d := range o.watching {
		if !want[d] {
			if err := o.maps.watched.Delete(kernelDev(d)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
				return fmt.Errorf("stop watching the filesystem of %s: %w", d, err)
			}
			delete(o.watching, d)
		}
	}
	for d := range want {
		if !o.watching[d] {
			if err := o.maps.watched.Put(kernelDev(d), uint8(1)); err != nil {
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
	l, err := link.AttachTracing(link.TracingOptions{Program: o.dirtied})
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

// Read returns what became dirty since the last call, and how many bytes since
// the beginning there was no room for.
func (o *Observer) Read() (_ []Dirtied, lost uint64, err error) {
	found, err := o.readCounts()
	if err == nil {
		err = o.maps.lost.Lookup(uint32(0), &lost)
	}
	if err != nil {
		return found, 0, fmt.Errorf("read what was written to: %w", err)
	}
	return found, lost, nil
}

func (o *Observer) readCounts() ([]Dirtied, error) {
	if err := o.flushSlots(); err != nil {
		return nil, err
	}
	var taken uint64
	if err := o.maps.taken.Lookup(uint32(0), &taken); err != nil || taken == 0 {
		return nil, err // to look through an empty map takes 20 us
	}
	// Before the counts are read: one that is made meanwhile is counted, and seen
	// the next time at the latest.
	if err := o.freeRoom(); err != nil {
		return nil, err
	}
	out := make([]Dirtied, 0, min(taken, maxCounts))
	var cursor ebpf.MapBatchCursor
	for {
		n, err := o.maps.counts.BatchLookupAndDelete(&cursor, o.keys, o.values, nil)
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
	if err := o.maps.taken.Put(uint32(0), uint64(0)); err != nil {
		return err
	}
	var cursor ebpf.MapBatchCursor
	writers, counts := make([]uint64, batch), make([]uint64, batch)
	for {
		_, err := o.maps.writers.BatchLookupAndDelete(&cursor, writers, counts, nil)
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
	if err := o.maps.slots.Lookup(uint32(0), &o.cpus); err != nil {
		return err
	}
	for cpu := range o.cpus {
		if !counting(&o.cpus[cpu]) {
			continue
		}
		_, err := o.flush.Run(&ebpf.RunOptions{Flags: runOnCPU, CPU: uint32(cpu)})
		if err != nil && !errors.Is(err, unix.ENXIO) { // it is offline, and counts nothing
			return err
		}
	}
	return nil
}

// counting says that a CPU has begun to count since it has last flushed. The copy of
// a slot is not one of a moment, but each word of it is.
func counting(slot *[slotSize]byte) bool {
	order := binary.NativeEndian
	return order.Uint64(slot[keyInode:]) != 0 || order.Uint64(slot[keySize+valueBytes:]) != 0
}

const runOnCPU = 1 // BPF_F_TEST_RUN_ON_CPU

// The key and the value of a count, in the order of the machine. What is the same
// for all pages of a file that a cgroup writes is in the value: it is looked up
// once.
const (
	keyInode  = 0 // its address in the kernel
	keyNumber = 8
	keyWriter = 16
	keyMemcg  = 24 // as the page has it
	keySize   = 32

	valueBytes      = 0
	valueCharged    = 8
	valueOwner      = 16
	valueRoot       = 24
	valueDev        = 32
	valueGeneration = 36
	valueFirst      = 40 // in pages
	valueLast       = 48
	valueSize       = 56
)

func decode(key *[keySize]byte, value *[valueSize]byte) Dirtied {
	order := binary.NativeEndian
	page := uint64(os.Getpagesize())
	// The first is none yet where a flush came in between the two.
	first, last := order.Uint64(value[valueFirst:]), order.Uint64(value[valueLast:])
	return Dirtied{
		Inode: Inode{
			Dev:        fromKernelDev(order.Uint32(value[valueDev:])),
			Number:     order.Uint64(key[keyNumber:]),
			Generation: order.Uint32(value[valueGeneration:]),
			Root:       order.Uint64(value[valueRoot:]),
		},
		Writer:  order.Uint64(key[keyWriter:]),
		Charged: order.Uint64(value[valueCharged:]),
		Owner:   order.Uint64(value[valueOwner:]),
		Bytes:   order.Uint64(value[valueBytes:]),
		First:   min(first, last) * page,
		Last:    last * page,
	}
}

// Cost is what counting has taken since the program was loaded.
type Cost struct {
	Runs uint64
	Time time.Duration
}

// Cost is 0 unless the kernel keeps statistics of BPF programs
// (kernel.bpf_stats_enabled), which take time themselves.
func (o *Observer) Cost() (Cost, error) {
	s, err := o.dirtied.Stats()
	if err != nil {
		return Cost{}, fmt.Errorf("read what it takes to count: %w", err)
	}
	return Cost{Runs: s.RunCount, Time: s.Runtime}, nil
}
