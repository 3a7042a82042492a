package hostfs

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

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

// userHZ is the number of clock ticks of a second in procfs. The kernel's interface has this value on each architecture
// that this program runs on.
const userHZ = 100

// SinceStart returns the time since the kernel started this process, which is before the initialization of the program.
func SinceStart() (time.Duration, error) {
	self, err := procfs.Self()
	if err != nil {
		return 0, err
	}
	stat, err := self.Stat()
	return SinceBoot() - time.Duration(stat.Starttime)*time.Second/userHZ, err
}
