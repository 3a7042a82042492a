package wait

import (
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
)

var vda = blkio.Dev{Major: 254}

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
		[]Share{{Cause: Limit, By: container, Dev: vda, Time: 6 * second, Part: 0.75}, {Cause: Device, Dev: vda, Time: 2 * second, Part: 0.25}},
	},
	"limit of the pod": {
		map[Place]Time{io: {Sum: 8 * second}, limit(Direct, container, pod): {Sum: 8 * second}},
		[]Share{{Cause: Limit, By: pod, Dev: vda, Time: 8 * second, Part: 1}},
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
		[]Share{{Cause: Limit, By: container, Dev: vda, Time: 8 * second, Part: 1}},
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
	"journal alone": {
		map[Place]Time{journal: {Sum: 8 * second}, behind: {Sum: 80 * second}},
		[]Share{{Cause: Journal, Dev: vda, Time: 8 * second, Part: 1}},
	},
	"dirty pages, behind its own limit": {
		map[Place]Time{dirty(DirtyNode, container): {Sum: 8 * second}, limit(WriteOut, container, container): {Sum: 80 * second, Wall: 9 * second}},
		[]Share{{Cause: Limit, By: container, Dev: vda, Time: 8 * second, Part: 1}},
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
		[]Share{{Cause: Limit, By: container, Dev: vda, Time: second, Part: 1}},
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
			got := Explain(Times{Duration: 10 * second, At: tt.at}, map[uint64]bool{container: true})
			if diff := cmp.Diff(tt.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("-want, +got:\n%s", diff)
			}
		})
	}
}

func TestSince(t *testing.T) {
	at := Place{Cause: Limit, Cgroup: container, By: container, Dev: vda}
	idle := Place{Cause: IO, Cgroup: container}
	earlier := Times{Duration: time.Second, Lost: 1, At: map[Place]Time{at: {Sum: 5, Wall: 4, Count: 3}, idle: {Sum: 1}}}
	later := Times{Duration: 3 * time.Second, Lost: 1, At: map[Place]Time{at: {Sum: 9, Wall: 6, Count: 4}, idle: {Sum: 1}}}
	want := Times{Duration: 2 * time.Second, At: map[Place]Time{at: {Sum: 4, Wall: 2, Count: 1}}}
	if diff := cmp.Diff(want, later.Since(earlier)); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}
