package cgroupfs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// kernfsHandle is the type of a handle that is a number of kernfs (FILEID_KERNFS
// in include/linux/exportfs.h, Linux 5.5).
const kernfsHandle = 0xfe

// ByID returns the cgroup with an ID, see [Cgroup.ID]. The error is ErrGone if it was
// removed. If the cgroup's path is too long for the kernel to report, ByID returns its
// nearest ancestor with a shorter path. It requires CAP_DAC_READ_SEARCH. It finds cgroups
// of another cgroup namespace only if they are below the hierarchy's root.
func (h *Hierarchy) ByID(id uint64) (Cgroup, error) {
	path, err := h.pathOf(id)
	if err != nil {
		return Cgroup{}, fmt.Errorf("find cgroup %d: %w", id, err)
	}
	return h.Cgroup(path), nil
}

func (h *Hierarchy) pathOf(id uint64) (string, error) {
	if id == rootID {
		return ".", nil
	}
	root, err := unix.Open(h.dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(root)
	handle := unix.NewFileHandle(kernfsHandle, binary.NativeEndian.AppendUint64(nil, id))
	fd, err := ignoreEINTR(func() (int, error) {
		return unix.OpenByHandleAt(root, handle, unix.O_PATH|unix.O_CLOEXEC)
	})
	if errors.Is(err, unix.ESTALE) {
		return "", blkio.ErrGone
	}
	if err != nil {
		return "", err
	}
	defer func() { unix.Close(fd) }()
	dir, err := nameOf(root)
	if err != nil {
		return "", err
	}
	name, err := nameOf(fd)
	for range maxUp {
		if !errors.Is(err, unix.ENAMETOOLONG) {
			break
		}
		up, openErr := unix.Openat(fd, "..", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if openErr != nil {
			return "", openErr
		}
		unix.Close(fd)
		fd = up
		name, err = nameOf(fd)
	}
	if err != nil {
		return "", err
	}
	below, ok := strings.CutPrefix(name, strings.TrimSuffix(dir, "/")+"/")
	if !ok {
		return "", fmt.Errorf("cgroup is at %q, outside %s", name, dir)
	}
	return below, nil
}

// maxUp bounds the search for an ancestor whose path is short enough.
const maxUp = 256

func nameOf(fd int) (string, error) { return os.Readlink("/proc/self/fd/" + strconv.Itoa(fd)) }

// Processes returns the process IDs in the cgroup, without those of its descendants. The ID
// of a process that the reader's PID namespace does not show is 0.
func (c Cgroup) Processes() ([]int, error) {
	data, err := c.h.readToEnd(c.path + "/cgroup.procs")
	if err != nil {
		return nil, c.fileError("read", "cgroup.procs", "", err)
	}
	var out []int
	for field := range strings.FieldsSeq(string(data)) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			return nil, c.fileError("read", "cgroup.procs", "", err)
		}
		out = append(out, pid)
	}
	return out, nil
}
