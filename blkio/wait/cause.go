package wait

import (
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// Cause is what I/O, or a thread, waits for. The numbers are those of the program.
type Cause uint16

// The causes. [Limit], [Scheduler] and [Device] count the time of I/O, and the others that of threads.
const (
	Limit       Cause = iota // the io.max of the cgroup Place.By, which is an ancestor or the cgroup itself
	Cost                     // io.cost: a thread waits for its cgroup's turn
	DirtyNode                // dirty pages: the node has too many
	DirtyCgroup              // dirty pages: the cgroup has too many for its memory
	Journal                  // a commit of the journal of ext4, or of the log of XFS
	Writeback                // pages under writeback that are queued for the cgroup Place.By, the owner of the file
	Queue                    // a tag of the disk's queue
	Scheduler                // from the allocation of a request until the device has it
	Device                   // from there until it is completed
	IO                       // I/O that none of the others names: a read, a direct write, a bio of its own
	Async                    // completions of io_uring or Linux AIO: of I/O, or of what else the thread asked for
	numCauses
)

var causeNames = [numCauses]string{ // constant
	"limit", "share by io.cost", "dirty pages of the node", "dirty pages of the cgroup", "journal", "writeback", "queue", "scheduler", "device", "I/O", "completions",
}

// String returns the name of the cause.
func (c Cause) String() string { return causeNames[c] }

// Op is what I/O does. The numbers are those of the program.
type Op uint16

// The operations. That of a thread is None. Direct is a write that its thread waits for, and WriteOut another one, mostly of
// dirty pages. A discard or a flush counts as a WriteOut.
const (
	None Op = iota
	Read
	Direct
	WriteOut
	numOps
)

// Place is where time was spent.
type Place struct {
	Cause  Cause
	Op     Op
	Cgroup uint64    // ID of the cgroup that the I/O is charged to, or that the thread is in
	By     uint64    // ID of the cgroup that is waited for; 0: none, or unknown
	Dev    blkio.Dev // the whole disk; zero: unknown
}

// Time is the time that was spent at a place.
type Time struct {
	// Sum has the time of each bio, request or thread.
	Sum time.Duration
	// Wall is the time during which at least one bio was held. Only Limit has it.
	Wall  time.Duration
	Count uint64 // waits that ended
}

func (t Time) sub(earlier Time) Time {
	return Time{max(0, t.Sum-earlier.Sum), max(0, t.Wall-earlier.Wall), t.Count - earlier.Count}
}

func (t Time) add(o Time) Time { return Time{t.Sum + o.Sum, t.Wall + o.Wall, t.Count + o.Count} }

// Times is what was counted in some time.
type Times struct {
	Duration time.Duration
	At       map[Place]Time
	// Mixed is true if IO has the time of causes that the kernel hides: their threads wait in the same function.
	Mixed bool
	// Lost is the number of waits that were not counted: for lack of room, or because a program was interrupted by
	// itself. Other times are right, but low.
	Lost uint64
	// Full is true if there is no room for a further cgroup or cause. Those of cgroups that have ended take room until the
	// observer is closed.
	Full bool
}

// Since returns what was counted since an earlier reading of the same observer.
func (t Times) Since(earlier Times) Times {
	out := Times{Duration: t.Duration - earlier.Duration, At: make(map[Place]Time, len(t.At)), Mixed: t.Mixed, Lost: t.Lost - earlier.Lost, Full: t.Full}
	for place, time := range t.At {
		if d := time.sub(earlier.At[place]); d.Sum > 0 || d.Count > 0 {
			out.At[place] = d
		}
	}
	return out
}
