package policy

import "github.com/nri-blkio/nri-blkio/blkio"

// Mode selects whether limits are enforced or only reported.
type Mode string

const (
	// ModeEnforce carries limits out.
	ModeEnforce Mode = "enforce"
	// ModeObserve decides and reports only.
	ModeObserve Mode = "observe"
)

// Action is what to do about an error.
type Action string

const (
	// Reject fails the container's creation.
	Reject Action = "reject"
	// Ignore lets the container start, and reports the error in the log, status and
	// metrics.
	Ignore Action = "ignore"
)

// OnError has an action for each cause of an error.
type OnError struct {
	Invalid       Action `json:"invalid"`
	Unenforceable Action `json:"unenforceable"`
	Internal      Action `json:"internal"`
}

// Floors are the smallest rates that may be asked for. A container under much
// lower ones can hang in uninterruptible sleep, where nothing can kill it.
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
	Mode      Mode
	OnError   OnError
	Floors    Floors
	Bounds    Bounds
	Writeback Writeback
	// HostKernelHandlers are the runtime handlers that are known to run
	// containers on the host's own kernel. "" is the runtime's default.
	HostKernelHandlers []string
}

// Default returns the policy of a node that has no policy file.
func Default() *Policy {
	return &Policy{
		Mode:    ModeEnforce,
		OnError: OnError{Invalid: Reject, Unenforceable: Reject, Internal: Ignore},
		Floors:  Floors{Bps: 64 << 10, Iops: 8},
		Bounds:  Bounds{MaxWeight: blkio.DefaultWeight},
		Writeback: Writeback{
			Backstop: true, HandOver: true, Repair: RepairAuto, Contested: Majority,
			Budget: Budget{FilesPerSecond: 100, ExtraBps: 16 << 20, CPU: 10},
		},
		HostKernelHandlers: []string{
			"", "runc", "crun", "youki", "nvidia", "nvidia-cdi", "nvidia-legacy",
		},
	}
}
