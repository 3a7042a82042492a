package lifecycle

// Actions is a set of actions that a transition of a container asks for.
type Actions uint8

// The actions of a transition.
const (
	// Begin opens the container in the drain of its pod: from now on it may write.
	Begin Actions = 1 << iota
	// FindUndeclared makes the plugin find undeclared disks of the container before it writes limits.
	FindUndeclared
	// LeaveNothing closes the container in the drain: it did not run.
	LeaveNothing
	// LeaveData closes the container in the drain: its data may not be on its disk.
	LeaveData
	// HandOver lifts the limits of the container's cgroup, syncs its filesystems, and
	// closes the container in the drain by the result.
	HandOver
	// RecordExit records the end of the container in the record of its pod. Together
	// with HandOver it records whether the limits were lifted.
	RecordExit
	// FindLeftovers makes the drain of the pod wait for the data of a container that ended unseen.
	FindLeftovers
)

// Has reports whether the set contains an action.
func (a Actions) Has(one Actions) bool { return a&one != 0 }

// Writes is whether limits hold for the writes of a container.
type Writes int

// The values of Writes.
const (
	WritesUnknown   Writes = iota // no exit plan was computed
	WritesUnlimited               // neither the container nor its pod has a limit on writes
	WritesLimited
)

// DrainEvent returns the event of the pod's drain that the actions ask for, and false if
// they ask for none. A HandOver causes its event later, when the syncs have ended. Data
// that no limit holds back is none that the drain waits for.
func (a Actions) DrainEvent(w Writes) (DrainEvent, bool) {
	switch {
	case a.Has(Begin):
		return ContainerBegan, true
	case a.Has(FindLeftovers):
		return EndedUnseen, true
	case a.Has(LeaveNothing), a.Has(LeaveData) && w == WritesUnlimited:
		return ContainerWritten, true
	case a.Has(LeaveData):
		return ContainerLeft, true
	}
	return 0, false
}
