package repair

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/blkio/writeback"
)

// mappings takes files out of the mappings of who has mapped them. What is mapped
// stays in the page cache, and charged to whom it is.
type mappings struct {
	cgroups *cgroupfs.Hierarchy
	proc    string // where the host's procfs is

	mu sync.Mutex // guards all below
	// busy are the cgroups whose processes are looked at, and how many of each account
	// are: a process can have who looks at its mappings wait for ever, but then it waits
	// itself.
	busy map[string]bool
	of   map[account]int
	err  error // that there is no access to any
}

const (
	// maxMappers is how many processes of a container are looked at at a time, any
	// of them.
	maxMappers = 64
	// maxLooks are the cgroups of an account that are looked at at a time.
	maxLooks = 8
	// maxMaps bytes of the lists of mappings are read for one file, maxRanges of the
	// mappings taken out.
	maxMaps, maxRanges = 4 << 20, 1 << 10
)

func newMappings(cgroups *cgroupfs.Hierarchy, proc string) *mappings {
	return &mappings{cgroups: cgroups, proc: proc, busy: map[string]bool{}, of: map[account]int{}}
}

// pageOut has the kernel take a part of a file out of the mappings of what runs in
// these cgroups, and forget it, as far as it is clean and nobody else has it mapped.
// Who touches it next faults it in again, and is charged for it. It does not wait.
//
// It takes CAP_SYS_NICE and CAP_SYS_PTRACE, and the host's PID namespace.
//
// Source: process_madvise(2), madvise_pageout in mm/madvise.c.
func (m *mappings) pageOut(a account, in writeback.Inode, cgroups []string, from, to int64) {
	for _, c := range cgroups {
		if m.enter(a, c) {
			go func() {
				var err error
				defer func() { m.exit(a, c, err) }()
				err = m.pageOutOf(in, c, from, to)
			}()
		}
	}
}

// enter says whether the processes of a cgroup are to be looked at now.
func (m *mappings) enter(a account, cgroup string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.busy[cgroup] || m.of[a] >= maxLooks {
		return false
	}
	m.busy[cgroup] = true
	m.of[a]++
	return true
}

// exit notes that they have been.
func (m *mappings) exit(a account, cgroup string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.busy, cgroup)
	if m.of[a]--; m.of[a] <= 0 {
		delete(m.of, a)
	}
	m.err = err
}

// access is why mappings cannot be looked at, as of the last time.
func (m *mappings) access() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.err
}

var (
	errOtherPIDs = errors.New("that takes the node's PID namespace (hostPID)")
	errNoAccess  = errors.New("that takes CAP_SYS_PTRACE and CAP_SYS_NICE")
)

// pageOutOf returns just what keeps it from looking at any process.
func (m *mappings) pageOutOf(in writeback.Inode, cgroup string, from, to int64) error {
	pids, err := m.cgroups.Cgroup(cgroup).Processes()
	if err != nil {
		return nil // it is gone
	}
	rand.Shuffle(len(pids), func(i, j int) { pids[i], pids[j] = pids[j], pids[i] })
	left := maxMaps
	for _, pid := range pids[:min(len(pids), maxMappers)] {
		if pid == 0 {
			return errOtherPIDs
		}
		if err := m.pageOutProcess(in, pid, from, to, &left); errors.Is(err, os.ErrPermission) {
			return errNoAccess
		}
	}
	return nil
}

func (m *mappings) pageOutProcess(in writeback.Inode, pid int, from, to int64, left *int) error {
	// Before the list, so that this is of the process that it is of.
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	ranges, err := m.find(in, pid, from, to, left)
	for i := range ranges {
		const pageOut = 21 // MADV_PAGEOUT
		_, _, errno := unix.Syscall6(unix.SYS_PROCESS_MADVISE, uintptr(fd), uintptr(unsafe.Pointer(&ranges[i])), 1, pageOut, 0, 0)
		if errno == unix.EPERM {
			return errno
		}
		// Else it is locked in memory, or the process has ended.
	}
	return err
}

// addressRange is a struct iovec of another process's addresses.
type addressRange struct{ start, length uint64 }

// find returns where a process has mapped a part of a file.
//
// Source: proc_pid_maps(5).
func (m *mappings) find(in writeback.Inode, pid int, from, to int64, left *int) ([]addressRange, error) {
	f, err := os.Open(filepath.Join(m.proc, strconv.Itoa(pid), "maps"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return findMappings(f, in, from, to, left)
}

// findMappings reads a list of mappings, of which left bytes may be read yet. The path
// is last in a line, and as long as a container likes: what there is to know comes
// before it, and the rest of a long line is skipped.
//
//	7f0c8a000000-7f0c8a021000 rw-s 00002000 08:10 1311 /data/db
func findMappings(list io.Reader, in writeback.Inode, from, to int64, left *int) ([]addressRange, error) {
	device := fmt.Sprintf("%02x:%02x", in.Dev.Major, in.Dev.Minor)
	inode := strconv.FormatUint(in.Number, 10)
	var out []addressRange
	lines := bufio.NewReader(list)
	begins := true // a line
	for *left > 0 && len(out) < maxRanges {
		part, err := lines.ReadSlice('\n')
		*left -= len(part)
		if begins {
			// address perms offset dev inode pathname
			fields := bytes.Fields(part)
			if len(fields) >= 5 && string(fields[3]) == device && string(fields[4]) == inode {
				if r, ok := parseMapping(string(fields[0]), string(fields[2]), uint64(from), uint64(to)); ok {
					out = append(out, r)
				}
			}
		}
		begins = !errors.Is(err, bufio.ErrBufferFull)
		switch {
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil && begins:
			return out, err
		}
	}
	return out, nil
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
