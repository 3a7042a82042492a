package lifecycle

// Phase is the phase of a container.
type Phase int

// The phases of a container.
const (
	// Absent is a container that the plugin does not know: it is not created yet, its
	// creation was refused, or it was removed.
	Absent Phase = iota
	// Created is a container whose creation was answered and that has not started.
	Created
	// Starting is a container that starts and whose cgroup had no process yet. Mostly
	// that is over within StartContainer. A container that is restored from a checkpoint
	// gets its cgroup later.
	Starting
	// Running is a container that runs. The exit watch does not watch its cgroup.
	Running
	// Watched is a container that runs and whose cgroup the exit watch watches.
	Watched
	// Refused is a container whose start was refused. It counts as one that runs until
	// its end is reported: the runtime may have given up waiting for the refusal.
	Refused
	// Stopping is a container that is reported to have ended and whose cgroup the exit
	// watch still watches. The watch is about to fire.
	Stopping
	// Stopped is a container that is reported to have ended, without an exit watch.
	Stopped
	// Exited is a container whose last process ended, as the exit watch has seen.
	Exited

	numPhases
)

// String returns the name of the phase.
func (p Phase) String() string {
	names := [numPhases]string{"Absent", "Created", "Starting", "Running", "Watched", "Refused", "Stopping", "Stopped", "Exited"}
	if p < 0 || p >= numPhases {
		return "unknown phase"
	}
	return names[p]
}

// MayRun reports whether a process of the container may run. Then its cgroup has desired
// limits, and it counts for the backstop of its pod.
func (p Phase) MayRun() bool {
	return p == Starting || p == Running || p == Watched || p == Refused
}

// MayHaveStarted reports whether a pass checks the cgroup for a process. The container has none by the reports
// of the runtime, but the plugin can have missed one of these.
func (p Phase) MayHaveStarted() bool {
	return p == Created || p == Starting || p == Stopping || p == Stopped
}

// MayBeWatched reports whether the exit watch may watch the cgroup: it had a process. The
// watch takes a cgroup without one for a container that has ended.
func (p Phase) MayBeWatched() bool { return p == Running || p == Watched }
