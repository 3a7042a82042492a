// Package lifecycle holds the phases of a container, and of the drain of its pod, as two
// tables. Each row is a phase, each column an event, and each cell the next phase with
// the actions that the caller takes. The package does no I/O, takes no lock, and reads
// no clock.
//
// A Container follows the phases of one container. Its events are the requests of NRI,
// the lists of Synchronize, the state of the container's cgroup, and the exit watch:
//
//	CreateContainer ─► Created ─► Starting ─► Running ─► Watched ─► Exited
//	                     │           │           │          │          ▲
//	                     │        Refused        │          ▼          │
//	                     └───────────┴────────► Stopped ◄─ Stopping ───┘
//
// Stopped means that the runtime, or the absence of the cgroup, reports the end. The
// kernel can contradict that: a process in the cgroup makes the container run again.
// Exited means that the exit watch saw the last process end, and is final.
//
// A Drain follows the pod's data. It begins with the pod's first container, and ends as
// Drained once no container runs and none has left data that is not on its disk. Until
// then the pod's cgroup keeps its limits.
package lifecycle
