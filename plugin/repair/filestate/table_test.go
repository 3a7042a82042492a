package filestate

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestTable compares each pair of a state and an event with the table in testdata. So a change of the code is a
// change of a reviewed text. With UPDATE=1 in the environment it writes the table instead.
func TestTable(t *testing.T) {
	var out strings.Builder
	for s := range numStates {
		fmt.Fprintf(&out, "%v\n", s)
		for e := range numEvents {
			to, do := Next(s, e, false)
			line := fmt.Sprintf("  %-15v %-11v %v", e, to, do)
			if toResting, doResting := Next(s, e, true); toResting != to || doResting != do {
				line = fmt.Sprintf("%-40s while it rests: %v %v", line, toResting, doResting)
			}
			out.WriteString(strings.TrimRight(line, " ") + "\n")
		}
	}
	file := filepath.Join("testdata", "file.txt")
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(file, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), out.String()); diff != "" {
		t.Errorf("%s is not the table of the code, UPDATE=1 writes it anew (-file +code):\n%s", file, diff)
	}
}

// eachCell calls fn for each state, event and rest.
func eachCell(fn func(from State, e Event, resting bool, to State, do Actions)) {
	for s := range numStates {
		for e := range numEvents {
			for _, resting := range []bool{false, true} {
				to, do := Next(s, e, resting)
				fn(s, e, resting, to, do)
			}
		}
	}
}

func isPlaced(s State) bool { return s == Right || s == Contested }

// hasBegun reports whether a pass has begun to move the file.
func hasBegun(s State) bool { return s == Repairing || s == Interrupted }

// TestActionsFollowStates derives the actions of each cell from its states and its event.
func TestActionsFollowStates(t *testing.T) {
	eachCell(func(from State, e Event, resting bool, to State, do Actions) {
		want := func(a Actions, is bool, why string) {
			if do.Has(a) != is {
				t.Errorf("%v in %v (resting %v) leads to %v with %q: %s", e, from, resting, to, do, why)
			}
		}
		want(BeginRepair, to == Repairing && from != Repairing, "a repair begins with each way to Repairing")
		want(EndRepair, hasBegun(from) && isPlaced(to), "a repair that has begun ends where the file is placed")
		want(Forget, (e == Placed || e == PlacedContested) && isPlaced(to), "only a file that is placed is misplaced no more")
		want(Rest, e == Failure, "each failure, and nothing but a failure, is followed by a rest")
		want(Move, e == Misplaced && (!resting || from == Repairing), "a misplaced file is moved unless it rests")
	})
}

// TestEventsLeadToStates verifies that the last event that decides on a state decides it, whatever the state
// before.
func TestEventsLeadToStates(t *testing.T) {
	eachCell(func(from State, e Event, resting bool, to State, _ Actions) {
		rests := from == Failed && resting
		var want State
		switch {
		case e == Began:
			want = Repairing
		case e == Failure:
			want = Failed
		case e == Placed && !rests:
			want = Right
		case e == PlacedContested && !rests:
			want = Contested
		case e == Misplaced && !rests && !hasBegun(from), e == Paused && hasBegun(from):
			want = Waiting
		case e == TooFewBytes && from == Repairing:
			want = Interrupted
		default:
			want = from
		}
		if to != want {
			t.Errorf("%v in %v (resting %v) leads to %v, want %v", e, from, resting, to, want)
		}
	})
}

// TestRepeats verifies that a repeated event changes no state, and ends or begins no second repair. Files are
// compared repeatedly, and each pass over a file begins.
func TestRepeats(t *testing.T) {
	eachCell(func(from State, e Event, resting bool, to State, _ Actions) {
		again, do := Next(to, e, resting)
		if again != to || do.Has(BeginRepair|EndRepair) {
			t.Errorf("%v twice in %v (resting %v): %v with %q, after %v", e, from, resting, again, do, to)
		}
	})
}

// TestStatesAreReachable verifies that events lead from each state to each state.
func TestStatesAreReachable(t *testing.T) {
	for start := range numStates {
		reached := map[State]bool{start: true}
		for range numStates {
			eachCell(func(from State, _ Event, _ bool, to State, _ Actions) { reached[to] = reached[to] || reached[from] })
		}
		for s := range numStates {
			if !reached[s] {
				t.Errorf("no events lead from %v to %v", start, s)
			}
		}
	}
}

// TestHistories verifies all histories of five events. Repairs begin and end in turn, a file that a pass moves
// was misplaced before, and no repair begins by itself while the file rests after a failure.
func TestHistories(t *testing.T) {
	var walk func(f File, begun bool, history []Event)
	walk = func(f File, begun bool, history []Event) {
		if len(history) == 5 {
			return
		}
		for e := range numEvents {
			for _, resting := range []bool{false, true} {
				next := f
				do := next.Handle(e, resting)
				now := begun
				if do.Has(EndRepair) && !begun {
					t.Errorf("%v, %v: a repair ends that has not begun", history, e)
				}
				switch {
				case do.Has(BeginRepair):
					now = true
				case do.Has(EndRepair|Rest) || e == Paused:
					now = false
				}
				if now != hasBegun(next.State()) {
					t.Errorf("%v, %v: %v, a repair has begun: %v", history, e, next.State(), now)
				}
				if do.Has(Move) && (e != Misplaced || isPlaced(next.State()) || resting && f.State() == Failed) {
					t.Errorf("%v, %v: %v is moved", history, e, next.State())
				}
				walk(next, now, append(slices.Clip(history), e))
			}
		}
	}
	walk(File{}, false, nil)
}

// TestFile is the life of a file that is moved at the second attempt.
func TestFile(t *testing.T) {
	var f File
	for i, tt := range []struct {
		e       Event
		resting bool
		want    State
		do      Actions
	}{
		{TooFewBytes, false, Right, 0},
		{Misplaced, false, Waiting, Move},
		{Began, false, Repairing, BeginRepair},
		{Misplaced, false, Repairing, Move},
		{Began, false, Repairing, 0},
		{Failure, false, Failed, Rest},
		{Misplaced, true, Failed, 0},
		{Placed, true, Failed, 0},
		{Misplaced, false, Waiting, Move},
		{Began, false, Repairing, BeginRepair},
		{TooFewBytes, false, Interrupted, 0},
		{Placed, false, Right, EndRepair | Forget},
		{Misplaced, true, Waiting, 0},
		{PlacedContested, true, Contested, Forget},
	} {
		if do := f.Handle(tt.e, tt.resting); do != tt.do || f.State() != tt.want {
			t.Fatalf("step %d, %v: %v with %q, want %v with %q", i, tt.e, f.State(), do, tt.want, tt.do)
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
	for s := range numStates {
		check(s.String())
	}
	for e := range numEvents {
		check(e.String())
	}
	for i := range numActions {
		check(Actions(1 << i).String())
	}
	if got := (Move | Rest).String(); got != "Move, Rest" {
		t.Errorf("a set is %q", got)
	}
}

// String returns the name of the state.
func (s State) String() string {
	names := [numStates]string{"Right", "Contested", "Waiting", "Interrupted", "Repairing", "Failed"}
	return names[s]
}

// String returns the name of the event.
func (e Event) String() string {
	names := [numEvents]string{"TooFewBytes", "Placed", "PlacedContested", "Misplaced", "Began", "Paused", "Failure"}
	return names[e]
}

// String returns the names of the actions, separated by commas.
func (a Actions) String() string {
	names := [numActions]string{"Move", "BeginRepair", "EndRepair", "Forget", "Rest"}
	var out []string
	for i, name := range names {
		if a.Has(1 << i) {
			out = append(out, name)
		}
	}
	return strings.Join(out, ", ")
}
