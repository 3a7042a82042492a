package storage

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// SetQueue writes a file of a disk's queue, such as "scheduler", below the directory where sysfs is mounted. The kernel waits for the
// requests of the disk that are under way before it changes the scheduler, and loads the module of a new one.
//
// Source: elv_iosched_load_module in block/elevator.c.
func SetQueue(sysfs string, dev blkio.Dev, file, value string) error {
	f, err := os.OpenFile(filepath.Join(sysfs, "dev/block", dev.String(), "queue", file), os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString(value)
		err = errors.Join(err, f.Close())
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EINVAL):
		err = fmt.Errorf("%w (the kernel does not have it)", err)
	case errors.Is(err, unix.EROFS):
		err = fmt.Errorf("%w (in a pod, set schedulers: true in the values of the chart)", err)
	}
	return fmt.Errorf("set queue/%s to %s: %w", file, value, err)
}
