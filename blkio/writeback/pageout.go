package writeback

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxRanges is the number of mappings of a file that one call of PageOut handles.
const maxRanges = 1 << 10

// PageOut removes a part of a file, in bytes from its start, from the mappings of a
// process. It drops the clean pages of that part from the page cache unless another process
// maps them. The next process that accesses such a page is charged for it. proc is the path
// of the host's procfs. PageOut reads at most limit bytes of the process's list of
// mappings, and returns the number of bytes read.
//
// It requires CAP_SYS_NICE, CAP_SYS_PTRACE and the host's PID namespace. Without them the
// error is [os.ErrPermission]. It waits for the lock of the process's memory map, which the
// process can hold for any time.
//
// Source: process_madvise(2), madvise_pageout in mm/madvise.c.
func PageOut(proc string, pid int, in Inode, from, to int64, limit int) (read int, err error) {
	// The descriptor comes before the list, so that both belong to the same process.
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	// proc_pid_maps(5)
	list, err := os.Open(filepath.Join(proc, strconv.Itoa(pid), "maps"))
	if err != nil {
		return 0, err
	}
	defer list.Close()
	ranges, read, err := findMappings(list, in, from, to, limit)
	for i := range ranges {
		const pageOut = 21 // MADV_PAGEOUT
		_, _, errno := unix.Syscall6(unix.SYS_PROCESS_MADVISE, uintptr(fd), uintptr(unsafe.Pointer(&ranges[i])), 1, pageOut, 0, 0)
		if errno == unix.EPERM {
			return read, errno
		}
		// Any other error means that the range is locked in memory, or that the process has ended.
	}
	return read, err
}

// addressRange is a struct iovec of another process's addresses.
type addressRange struct{ start, length uint64 }

// findMappings returns where a list of mappings maps a part of a file. It reads at most limit bytes, and
// returns how many it read. A container chooses the path at the end of a line, and its length. The fields
// before it are enough, and the rest of a long line is skipped.
//
//	address           perms offset  dev   inode pathname
//	7f0c8a000000-7f0c8a021000 rw-s 00002000 08:10 1311 /data/db
//
// Source: proc_pid_maps(5).
func findMappings(list io.Reader, in Inode, from, to int64, limit int) (out []addressRange, read int, err error) {
	device := fmt.Sprintf("%02x:%02x", in.Dev.Major, in.Dev.Minor)
	inode := strconv.FormatUint(in.Number, 10)
	lines := bufio.NewReader(list)
	begins := true // a line
	for read < limit && len(out) < maxRanges {
		part, err := lines.ReadSlice('\n')
		read += len(part)
		if begins {
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
			return out, read, nil
		case err != nil && begins:
			return out, read, err
		}
	}
	return out, read, nil
}

// parseMapping returns the part of a mapping that shows a part of the file, in whole
// pages; ok is false if there is none.
func parseMapping(address, offset string, from, to uint64) (_ addressRange, ok bool) {
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
