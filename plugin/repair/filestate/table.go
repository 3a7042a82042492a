package filestate

// cell is the transition of one state by one event, and the one while the file rests.
type cell struct{ rested, resting transition }

type transition struct {
	to State
	do Actions
}

func always(to State, do Actions) cell {
	return cell{transition{to, do}, transition{to, do}}
}

func byRest(rested, resting transition) cell { return cell{rested, resting} }

// row is the transitions of one state.
type row [numEvents]cell

// rowOf returns the transitions of a state: those of most states, and how the state
// differs.
func rowOf(s State) row {
	stay := always(s, 0)
	r := row{
		TooFewBytes:     stay,
		Placed:          always(Right, Forget),
		PlacedContested: always(Contested, Forget),
		Misplaced:       byRest(transition{Waiting, Move}, transition{Waiting, 0}),
		Began:           always(Repairing, BeginRepair),
		Paused:          stay,
		Failure:         always(Failed, Rest),
	}
	switch s {
	case Repairing:
		r[TooFewBytes] = always(Interrupted, 0)
		r[Misplaced] = always(Repairing, Move)
		r[Began] = stay
		r[Paused] = always(Waiting, 0)
	case Interrupted:
		r[Misplaced] = byRest(transition{Interrupted, Move}, transition{Interrupted, 0})
		r[Paused] = always(Waiting, 0)
	case Failed: // the pages that others are charged for may be there still
		resting := transition{Failed, 0}
		r[Placed].resting, r[PlacedContested].resting, r[Misplaced].resting = resting, resting, resting
	}
	if s == Repairing || s == Interrupted {
		r[Placed] = always(Right, EndRepair|Forget)
		r[PlacedContested] = always(Contested, EndRepair|Forget)
	}
	return r
}

// Next returns the state of a file after an event, and the actions of the transition.
// resting is true while passes leave the file alone.
func Next(s State, e Event, resting bool) (State, Actions) {
	c := rowOf(s)[e].rested
	if resting {
		c = rowOf(s)[e].resting
	}
	return c.to, c.do
}

// File is the state of one file. Its zero value is Right. Only its events change it. It is
// not safe for concurrent use.
type File struct{ state State }

// State returns the current state.
func (f File) State() State { return f.state }

// Handle makes the transition of an event, and returns the actions that the caller takes.
// resting is true while passes leave the file alone.
func (f *File) Handle(e Event, resting bool) (do Actions) {
	f.state, do = Next(f.state, e, resting)
	return do
}

// State is the state of a file.
type State int

// The states of a file.
const (
	// Right is a file that its writer owns, or for which no limit depends on the owner.
	Right State = iota
	// Contested is a file with several writers that has its desired owner.
	Contested
	// Waiting is a file that has not its desired owner, and that no pass has begun to move.
	Waiting
	// Interrupted is a file that a pass has begun to move, and that was not written to
	// enough since then to choose an owner. If the kernel moves it now, the pass has moved
	// it.
	Interrupted
	// Repairing is a file that passes move.
	Repairing
	// Failed is a file that could not be moved. Passes try again after a rest.
	Failed

	numStates
)

// Event is an event of a file.
type Event int

// The events of a file. The first four are the results of a comparison of the file's owner
// with its recent writers.
const (
	// TooFewBytes are writes that are too few to choose an owner.
	TooFewBytes Event = iota
	// Placed is a file with one writer, which owns it, or a file for which no limit depends on the owner.
	Placed
	// PlacedContested is a file with several writers that has its desired owner.
	PlacedContested
	// Misplaced is a file that has not its desired owner.
	Misplaced

	// Began is a pass that begins to move the file.
	Began
	// Paused is a change of the policy or of the kernel's verdict, after which no file is
	// moved.
	Paused
	// Failure is an error of a pass, or the end of the time that a repair may take.
	Failure

	numEvents
)

// Actions is a set of actions that a transition asks for.
type Actions uint8

// The actions of a transition.
const (
	// Move makes a pass move the file.
	Move Actions = 1 << iota
	// BeginRepair records the time and the owner, because a repair begins.
	BeginRepair
	// EndRepair ends the repair. The file counts as moved if its owner has changed since
	// BeginRepair.
	EndRepair
	// Forget clears the time since which the file is misplaced, and its failure.
	Forget
	// Rest makes passes leave the file alone for a time.
	Rest

	numActions = iota // for tests
)

// Has reports whether the set contains an action.
func (a Actions) Has(one Actions) bool { return a&one != 0 }
