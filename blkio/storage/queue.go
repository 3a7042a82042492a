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
	if err == nil {
		return nil
	}
	return fmt.Errorf("set queue/%s to %s: %w%s", file, value, err, remedy(err))
}

// remedy returns what to do about an error of a queue.
func remedy(err error) string {
	switch {
	case errors.Is(err, unix.EINVAL):
		return " (the kernel does not have it)"
	case errors.Is(err, unix.EROFS):
		return " (in a pod, set schedulers: true in the values of the chart; to give up bfq, first remove weights: bfq from the node policy, and this value later)"
	}
	return ""
}
