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
