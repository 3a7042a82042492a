package writeback

import (
	"errors"
	"fmt"
	"math/bits"
	"os"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/bpf"
)

// Owner is the writeback owner of a file, with the kernel's votes about the next one.
type Owner struct {
	// Cgroup is the cgroup ID of the owner, which may be a removed cgroup. It is 0 if the
	// file has no owner, because it was not written to since the kernel loaded its inode.
	Cgroup uint64
	// Dev is the number of the filesystem, as in Inode.
	Dev blkio.Dev
	// Generation distinguishes inodes that had the same number one after another.
	Generation uint32
	Votes
	// Bandwidth is the kernel's estimate of the owner's writeback on the disk, in pages per
	// second. The kernel weighs rounds by it. It is 0 without an owner.
	Bandwidth uint64
}

// OwnerReader reads the owners of inodes. It is safe for concurrent use.
type OwnerReader struct {
	bpf *ebpf.Collection

	mu sync.Mutex // the program has one answer
}

// NewOwnerReader loads the BPF program. It requires CAP_BPF and CAP_PERFMON. Its error
// wraps [ErrUnavailable] if the kernel does not load the program.
func NewOwnerReader() (*OwnerReader, error) {
	types, err := loadKernelTypes()
	if err != nil {
		return nil, err
	}
	spec, err := bpf.Load("owner")
	if err != nil {
		return nil, err
	}
	bpf, err := ebpf.NewCollectionWithOptions(spec, types.options())
	if err != nil {
		return nil, notLoaded(err, lockdownFile)
	}
	return &OwnerReader{bpf: bpf}, nil
}

// Close unloads the program.
func (r *OwnerReader) Close() { r.bpf.Close() }

// Owner returns the writeback owner of an open file. O_PATH is enough to open it.
//
// The program runs in this process, and finds the file by its descriptor.
func (r *OwnerReader) Owner(f *os.File) (Owner, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var got answer
	answers := r.bpf.Maps["blkio_answer"]
	if err := answers.Put(uint32(0), &got); err != nil {
		return Owner{}, fmt.Errorf("read the owner of %s: %w", f.Name(), err)
	}
	conn, err := f.SyscallConn()
	if err != nil {
		return Owner{}, err
	}
	var runErr error
	err = conn.Control(func(fd uintptr) {
		_, runErr = r.bpf.Programs["blkio_owner"].Run(&ebpf.RunOptions{Context: []uint64{uint64(fd)}})
	})
	if err := errors.Join(err, runErr); err != nil {
		return Owner{}, fmt.Errorf("read the owner of %s: %w", f.Name(), err)
	}
	if err := answers.Lookup(uint32(0), &got); err != nil {
		return Owner{}, fmt.Errorf("read the owner of %s: %w", f.Name(), err)
	}
	if got.Found == 0 {
		return Owner{}, fmt.Errorf("read the owner of %s: the kernel's structures do not match its BTF", f.Name())
	}
	return Owner{
		Cgroup:     got.Owner,
		Dev:        fromKernelDev(got.Dev),
		Generation: got.Generation,
		Votes:      Votes{History: got.History, Average: got.Average},
		Bandwidth:  got.Bandwidth,
	}, nil
}

// ThreadTime returns the CPU time of the calling thread. The caller must have locked its
// goroutine to the thread.
func ThreadTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Votes has the state by which the kernel decides whether to move an inode to another cgroup. In each round of
// writeback the kernel adds up the dirty pages by the cgroup that they are charged to. The cgroup with most of
// them wins the round. The kernel estimates the time that the winner's pages take on the disk. The longer that
// is, the more the round counts. A round that is much shorter than the average does not count.
//
// Source: wbc_detach_inode in fs/fs-writeback.c.
type Votes struct {
	// History has 16 bits for the last rounds, the latest in the lowest bits, with one to
	// five bits for each round. A bit is 1 if a cgroup other than the owner won the round.
	History uint16
	// Average is the running average of the time of a round, in units of 1/8192 s.
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

// Foreign returns the number of the 16 bits of History that other cgroups won. If it is
// more than 8 after a round, the kernel moves the inode to the winner of that round.
func (v Votes) Foreign() int { return bits.OnesCount16(v.History) }

// Decided reports whether other cgroups have enough votes. Then the kernel moves the inode
// now, or after the next round that another cgroup wins. The move takes 10 to 30 ms.
func (v Votes) Decided() bool { return v.Foreign() > threshold }

// RoundTime returns the time of a round in units of 1/8192 s, from the number of the
// winner's pages and a bandwidth in pages per second.
func RoundTime(pages, bandwidth uint64) uint64 {
	if bandwidth == 0 {
		bandwidth = 1
	}
	return (pages<<13 + bandwidth - 1) / bandwidth
}

// Round returns the votes after one more round of the given time. foreign is true if a
// cgroup other than the owner wins the round. moves is true if the kernel then moves the
// inode to that cgroup.
func (v Votes) Round(took uint64, foreign bool) (_ Votes, moves bool) {
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

// Missing returns how many more rounds move the inode if each takes the given time, and
// other cgroups win all of them. It is at most 80, for the shortest rounds after the
// longest. A round without a page does not count, so the time is at least 1.
func (v Votes) Missing(took uint64) int {
	took = max(took, 1)
	for n := 1; ; n++ {
		var moves bool
		if v, moves = v.Round(took, true); moves {
			return n
		}
	}
}
