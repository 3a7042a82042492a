package lifecycle

import "strings"

// Only the tables in testdata and the errors of tests have these names.

var actionNames = [...]string{"Begin", "FindUndeclared", "LeaveNothing", "LeaveData", "HandOver", "RecordExit", "FindLeftovers"}

// String returns the names of the actions, separated by commas.
func (a Actions) String() string {
	var out []string
	for i, name := range actionNames {
		if a.Has(1 << i) {
			out = append(out, name)
		}
	}
	return strings.Join(out, ", ")
}

// String returns the name of the phase.
func (p DrainPhase) String() string {
	names := [numDrainPhases]string{"Unused", "InUse", "InUseLeftovers", "Leftovers", "LeftoversClean", "Drained"}
	if p < 0 || p >= numDrainPhases {
		return "unknown phase"
	}
	return names[p]
}

// String returns the name of the event.
func (e DrainEvent) String() string {
	names := [numDrainEvents]string{"ContainerBegan", "ContainerWritten", "ContainerLeft", "EndedUnseen", "PodChanged", "KernelClean", "KernelDirty"}
	if e < 0 || e >= numDrainEvents {
		return "unknown event"
	}
	return names[e]
}
