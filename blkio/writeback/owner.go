package writeback

import (
	"errors"
	"fmt"
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
