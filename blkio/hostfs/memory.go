package hostfs

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/prometheus/procfs"
)

// MemTotal returns the node's memory in bytes, from the line MemTotal of /proc/meminfo. It returns
// 0 if the node has no such file.
func (r Root) MemTotal() (uint64, error) {
	proc, err := procfs.NewFS(r.path("/proc"))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	info, err := proc.Meminfo()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return 0, nil
	case err != nil:
		return 0, err
	case info.MemTotalBytes == nil:
		return 0, fmt.Errorf("read %s: missing line MemTotal", r.path("/proc/meminfo"))
	}
	return *info.MemTotalBytes, nil
}
