package policy

// Writeback configures backstop, hand-over and repair.
type Writeback struct {
	// Backstop gives the pod's cgroup the sum of what its containers were
	// granted.
	Backstop bool
	// HandOver lifts the limits of a container that has ended before its
	// cgroup goes, and syncs its volumes.
	HandOver bool
	// DirtyGuard is the memory.high, in bytes, of containers that have a write
	// limit and no memory limit. 0: none.
	DirtyGuard uint64
	// Repair moves files to the writeback of their writers, where a limit is concerned.
	Repair Repair
	// Contested selects the owner of a file with several writers.
	Contested Contested
	// Budget is what Repair may take.
	Budget Budget
}

// Repair is whether files are moved to the writeback of their writers. That runs code of
// the kernel which has bugs that crash nodes, so the default depends on the kernel.
type Repair string

const (
	// RepairAuto moves files where the kernel is known to contain the corrections.
	RepairAuto Repair = "auto"
	// RepairOn moves files on any kernel.
	RepairOn Repair = "true"
	// RepairOff moves no files.
	RepairOff Repair = "false"
)

// Moves reports whether files are moved on a kernel that is, or is not, known to contain
// the corrections.
func (r Repair) Moves(corrected bool) bool { return r == RepairOn || r == RepairAuto && corrected }

// Contested is a rule for files that several write to, whose limits differ.
type Contested string

const (
	// Majority moves a file to its majority writer.
	Majority Contested = "majority"
	// Strict moves a file to the writer with the smallest limit.
	Strict Contested = "strict"
)

// Budget bounds the work of repair on the node.
type Budget struct {
	FilesPerSecond int    // that are begun with
	ExtraBps       uint64 // bytes per second that are written out early, on all disks
	CPU            int    // percent of one; the unused is saved up for ten seconds
}

// minGuard is less than which a container cannot be expected to run at all.
const minGuard = 16 << 20

// minExtra is what one vote may write out.
const minExtra = 64 << 10
