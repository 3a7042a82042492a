package lifecycle

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// compareGolden compares a text with a file of testdata. With UPDATE=1 in the environment
// it writes the file instead.
func compareGolden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s is not the table of the code, UPDATE=1 writes it anew (-file +code):\n%s", file, diff)
	}
}

// TestContainerTable compares each pair of a phase and an event with the table in testdata. So a change of the
// code is a change of a reviewed text.
func TestContainerTable(t *testing.T) {
	var out strings.Builder
	for p := range numPhases {
		fmt.Fprintf(&out, "%v\n", p)
		for e := range numEvents {
			next, do, err := Next(p, e)
			switch {
			case err != nil:
				fmt.Fprintf(&out, "  %-17v unexpected\n", e)
			case do == 0:
				fmt.Fprintf(&out, "  %-17v %v\n", e, next)
			default:
				fmt.Fprintf(&out, "  %-17v %-9v %v\n", e, next, do)
			}
		}
	}
	compareGolden(t, "container.txt", out.String())
}

// isLive reports whether a container of a phase is open in the drain of its pod.
func isLive(p Phase) bool { return p.MayRun() || p == Stopping }

// eachCell calls f for each expected pair of a phase and an event.
func eachCell(f func(from Phase, e Event, to Phase, do Actions)) {
	for p := range numPhases {
		for e := range numEvents {
			if next, do, err := Next(p, e); err == nil {
				f(p, e, next, do)
			}
		}
	}
}

// TestActionsFollowPhases derives the actions of each cell from its two phases.
func TestActionsFollowPhases(t *testing.T) {
	eachCell(func(from Phase, e Event, to Phase, do Actions) {
		bad := func(what string) { t.Errorf("%v in %v leads to %v with %q: %s", e, from, to, do, what) }
		begins, ends := !isLive(from) && isLive(to), isLive(from) && !isLive(to)
		if do.Has(Begin) != begins {
			bad("Begin is for a container that begins to run, and for no other")
		}
		if do.Has(RecordExit) != ends {
			bad("RecordExit is for a container that ends, and for no other")
		}
		closes := 0
		for _, one := range []Actions{LeaveNothing, LeaveData, HandOver} {
			if do.Has(one) {
				closes++
			}
		}
		lateFire := from == Stopped && e == WatchFired // lifts the limits, and closes nothing
		if closes != 0 != (ends || lateFire) || closes > 1 {
			bad("a container that ends is closed in one way")
		}
		if do.Has(HandOver) != (e == WatchFired && from != Absent && from != Exited) {
			bad("HandOver is the answer to the exit watch")
		}
		unseen := from == Absent && to == Stopped || from == Created && (e == ListedStopped || e == NotListed)
		if do.Has(FindLeftovers) != unseen {
			bad("FindLeftovers is for a container that may have run and ended unseen")
		}
		if do.Has(FindUndeclared) != (from == Absent && to == Running) {
			bad("FindUndeclared is an action if and only if the container ran before the plugin knew it")
		}
	})
}

// TestExitedIsFinal verifies that nothing but a removal follows Exited.
func TestExitedIsFinal(t *testing.T) {
	eachCell(func(from Phase, e Event, to Phase, do Actions) {
		if from == Exited && (to != Exited && to != Absent || do != 0) {
			t.Errorf("%v after the end leads to %v with %q", e, to, do)
		}
		if to == Exited && from != Exited && e != WatchFired {
			t.Errorf("%v in %v leads to Exited, which takes an exit watch", e, from)
		}
	})
}

// TestRemovalsForget verifies that each report of a removal leads to Absent with the same actions. A container
// that is not listed is an exception, because it can have run before.
func TestRemovalsForget(t *testing.T) {
	for p := range numPhases {
		_, want, _ := Next(p, RemoveContainer)
		for _, e := range []Event{RemoveContainer, RemovePodSandbox, NotListed} {
			if next, do, err := Next(p, e); err != nil || next != Absent || do&^FindLeftovers != want {
				t.Errorf("%v in %v leads to %v with %q, %v", e, p, next, do, err)
			}
		}
	}
}

// TestRepeats verifies that a repeated report changes nothing. NRI repeats StopContainer, and passes repeat
// their reports.
func TestRepeats(t *testing.T) {
	eachCell(func(_ Phase, e Event, to Phase, _ Actions) {
		next, do, err := Next(to, e)
		if e == CreateContainer {
			if !errors.Is(err, ErrUnexpected) {
				t.Errorf("a second CreateContainer is expected in %v", to)
			}
			return
		}
		if next != to || do != 0 || err != nil {
			t.Errorf("%v again in %v leads to %v with %q, %v", e, to, next, do, err)
		}
	})
}

// TestPhasesAreReachable verifies that events lead to each phase, and from there back.
func TestPhasesAreReachable(t *testing.T) {
	reached := map[Phase]bool{Absent: true}
	for range numPhases {
		eachCell(func(from Phase, _ Event, to Phase, _ Actions) { reached[to] = reached[to] || reached[from] })
	}
	for p := range numPhases {
		if !reached[p] {
			t.Errorf("no events lead to %v", p)
		}
	}
}

func TestUnexpected(t *testing.T) {
	for _, tt := range []struct {
		p Phase
		e Event
	}{{Running, CreateContainer}, {Created, WatchFired}, {-1, StopContainer}, {numPhases, StopContainer}, {Running, -1}, {Running, numEvents}} {
		next, do, err := Next(tt.p, tt.e)
		if next != tt.p || do != 0 || !errors.Is(err, ErrUnexpected) {
			t.Errorf("%v in %v: %v, %q, %v", tt.e, tt.p, next, do, err)
		}
	}
	_, _, err := Next(Running, CreateContainer)
	if want := "unexpected event: CreateContainer in phase Running"; err.Error() != want {
		t.Errorf("error %q, want %q", err, want)
	}
}

// TestContainer follows a container whose end the exit watch sees before the runtime reports it.
func TestContainer(t *testing.T) {
	var c Container
	for _, tt := range []struct {
		e    Event
		want Phase
		do   Actions
	}{
		{CreateContainer, Created, 0},
		{StartContainer, Starting, Begin},
		{CgroupPopulated, Running, 0},
		{WatchArmed, Watched, 0},
		{CgroupPopulated, Watched, 0},
		{WatchFired, Exited, HandOver | RecordExit},
		{StopContainer, Exited, 0},
		{ListedRunning, Exited, 0},
		{RemoveContainer, Absent, 0},
	} {
		do, err := c.Handle(tt.e)
		if c.Phase() != tt.want || do != tt.do || err != nil {
			t.Fatalf("%v: phase %v, actions %q, %v; want %v, %q", tt.e, c.Phase(), do, err, tt.want, tt.do)
		}
	}
	if _, err := c.Handle(-1); err == nil || c.Phase() != Absent {
		t.Errorf("an unknown event: phase %v, %v", c.Phase(), err)
	}
}

func TestDrainEvent(t *testing.T) {
	for _, tt := range []struct {
		do   Actions
		w    Writes
		want DrainEvent
		ok   bool
	}{
		{Begin | FindUndeclared, WritesUnknown, ContainerBegan, true},
		{RecordExit | LeaveNothing, WritesLimited, ContainerWritten, true},
		{RecordExit | LeaveData, WritesLimited, ContainerLeft, true},
		{RecordExit | LeaveData, WritesUnknown, ContainerLeft, true},
		{RecordExit | LeaveData, WritesUnlimited, ContainerWritten, true},
		{FindLeftovers, WritesUnknown, EndedUnseen, true},
		{HandOver | RecordExit, WritesLimited, 0, false},
		{0, WritesUnknown, 0, false},
	} {
		if got, ok := tt.do.DrainEvent(tt.w); got != tt.want || ok != tt.ok {
			t.Errorf("%q, %d: %v, %v", tt.do, tt.w, got, ok)
		}
	}
}

func TestNames(t *testing.T) {
	seen := map[string]bool{}
	check := func(name string) {
		if name == "" || seen[name] {
			t.Errorf("name %q", name)
		}
		seen[name] = true
	}
	for p := range numPhases {
		check(p.String())
	}
	for e := range numEvents {
		check(e.String())
	}
	for i := range actionNames {
		check(Actions(1 << i).String())
	}
	for p := range numDrainPhases {
		check("drain " + p.String())
	}
	for e := range numDrainEvents {
		check(e.String())
	}
	if numPhases.String() != "unknown phase" || numEvents.String() != "unknown event" {
		t.Error("values out of range have names")
	}
}
