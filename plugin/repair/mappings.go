package repair

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/writeback"
)

// mappings finds who has mapped a file. What is mapped stays in the page cache, and
// charged to whom it is, until it is taken out of the mapping.
type mappings struct {
	cgroups *blkio.Hierarchy
	proc    string // where the host's procfs is
}

// maxMappers is how many processes of a container are looked at in one pass.
const maxMappers = 64

// pageOut has the kernel take a part of a file out of the mappings of what runs in
// these cgroups, and forget it, as far as it is clean and nobody else has it mapped.
// Who touches it next faults it in again, and is charged for it.
//
// It takes CAP_SYS_NICE and CAP_SYS_PTRACE, and the host's PID namespace.
//
// Source: process_madvise(2), madvise_pageout in mm/madvise.c.
func (m *mappings) pageOut(in writeback.Inode, cgroups []string, from, to int64) error {
	var errs []error
	for _, c := range cgroups {
		pids, err := m.cgroups.Cgroup(c).Processes()
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, pid := range pids[:min(len(pids), maxMappers)] {
			if pid == 0 {
				return errOtherPIDs
			}
			errs = append(errs, m.pageOutOf(in, pid, from, to))
		}
	}
	return errors.Join(errs...)
}

// errOtherPIDs says that the cgroup's processes cannot be named from here.
var errOtherPIDs = errors.New("files that are mapped are moved only from the host's PID namespace (hostPID)")

func (m *mappings) pageOutOf(in writeback.Inode, pid int, from, to int64) error {
	ranges, err := m.of(in, pid, from, to)
	if len(ranges) == 0 {
		return ignoreEnded(err)
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return ignoreEnded(fmt.Errorf("open process %d: %w", pid, err))
	}
	defer unix.Close(fd)
	const pageOut = 21 // MADV_PAGEOUT
	_, _, errno := unix.Syscall6(unix.SYS_PROCESS_MADVISE, uintptr(fd),
		uintptr(unsafe.Pointer(&ranges[0])), uintptr(len(ranges)), pageOut, 0, 0)
	if errno != 0 {
		return ignoreEnded(fmt.Errorf("page out of process %d: %w", pid, errno))
	}
	return nil
}

// ignoreEnded makes the end of a process no error.
func ignoreEnded(err error) error {
	if errors.Is(err, unix.ESRCH) || errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// addressRange is a struct iovec of another process's addresses.
type addressRange struct{ start, length uint64 }

// maxRanges are as many as a system call takes (UIO_MAXIOV).
const maxRanges = 1024

// of finds where a process has mapped a part of a file to write to it.
//
// Source: proc_pid_maps(5).
func (m *mappings) of(in writeback.Inode, pid int, from, to int64) ([]addressRange, error) {
	f, err := os.Open(filepath.Join(m.proc, strconv.Itoa(pid), "maps"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	device := fmt.Sprintf("%02x:%02x", in.Dev.Major, in.Dev.Minor)
	inode := strconv.FormatUint(in.Number, 10)
	var out []addressRange
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 64<<10)
	for lines.Scan() && len(out) < maxRanges {
		// address perms offset dev inode pathname
		fields := strings.Fields(lines.Text())
		if len(fields) < 5 || fields[3] != device || fields[4] != inode {
			continue
		}
		if r, ok := parseMapping(fields[0], fields[2], uint64(from), uint64(to)); ok {
			out = append(out, r)
		}
	}
	return out, lines.Err()
}

// parseMapping is the part of a mapping that shows a part of the file.
func parseMapping(address, offset string, from, to uint64) (addressRange, bool) {
	low, high, _ := strings.Cut(address, "-")
	start, err1 := strconv.ParseUint(low, 16, 64)
	end, err2 := strconv.ParseUint(high, 16, 64)
	at, err3 := strconv.ParseUint(offset, 16, 64)
	if err1 != nil || err2 != nil || err3 != nil || end <= start {
		return addressRange{}, false
	}
	page := uint64(os.Getpagesize())
	first := max(from-from%page, at)
	last := min(to+page-to%page, at+end-start)
	if first >= last {
		return addressRange{}, false
	}
	return addressRange{start + first - at, last - first}, true
}
