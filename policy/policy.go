package policy

import (
	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// Mode selects whether limits are enforced or only reported.
type Mode string

const (
	// ModeEnforce puts limits into force.
	ModeEnforce Mode = "enforce"
	// ModeObserve only decides and reports.
	ModeObserve Mode = "observe"
)

// Action is the reaction to an error.
type Action string

const (
	// Reject fails the container's creation.
	Reject Action = "reject"
	// Ignore lets the container start, and reports the error in the log, status and
	// metrics.
	Ignore Action = "ignore"
)

// OnError has the action for each kind of error.
type OnError struct {
	// The annotation cannot be parsed, contradicts itself, or is out of bounds.
	Invalid Action `json:"invalid"`
	// The node cannot enforce it, such as a limit on tmpfs or NFS.
	Unenforceable Action `json:"unenforceable"`
	// The plugin itself fails or is too slow. With `reject`, the runtime also fails a call that the plugin does not
	// answer (nri 0.12.4 or later). A change of this value makes the plugin register again.
	Internal Action `json:"internal"`
}

// Floors has the smallest rates that pods may request. Under much lower rates a container can stay in
// uninterruptible sleep, in which it cannot be killed.
type Floors struct {
	Bps  blkio.Amount // bytes per second
	Iops blkio.Amount // operations per second
}

// minRate is the smallest rate that the kernel takes (tg_set_limit in
// block/blk-throttle.c).
const minRate blkio.Amount = 2

// of returns the floor of a key; never less than the kernel's own.
func (f Floors) of(k blkio.Key) blkio.Amount {
	if k.IsBytes() {
		return max(f.Bps, minRate)
	}
	return max(f.Iops, minRate)
}

// Policy is the policy of a node. It has no useful zero value: take Default or
// ParseFile.
type Policy struct {
	Mode    Mode
	OnError OnError
	Floors  Floors
	Bounds  Bounds // for pods whose rule has none of its own
	// Bursts is the most that bursts may take on each disk together, above the limits. A key that is Unset has no bursts.
	Bursts    blkio.Limits
	Classes   map[string]*Class
	Rules     []Rule // for pods; the first one that matches a pod counts
	Budgets   []NamespaceBudget
	Writeback Writeback
	// Disks are rules for io.cost; the first one that matches a disk counts.
	Disks []DiskRule
	// Reserve is the share of each disk that everything outside pods has while it asks for it.
	Reserve blkio.Percent
	// HostKernelHandlers are the runtime handlers that run containers on the host's kernel.
	// "" is the handler of pods without a RuntimeClass.
	HostKernelHandlers []string
}

// Default returns the policy of a node that has no policy file.
func Default() *Policy {
	const batch = "batch" // for work that can wait
	weights := annotation.WeightOfAll("classes."+batch, 10)
	return &Policy{
		Mode:    ModeEnforce,
		OnError: OnError{Invalid: Reject, Unenforceable: Reject, Internal: Ignore},
		Floors:  Floors{Bps: 64 << 10, Iops: 8},
		Bounds:  Bounds{MaxWeight: blkio.DefaultWeight},
		Classes: map[string]*Class{batch: {Name: batch, weights: weights, targets: weights.Targets()}},
		Writeback: Writeback{
			Backstop: true, HandOver: true, Repair: RepairAuto, Contested: Majority,
			Budget: Budget{FilesPerSecond: 100, ExtraBps: 16 << 20, CPU: 10},
		},
		HostKernelHandlers: []string{
			"", "runc", "crun", "youki", "nvidia", "nvidia-cdi", "nvidia-legacy",
		},
	}
}

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
