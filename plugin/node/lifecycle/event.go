package lifecycle

// Event is an event of a container.
type Event int

// The events of a container. Those of NRI have NRI's names.
const (
	// CreateContainer is a creation that was answered with limits. A creation that was
	// refused, or that the runtime has given up, is no event: the container stays Absent.
	CreateContainer Event = iota
	// StartContainer is the request before the first instruction of the container.
	StartContainer
	// StartRefused is the plugin's answer to StartContainer, if that is a refusal.
	StartRefused
	// StopContainer is the report that the container has ended.
	StopContainer
	// RemoveContainer is the report that the runtime has removed the container.
	RemoveContainer
	// RemovePodSandbox is the report that the runtime has removed the sandbox, or the
	// absence of the pod's cgroup.
	RemovePodSandbox

	// ListedCreated, ListedRunning and ListedStopped are the states of a container that
	// Synchronize lists.
	ListedCreated
	ListedRunning
	ListedStopped
	// NotListed is the absence of a container, or of its sandbox, from the lists of
	// Synchronize.
	NotListed

	// CgroupPopulated is a process that was seen in the cgroup.
	CgroupPopulated
	// CgroupMissing is a cgroup that a write did not find: it is not made yet, or removed.
	CgroupMissing

	// WatchArmed is the exit watch, which watches the cgroup from now on.
	WatchArmed
	// WatchFired is the exit watch, which saw the last process of the cgroup end.
	WatchFired
	// WatchLost is the end of the exit watch, which watches no cgroup any more.
	WatchLost

	numEvents
)

// String returns the name of the event.
func (e Event) String() string {
	names := [numEvents]string{
		"CreateContainer", "StartContainer", "StartRefused", "StopContainer", "RemoveContainer", "RemovePodSandbox",
		"ListedCreated", "ListedRunning", "ListedStopped", "NotListed",
		"CgroupPopulated", "CgroupMissing", "WatchArmed", "WatchFired", "WatchLost",
	}
	if e < 0 || e >= numEvents {
		return "unknown event"
	}
	return names[e]
}
