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
	var info procfs.Meminfo
	proc, err := procfs.NewFS(r.path("/proc"))
	if err == nil {
		info, err = proc.Meminfo()
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("read %s: %w", r.path("/proc/meminfo"), err)
	case info.MemTotalBytes == nil:
		return 0, fmt.Errorf("read %s: missing line MemTotal", r.path("/proc/meminfo"))
	}
	return *info.MemTotalBytes, nil
}
