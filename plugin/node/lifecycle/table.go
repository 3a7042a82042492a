package lifecycle

// cell is the transition of one phase by one event. Its zero value is a pair that the
// runtime and the plugin never produce.
type cell struct {
	expected bool
	to       Phase
	do       Actions
}

func to(p Phase, do Actions) cell { return cell{true, p, do} }

// row is the transitions of one phase.
type row [numEvents]cell

// rowOf returns the transitions of a phase. A row has a cell for each event, except for unexpected ones.
// Unexpected are CreateContainer of a container that the plugin knows, and a refused start or an exit watch of
// a container that has not started.
func rowOf(p Phase) row {
	switch p {
	case Created:
		return createdRow()
	case Starting:
		return startingRow()
	case Running:
		return runningRow()
	case Watched:
		return watchedRow()
	case Refused:
		return refusedRow()
	case Stopping:
		return stoppingRow()
	case Stopped:
		return stoppedRow()
	case Exited:
		return exitedRow()
	}
	return absentRow()
}

// absentRow returns the transitions of an unknown container. It expects events of containers that were removed
// while work for them was under way, and the two ways in which a container becomes known late.
func absentRow() row {
	stay := to(Absent, 0)
	return row{
		CreateContainer: to(Created, 0),
		StartContainer:  to(Starting, Begin),
		StartRefused:    stay, StopContainer: stay, RemoveContainer: stay, RemovePodSandbox: stay,
		ListedCreated: to(Created, 0),
		ListedRunning: to(Running, Begin|FindUndeclared),
		ListedStopped: to(Stopped, FindLeftovers),
		NotListed:     stay, CgroupPopulated: stay, CgroupMissing: stay,
		WatchArmed: stay, WatchFired: stay, WatchLost: stay,
	}
}

// createdRow returns the transitions of a created container. It asks for leftovers where a list shows that the
// container has ended, because the container may have run while the plugin was not connected.
func createdRow() row {
	stay, gone := to(Created, 0), to(Absent, 0)
	return row{
		StartContainer:  to(Starting, Begin),
		StopContainer:   to(Stopped, 0),
		RemoveContainer: gone, RemovePodSandbox: gone,
		NotListed:       to(Absent, FindLeftovers),
		ListedCreated:   stay,
		ListedRunning:   to(Running, Begin),
		ListedStopped:   to(Stopped, FindLeftovers),
		CgroupPopulated: to(Running, Begin), // its start was missed
		CgroupMissing:   stay, WatchLost: stay,
	}
}

func startingRow() row {
	stay, stopped, gone := to(Starting, 0), to(Stopped, RecordExit|LeaveData), to(Absent, RecordExit|LeaveData)
	return row{
		StartContainer:  stay,
		StartRefused:    to(Refused, 0),
		StopContainer:   stopped,
		RemoveContainer: gone, RemovePodSandbox: gone, NotListed: gone,
		ListedCreated:   stay,
		ListedRunning:   to(Running, 0),
		ListedStopped:   stopped,
		CgroupPopulated: to(Running, 0),
		CgroupMissing:   stay, // it is not made yet
		WatchArmed:      to(Watched, 0),
		WatchFired:      to(Exited, HandOver|RecordExit),
		WatchLost:       stay,
	}
}

func runningRow() row {
	stay, stopped, gone := to(Running, 0), to(Stopped, RecordExit|LeaveData), to(Absent, RecordExit|LeaveData)
	return row{
		StartContainer:  stay,
		StartRefused:    to(Refused, 0),
		StopContainer:   stopped,
		RemoveContainer: gone, RemovePodSandbox: gone, NotListed: gone,
		ListedCreated: stay, ListedRunning: stay, CgroupPopulated: stay,
		ListedStopped: stopped,
		CgroupMissing: stopped,
		WatchArmed:    to(Watched, 0),
		WatchFired:    to(Exited, HandOver|RecordExit),
		WatchLost:     stay,
	}
}

// watchedRow leaves the record of the end to the exit watch, which knows whether the
// limits were lifted. The watch fires for a cgroup that was removed as well.
func watchedRow() row {
	stay, stopping, gone := to(Watched, 0), to(Stopping, 0), to(Absent, RecordExit|LeaveData)
	return row{
		StartContainer: stay, StartRefused: stay,
		StopContainer:   stopping,
		RemoveContainer: gone, RemovePodSandbox: gone, NotListed: gone,
		ListedCreated: stay, ListedRunning: stay, CgroupPopulated: stay,
		ListedStopped: stopping,
		CgroupMissing: stopping,
		WatchArmed:    stay,
		WatchFired:    to(Exited, HandOver|RecordExit),
		WatchLost:     to(Running, 0),
	}
}

func refusedRow() row {
	stay, stopped, gone := to(Refused, 0), to(Stopped, RecordExit|LeaveNothing), to(Absent, RecordExit|LeaveNothing)
	return row{
		StartContainer:  to(Starting, 0),
		StartRefused:    stay,
		StopContainer:   stopped,
		RemoveContainer: gone, RemovePodSandbox: gone, NotListed: gone,
		ListedCreated:   stay,
		ListedRunning:   to(Running, 0), // the refusal was not heard
		ListedStopped:   stopped,
		CgroupPopulated: stay, // by the process that waits for the start
		CgroupMissing:   stopped,
		WatchArmed:      to(Watched, 0),
		WatchFired:      to(Exited, HandOver|RecordExit),
		WatchLost:       stay,
	}
}

// stoppingRow keeps the container open in the drain until the exit watch fires or ends.
func stoppingRow() row {
	stay, watched, gone := to(Stopping, 0), to(Watched, 0), to(Absent, RecordExit|LeaveData)
	return row{
		StartContainer: watched,
		StartRefused:   stay, StopContainer: stay,
		RemoveContainer: gone, RemovePodSandbox: gone, NotListed: gone,
		ListedCreated:   stay,
		ListedRunning:   watched,
		ListedStopped:   stay,
		CgroupPopulated: watched,
		CgroupMissing:   stay, WatchArmed: stay,
		WatchFired: to(Exited, HandOver|RecordExit),
		WatchLost:  to(Stopped, RecordExit|LeaveData),
	}
}

// stoppedRow follows the kernel where it contradicts the report of the end. A watch that
// was armed during that report still fires, and still lifts the limits.
func stoppedRow() row {
	stay, gone := to(Stopped, 0), to(Absent, 0)
	return row{
		StartContainer: to(Starting, Begin),
		StartRefused:   stay, StopContainer: stay,
		RemoveContainer: gone, RemovePodSandbox: gone, NotListed: gone,
		ListedCreated:   stay,
		ListedRunning:   to(Running, Begin),
		ListedStopped:   stay,
		CgroupPopulated: to(Running, Begin),
		CgroupMissing:   stay, WatchArmed: stay,
		WatchFired: to(Exited, HandOver),
		WatchLost:  stay,
	}
}

// exitedRow returns the transitions of an exited container. It is final until the container is removed: a list
// or a start that contradicts the exit is older than the exit.
func exitedRow() row {
	stay, gone := to(Exited, 0), to(Absent, 0)
	return row{
		StartContainer: stay, StartRefused: stay, StopContainer: stay,
		RemoveContainer: gone, RemovePodSandbox: gone, NotListed: gone,
		ListedCreated: stay, ListedRunning: stay, ListedStopped: stay,
		CgroupPopulated: stay, CgroupMissing: stay,
		WatchArmed: stay, WatchFired: stay, WatchLost: stay,
	}
}
