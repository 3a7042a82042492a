package wait

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/bpf"
)

// Observer counts what I/O and threads wait for, on the whole node. It is not safe for concurrent use.
type Observer struct {
	maps     map[string]*ebpf.Map
	programs []*ebpf.Program
	links    []link.Link
	unknown  map[Cause]error
}

// Attach loads and attaches the programs. It requires CAP_BPF and CAP_PERFMON, and for the journal of a filesystem that is a module
// CAP_SYS_ADMIN. If this kernel hides a cause, Attach succeeds, and [Observer.Unknown] has the cause with the reason.
func Attach() (_ *Observer, err error) {
	types, err := loadTypes()
	if err != nil {
		return nil, err
	}
	defer btf.FlushKernelSpec()
	spec, err := bpf.Load("wait")
	if err != nil {
		return nil, err
	}
	o := &Observer{unknown: map[Cause]error{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, o.Close())
		}
	}()
	dirtyErr := setVariables(spec, types)
	collection, err := ebpf.NewCollection(&ebpf.CollectionSpec{Maps: spec.Maps, Variables: spec.Variables, Types: spec.Types, ByteOrder: spec.ByteOrder})
	if err != nil {
		return nil, fmt.Errorf("make BPF maps: %w", err)
	}
	o.maps = collection.Maps
	var able []*hook
	for i := range hooks {
		h := &hooks[i]
		err := types.check(h)
		if err == nil && slices.Contains(h.causes, DirtyNode) {
			err = dirtyErr
		}
		if err == nil {
			able = append(able, h)
		}
		o.note(h, err)
	}
	// All at once takes less time. If the kernel refuses one of them, the others are attached alone.
	if o.attach(spec, types, able...) != nil {
		for _, h := range able {
			o.note(h, types.reason(h, o.attach(spec, types, h), mayFindTypes()))
		}
	}
	if len(o.links) == 0 {
		return nil, fmt.Errorf("observe waits: no cause can be: %w", o.unknown[Limit])
	}
	if err := o.maps["blkio_state"].Put(uint32(0), state{Began: monotonic()}); err != nil {
		return nil, fmt.Errorf("begin to observe: %w", err)
	}
	return o, nil
}

func (o *Observer) note(h *hook, err error) {
	if err == nil || errors.Is(err, errAbsent) {
		return
	}
	for _, cause := range h.causes {
		o.unknown[cause] = err
	}
}

// setVariables sets the constants of the program. An error is why dirty pages of the node cannot be distinguished from
// those of a cgroup.
func setVariables(spec *ebpf.CollectionSpec, types types) error {
	threshold, err := dirtyThreshold("/proc/vmstat")
	if err != nil {
		return err
	}
	hasControl, err := types.hasControl()
	if err != nil {
		return err
	}
	control := uint64(0)
	if hasControl {
		control = 1
	}
	// The node's threshold changes with its free memory.
	return errors.Join(spec.Variables["node_threshold"].Set(threshold/10*9), spec.Variables["has_control"].Set(control))
}

// dirtyThreshold reads the number of pages of the node that may be dirty.
//
//	nr_dirty_threshold 389325
//
// Source: vmstat_text in mm/vmstat.c.
func dirtyThreshold(file string) (uint64, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "nr_dirty_threshold "); ok {
			return strconv.ParseUint(strings.TrimSpace(value), 10, 64)
		}
	}
	return 0, fmt.Errorf("%s has no nr_dirty_threshold", file)
}

// attach loads and attaches the programs of hooks, or none of them.
func (o *Observer) attach(spec *ebpf.CollectionSpec, types types, hooks ...*hook) (err error) {
	var names []string
	for _, h := range hooks {
		names = append(names, h.programs...)
	}
	part := &ebpf.CollectionSpec{Maps: spec.Maps, Variables: spec.Variables, Types: spec.Types, ByteOrder: spec.ByteOrder, Programs: map[string]*ebpf.ProgramSpec{}}
	for _, name := range names {
		part.Programs[name] = spec.Programs[name]
	}
	loaded, err := ebpf.NewCollectionWithOptions(part, ebpf.CollectionOptions{
		MapReplacements: o.maps,
		Programs:        ebpf.ProgramOptions{KernelTypes: types[0], ExtraRelocationTargets: types[1:]},
	})
	if err != nil {
		return fmt.Errorf("load BPF programs: %w", err)
	}
	links := []link.Link{}
	defer func() {
		for name, program := range loaded.Programs {
			if err == nil {
				o.programs = append(o.programs, program)
				delete(loaded.Programs, name)
			}
		}
		loaded.Close()
		if err == nil {
			o.links = append(o.links, links...)
			return
		}
		for _, l := range links {
			err = errors.Join(err, l.Close())
		}
	}()
	for _, name := range names {
		l, err := link.AttachTracing(link.TracingOptions{Program: loaded.Programs[name]})
		if err != nil {
			return fmt.Errorf("attach the BPF program %s: %w", name, err)
		}
		links = append(links, l)
	}
	return nil
}

// Close detaches the programs, and frees their maps.
func (o *Observer) Close() error {
	var errs []error
	for _, l := range o.links {
		errs = append(errs, l.Close())
	}
	for _, p := range o.programs {
		errs = append(errs, p.Close())
	}
	for _, m := range o.maps {
		errs = append(errs, m.Close())
	}
	return errors.Join(errs...)
}

// Unknown returns the causes that are not counted, or not completely, each with the reason.
func (o *Observer) Unknown() map[Cause]error { return maps.Clone(o.unknown) }

// isMixed reports whether the time of IO includes that of causes whose hooks are missing. Their threads wait in io_schedule as well.
func (o *Observer) isMixed() bool {
	return slices.ContainsFunc([]Cause{Cost, DirtyNode, DirtyCgroup, Writeback, Queue}, func(c Cause) bool { return o.unknown[c] != nil })
}

// Read returns what was counted since Attach, with the waits that have not ended.
func (o *Observer) Read() (Times, error) {
	var s state
	if err := o.maps["blkio_state"].Lookup(uint32(0), &s); err != nil {
		return Times{}, fmt.Errorf("read waits: %w", err)
	}
	out := Times{At: map[Place]Time{}, Mixed: o.isMixed(), Lost: s.Lost}
	var k key
	var h held
	var w waited
	holds, waits := o.maps["blkio_held"], o.maps["blkio_waits"]
	numHolds, numWaits := uint32(0), uint32(0)
	err := each(holds, &k, &h, func() { numHolds++; out.add(k, h.time(monotonic())) })
	if err == nil {
		err = each(waits, &k, &w, func() { numWaits++; out.add(k, Time{Sum: time.Duration(w.Sum), Count: w.Count}) })
	}
	out.Full = numHolds >= holds.MaxEntries() || numWaits >= waits.MaxEntries()
	now := monotonic()
	out.Duration = time.Duration(now - s.Began)
	for _, name := range []string{"blkio_threads", "blkio_requests"} {
		var address uint64
		var id uint32
		var t thread
		add := func() { out.add(t.Key, Time{Sum: time.Duration(now - min(now, t.Since))}) }
		if err == nil && name == "blkio_threads" {
			err = each(o.maps[name], &id, &t, add)
		} else if err == nil {
			err = each(o.maps[name], &address, &t, add)
		}
	}
	for _, p := range o.programs {
		stats, statsErr := p.Stats()
		if statsErr == nil {
			out.Lost += stats.RecursionMisses
		}
		err = errors.Join(err, statsErr)
	}
	if err != nil {
		return Times{}, fmt.Errorf("read waits: %w", err)
	}
	return out, nil
}

// each calls do for each entry of a map. Entries may come and go meanwhile.
func each(m *ebpf.Map, key, value any, do func()) error {
	entries := m.Iterate()
	for entries.Next(key, value) {
		do()
	}
	if err := entries.Err(); !errors.Is(err, ebpf.ErrIterationAborted) { // the map changes as it is read
		return err
	}
	return nil
}

func (t *Times) add(k key, time Time) {
	if Cause(k.Cause) >= numCauses || Op(k.Op) >= numOps {
		return
	}
	place := Place{Cause: Cause(k.Cause), Op: Op(k.Op), Cgroup: k.Cgroup, By: k.By, Dev: blkio.Dev{Major: k.Dev >> 20, Minor: k.Dev & 0xfffff}}
	t.At[place] = t.At[place].add(time)
}

// time returns the time until now, with that of what is held.
func (h *held) time(now uint64) Time {
	wall, sum := h.Wall, h.Sum
	if h.Bios > 0 && now > h.Last {
		wall, sum = wall+now-h.Last, sum+h.Bios*(now-h.Last)
	}
	return Time{Sum: time.Duration(sum), Wall: time.Duration(wall), Count: h.Count}
}

// monotonic returns the time that the programs read.
func monotonic() uint64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // it cannot fail
	return uint64(t.Nano())
}

// The structures of the programs. TestStructures compares them with those of the object.

type key struct {
	Cgroup, By uint64
	Dev        uint32
	Cause, Op  uint16
}

type held struct{ Wall, Sum, Count, Bios, Last uint64 }

type waited struct{ Sum, Count uint64 }

type thread struct {
	Key          key
	Since, Pause uint64
}

type state struct{ Began, Lost uint64 }
