package filestate

import "strings"

// Actions is a set of actions that a transition asks for.
type Actions uint8

// The actions of a transition.
const (
	// Move has a pass move the file.
	Move Actions = 1 << iota
	// BeginRepair notes the time and the owner: a repair begins.
	BeginRepair
	// EndRepair ends the repair. The file counts as moved if its owner has changed since
	// BeginRepair.
	EndRepair
	// Forget forgets since when the file is misplaced, and its failure.
	Forget
	// Rest has no pass move the file for a time.
	Rest

	numActions = iota
)

// Has reports whether the set contains an action.
func (a Actions) Has(one Actions) bool { return a&one != 0 }

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
