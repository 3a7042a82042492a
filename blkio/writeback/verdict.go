package writeback

import "math/bits"

// Verdict is the kernel's state of an inode for deciding whether to move it to another
// cgroup. A round of writeback finds dirty pages and adds them up by the
// cgroup that each is charged to; the cgroup with most of them wins it. A round
// counts by the time that the winner's pages take on the disk, which is estimated:
// long ones more, and one that is much shorter than usual not at all.
//
// Source: wbc_detach_inode in fs/fs-writeback.c.
type Verdict struct {
	// History are the last rounds, one to five bits each, the last one lowest: 1
	// is a round that another cgroup than the owner has won.
	History uint16
	// Average is the running average of the time of a round, in 1/8192 s.
	Average uint16
}

// The constants of fs/fs-writeback.c, WB_FRN_....
const (
	second       = 1 << 13         // TIME_SHIFT
	averageShift = 3               // TIME_AVG_SHIFT
	cut          = 8               // TIME_CUT_DIV: shorter rounds than this part of the average do not count
	slot16th     = 2 * second / 16 // HIST_UNIT
	threshold    = 8               // HIST_THR_SLOTS
	maxSlots     = threshold/2 + 1 // HIST_MAX_SLOTS
)

// Foreign returns how many of the last 16 rounds another cgroup won. With more than 8
// of them, at the end of a round, the inode goes to the winner of that.
func (v Verdict) Foreign() int { return bits.OnesCount16(v.History) }

// Decided reports whether the next round that another cgroup wins, if not the last one,
// moves the inode there. The move takes 10 to 30 ms.
func (v Verdict) Decided() bool { return v.Foreign() > threshold }

// RoundTime returns the time of a round in which the winner has so many pages, in 1/8192 s,
// at a bandwidth in pages per second.
func RoundTime(pages, bandwidth uint64) uint64 {
	if bandwidth == 0 {
		bandwidth = 1
	}
	return (pages<<13 + bandwidth - 1) / bandwidth
}

// Round returns the Verdict after one more round, with its time, that the owner won, or with
// foreign another cgroup. moves is true if the inode moves to that one.
func (v Verdict) Round(took uint64, foreign bool) (_ Verdict, moves bool) {
	average := uint64(v.Average)
	if average == 0 {
		average = took // the first one
	} else {
		average += took>>averageShift - average>>averageShift
	}
	if took >= average/cut {
		slots := min((took+slot16th-1)/slot16th, maxSlots)
		v.History <<= slots
		if foreign {
			v.History |= 1<<slots - 1
		}
		moves = foreign && v.Foreign() > threshold
	}
	v.Average = uint16(min(average, 1<<16-1))
	return v, moves
}

// Missing returns how many more rounds of this time, all won by another cgroup, move the
// inode: at most 80, for the shortest rounds after the longest. A round without a page does
// not count, so took is at least 1.
func (v Verdict) Missing(took uint64) int {
	took = max(took, 1)
	for n := 1; ; n++ {
		var moves bool
		if v, moves = v.Round(took, true); moves {
			return n
		}
	}
}
