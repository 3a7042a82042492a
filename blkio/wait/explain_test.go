package wait

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// The cgroups of the tests.
const (
	container uint64 = 20 + iota
	pod
	neighbour
	sidecar
)

var vda, vdb, dm = blkio.Dev{Major: 254}, blkio.Dev{Major: 254, Minor: 16}, blkio.Dev{Major: 253}

const second = time.Second

// Places of the tests.
var (
	device  = Place{Cause: Device, Op: Read, Cgroup: container, Dev: vda}
	io      = Place{Cause: IO, Cgroup: container}
	journal = Place{Cause: Journal, Cgroup: container, Dev: vda}
	behind  = limit(WriteOut, neighbour, neighbour)
)

func limit(op Op, cgroup, by uint64) Place {
	return Place{Cause: Limit, Op: op, Cgroup: cgroup, By: by, Dev: vda}
}

func writeback(cgroup, by uint64) Place {
	return Place{Cause: Writeback, Cgroup: cgroup, By: by, Dev: vda}
}

func dirty(cause Cause, by uint64) Place { return Place{Cause: cause, Cgroup: container, By: by} }

var explainCases = map[string]struct {
	at   map[Place]Time
	want []Share
}{
	"nothing": {},
	"own limit, and the device": {
		map[Place]Time{io: {Sum: 8 * second}, limit(Direct, container, container): {Sum: 30 * second}, device: {Sum: 10 * second}},
		[]Share{{Cause: Limit, Op: WriteOut, By: container, Dev: vda, Time: 6 * second, Part: 0.75}, {Cause: Device, Dev: vda, Time: 2 * second, Part: 0.25}},
	},
	"limit of the pod": {
		map[Place]Time{io: {Sum: 8 * second}, limit(Direct, container, pod): {Sum: 8 * second}},
		[]Share{{Cause: Limit, Op: WriteOut, By: pod, Dev: vda, Time: 8 * second, Part: 1}},
	},
	"reads do not wait for what is written out": {
		map[Place]Time{io: {Sum: 8 * second}, limit(WriteOut, container, container): {Sum: 99 * second}, device: {Sum: 8 * second}},
		[]Share{{Cause: Device, Dev: vda, Time: 8 * second, Part: 1}},
	},
	"limits of others": {
		map[Place]Time{io: {Sum: second}, limit(Read, neighbour, neighbour): {Sum: 99 * second}},
		[]Share{{Cause: IO, Time: second, Part: 1}},
	},
	"fsync behind its own limit": {
		map[Place]Time{writeback(container, container): {Sum: 8 * second}, limit(WriteOut, container, container): {Sum: 80 * second}},
		[]Share{{Cause: Limit, Op: WriteOut, By: container, Dev: vda, Time: 8 * second, Part: 1}},
	},
	"another owner, behind that one's limit": {
		map[Place]Time{writeback(container, neighbour): {Sum: 8 * second}, behind: {Sum: 80 * second}},
		[]Share{{Cause: Writeback, By: neighbour, Dev: vda, Behind: &behind, Time: 8 * second, Part: 1}},
	},
	"journal, behind a neighbour's limit": {
		map[Place]Time{journal: {Sum: 8 * second}, writeback(rootCgroup, neighbour): {Sum: 8 * second}, behind: {Sum: 80 * second}},
		[]Share{{Cause: Journal, Dev: vda, Behind: &behind, Time: 8 * second, Part: 1}},
	},
	"journal, and a neighbour's limit for a moment": {
		map[Place]Time{journal: {Sum: 8 * second}, writeback(rootCgroup, neighbour): {Sum: second}, behind: {Sum: 80 * second}},
		[]Share{{Cause: Journal, Dev: vda, Time: 8 * second, Part: 1}},
	},
	"journal of an unknown disk, behind a neighbour's limit": {
		map[Place]Time{{Cause: Journal, Cgroup: container}: {Sum: 8 * second}, writeback(rootCgroup, neighbour): {Sum: 8 * second}, behind: {Sum: 80 * second}},
		[]Share{{Cause: Journal, Dev: vda, Behind: &behind, Time: 8 * second, Part: 1}},
	},
	"journal of an unknown disk, and a larger owner on a disk of others": {
		map[Place]Time{
			{Cause: Journal, Cgroup: container}: {Sum: 8 * second}, writeback(rootCgroup, neighbour): {Sum: 8 * second}, behind: {Sum: 80 * second},
			{Cause: Writeback, Cgroup: rootCgroup, By: sidecar, Dev: dm}: {Sum: 99 * second}, {Cause: Writeback, Cgroup: rootCgroup, By: sidecar, Dev: vdb}: {Sum: 99 * second},
		},
		[]Share{{Cause: Journal, Dev: vda, Behind: &behind, Time: 8 * second, Part: 1}},
	},
	"journal of an unknown disk, and an owner on a disk of others": {
		map[Place]Time{{Cause: Journal, Cgroup: container}: {Sum: 8 * second}, {Cause: Writeback, Cgroup: rootCgroup, By: neighbour, Dev: vdb}: {Sum: 8 * second}, behind: {Sum: 80 * second}},
		[]Share{{Cause: Journal, Time: 8 * second, Part: 1}},
	},
	"journal alone": {
		map[Place]Time{journal: {Sum: 8 * second}, behind: {Sum: 80 * second}},
		[]Share{{Cause: Journal, Dev: vda, Time: 8 * second, Part: 1}},
	},
	"dirty pages, behind its own limit": {
		map[Place]Time{dirty(DirtyNode, container): {Sum: 8 * second}, limit(WriteOut, container, container): {Sum: 80 * second, Wall: 9 * second}},
		[]Share{{Cause: Limit, Op: WriteOut, By: container, Dev: vda, Time: 8 * second, Part: 1}},
	},
	"dirty pages, and hardly held": {
		map[Place]Time{dirty(DirtyCgroup, container): {Sum: 8 * second}, limit(WriteOut, container, container): {Sum: 80 * second, Wall: second}},
		[]Share{{Cause: DirtyCgroup, Time: 8 * second, Part: 1}},
	},
	"dirty pages of another's file, behind that one's limit": {
		map[Place]Time{dirty(DirtyNode, neighbour): {Sum: 8 * second}, behind: {Sum: 80 * second, Wall: 9 * second}},
		[]Share{{Cause: DirtyNode, By: neighbour, Behind: &behind, Time: 8 * second, Part: 1}},
	},
	"a page that is written out": {
		map[Place]Time{io: {Sum: second}, limit(WriteOut, container, container): {Sum: 99 * second}},
		[]Share{{Cause: Limit, Op: WriteOut, By: container, Dev: vda, Time: second, Part: 1}},
	},
	"fsync on a logical volume": {
		map[Place]Time{
			{Cause: Writeback, Cgroup: container, By: container, Dev: dm}: {Sum: 8 * second}, limit(WriteOut, container, container): {Sum: 80 * second},
		},
		[]Share{{Cause: Limit, Op: WriteOut, By: container, Dev: vda, Time: 8 * second, Part: 1}},
	},
	"another owner on a logical volume, behind that one's limit": {
		map[Place]Time{{Cause: Writeback, Cgroup: container, By: neighbour, Dev: dm}: {Sum: 8 * second}, behind: {Sum: 80 * second}},
		[]Share{{Cause: Writeback, By: neighbour, Dev: dm, Behind: &behind, Time: 8 * second, Part: 1}},
	},
	"fsync on a disk, and writes on another": {
		map[Place]Time{
			writeback(container, container): {Sum: 8 * second}, {Cause: Device, Op: WriteOut, Cgroup: container, Dev: vda}: {Sum: second},
			{Cause: Limit, Op: WriteOut, Cgroup: container, By: container, Dev: dm}: {Sum: 80 * second},
		},
		[]Share{{Cause: Device, Dev: vda, Time: 8 * second, Part: 1}},
	},
	"limits on reads and on writes": {
		map[Place]Time{io: {Sum: 8 * second}, limit(Read, container, container): {Sum: 3 * second}, limit(Direct, container, container): {Sum: second}},
		[]Share{
			{Cause: Limit, Op: Read, By: container, Dev: vda, Time: 6 * second, Part: 0.75},
			{Cause: Limit, Op: WriteOut, By: container, Dev: vda, Time: 2 * second, Part: 0.25},
		},
	},
	"completions, with many reads in flight": {
		map[Place]Time{{Cause: Async, Cgroup: container}: {Sum: 8 * second}, limit(Read, container, container): {Sum: 90 * second}, device: {Sum: 30 * second}},
		[]Share{{Cause: Limit, Op: Read, By: container, Dev: vda, Time: 6 * second, Part: 0.75}, {Cause: Device, Dev: vda, Time: 2 * second, Part: 0.25}},
	},
	"completions of sockets, and a few reads": {
		map[Place]Time{{Cause: Async, Cgroup: container}: {Sum: 9 * second}, io: {Sum: second}, device: {Sum: 2 * second}},
		[]Share{{Cause: Device, Dev: vda, Time: 2 * second, Part: 1}},
	},
	"completions of sockets alone": {at: map[Place]Time{{Cause: Async, Cgroup: container}: {Sum: 9 * second}, limit(Read, neighbour, neighbour): {Sum: 9 * second}}},
	"a container at its limit, beside one that writes dirty pages": {
		map[Place]Time{
			{Cause: IO, Cgroup: sidecar}: {Sum: 8 * second}, {Cause: Device, Op: WriteOut, Cgroup: sidecar, Dev: dm}: {Sum: 8 * second},
			{Cause: Device, Op: Read, Cgroup: sidecar, Dev: dm}: {Sum: second},
			io: {Sum: 4 * second}, limit(Read, container, container): {Sum: 900 * second},
		},
		[]Share{{Cause: Device, Dev: dm, Time: 8 * second, Part: 8. / 12}, {Cause: Limit, Op: Read, By: container, Dev: vda, Time: 4 * second, Part: 4. / 12}},
	},
	"a page that another of the containers reads": {
		map[Place]Time{{Cause: IO, Cgroup: sidecar}: {Sum: 8 * second}, device: {Sum: 9 * second}},
		[]Share{{Cause: Device, Dev: vda, Time: 8 * second, Part: 1}},
	},
	"pages of an unknown owner": {
		map[Place]Time{writeback(container, 0): {Sum: second}, limit(WriteOut, container, container): {Sum: 99 * second}},
		[]Share{{Cause: Writeback, Dev: vda, Time: second, Part: 1}},
	},
	"share and queue": {
		map[Place]Time{{Cause: Cost, Cgroup: container, Dev: vda}: {Sum: 3 * second}, {Cause: Queue, Cgroup: container, Dev: vda}: {Sum: second}},
		[]Share{{Cause: Cost, Dev: vda, Time: 3 * second, Part: 0.75}, {Cause: Queue, Dev: vda, Time: second, Part: 0.25}},
	},
}

func TestExplain(t *testing.T) {
	for name, tt := range explainCases {
		t.Run(name, func(t *testing.T) {
			got := Explain(Times{Duration: 10 * second, At: tt.at}, map[uint64]bool{container: true, sidecar: true}, map[blkio.Dev]bool{vda: true, vdb: false})
			if diff := cmp.Diff(tt.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("-want, +got:\n%s", diff)
			}
		})
	}
}

// TestExplainAny verifies with random times that the parts add up to 1, that the time of shares is that of the threads, and that a limit
// is named only if it held I/O.
func TestExplainAny(t *testing.T) {
	cgroups := map[uint64]bool{container: true}
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 0))
		times, waited := Times{Duration: 10 * second, At: map[Place]Time{}}, time.Duration(0)
		for range r.IntN(12) {
			place := Place{
				Cause: Cause(r.IntN(int(numCauses))), Cgroup: []uint64{rootCgroup, container, neighbour}[r.IntN(3)],
				By: []uint64{0, container, pod, neighbour}[r.IntN(4)], Dev: []blkio.Dev{{}, vda, dm}[r.IntN(3)],
			}
			if place.Cause == Limit || place.Cause == Scheduler || place.Cause == Device {
				place.Op = Op(1 + r.IntN(int(numOps)-1))
			}
			times.At[place] = Time{Sum: time.Duration(1 + r.Int64N(1<<(1+r.IntN(40)))), Wall: time.Duration(r.Int64N(int64(10 * second)))}
		}
		asked := time.Duration(0) // for completions, which can be those of sockets
		for place, spent := range times.At {
			switch {
			case !cgroups[place.Cgroup] || place.Op != None:
			case place.Cause == Async:
				asked += spent.Sum
			default:
				waited += spent.Sum
			}
		}
		parts, sum := 0.0, time.Duration(0)
		for _, s := range Explain(times, cgroups, nil) {
			if parts, sum = parts+s.Part, sum+s.Time; s.Time <= 0 || !(s.Part > 0) {
				t.Errorf("seed %d: %+v", seed, s)
			}
			isOf := func(p Place) bool {
				return p.Cause == Limit && p.By == s.By && p.Dev == s.Dev && (p.Op == Read) == (s.Op == Read)
			}
			if s.Cause == Limit && !slices.ContainsFunc(slices.Collect(maps.Keys(times.At)), isOf) {
				t.Errorf("seed %d: no limit held I/O for %+v", seed, s)
			}
		}
		if math.Abs(parts-1) > 1e-9 && sum > 0 || sum < waited-1000 || sum > waited+asked {
			t.Errorf("seed %d: parts add up to %v, and times to %s of %s and %s", seed, parts, sum, waited, asked)
		}
	}
}

// TestExplainMixed verifies that a wait is of an unknown cause where the kernel hides a cause whose threads seem to wait for I/O.
func TestExplainMixed(t *testing.T) {
	at := map[Place]Time{io: {Sum: 8 * second}, limit(WriteOut, container, container): {Sum: 80 * second}, device: {Sum: second}}
	want := []Share{{Cause: IO, Time: 8 * second, Part: 1}}
	if diff := cmp.Diff(want, Explain(Times{Duration: 10 * second, Mixed: true, At: at}, map[uint64]bool{container: true}, nil)); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}

func TestSince(t *testing.T) {
	at := Place{Cause: Limit, Cgroup: container, By: container, Dev: vda}
	idle := Place{Cause: IO, Cgroup: container}
	earlier := Times{Duration: time.Second, Lost: 1, At: map[Place]Time{at: {Sum: 5, Wall: 4, Count: 3}, idle: {Sum: 1}}}
	later := Times{Duration: 3 * time.Second, Lost: 1, Full: true, At: map[Place]Time{at: {Sum: 9, Wall: 6, Count: 4}, idle: {Sum: 1}}}
	want := Times{Duration: 2 * time.Second, Full: true, At: map[Place]Time{at: {Sum: 4, Wall: 2, Count: 1}}}
	if diff := cmp.Diff(want, later.Since(earlier)); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}
