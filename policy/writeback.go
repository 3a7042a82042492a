package policy

// Writeback configures backstop, hand-over and repair.
type Writeback struct {
	// Backstop limits the pod's cgroup to the sum of its containers' limits, see
	// [Backstop].
	Backstop bool
	// HandOver lifts the limits of an ended container before its cgroup is removed, and
	// syncs its volumes.
	HandOver bool
	// DirtyGuard is the memory.high, in bytes, for containers with a write limit and
	// without a memory limit. 0 sets none.
	DirtyGuard uint64
	// Repair moves files to their writers, where a limit depends on the owner.
	Repair Repair
	// Contested selects the owner of a file with several writers.
	Contested Contested
	// Budget bounds the work of Repair.
	Budget Budget
}

// Repair selects whether files are moved to their writers. Moving files runs code of the
// kernel that had bugs which crash nodes, so the default depends on the kernel.
type Repair string

const (
	// RepairAuto moves files where the kernel is known to contain the corrections.
	RepairAuto Repair = "auto"
	// RepairOn moves files on any kernel.
	RepairOn Repair = "true"
	// RepairOff moves no files.
	RepairOff Repair = "false"
)

// Moves reports whether files are moved. corrected is true if the kernel is known to
// contain the corrections.
func (r Repair) Moves(corrected bool) bool { return r == RepairOn || r == RepairAuto && corrected }

// Contested selects the desired owner of a contested file.
type Contested string

const (
	// Majority moves a file to its majority writer.
	Majority Contested = "majority"
	// Strict moves a file to the writer with the smallest limit.
	Strict Contested = "strict"
)

// Budget bounds the work of repair on the node.
type Budget struct {
	FilesPerSecond int    // files whose move begins
	ExtraBps       uint64 // bytes per second that are written out early, on all disks together
	CPU            int    // percent of one CPU; up to ten seconds of unused budget are saved
}

// minGuard is less than which a container cannot be expected to run at all.
const minGuard = 16 << 20

// minExtra is the number of bytes that one vote may write out.
const minExtra = 64 << 10
