package filestate

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
