package calibrate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
)

// leastSize is the smallest size of a disk with which its blocks can be read at random.
const leastSize = 64 << 20

// Find returns the disk with a name, such as "sdb", or with a path below /dev. If the name belongs to a
// partition, or to a device made of disks, the error names the disk to use.
func Find(ctx context.Context, s *storage.Storage, sys storage.Sysfs, name string) (*storage.DiskInfo, error) {
	node := name
	if !strings.HasPrefix(node, "/") {
		node = "/dev/" + node
	}
	dev, err := s.Node(node)
	if errors.Is(err, blkio.ErrNoDevice) {
		return nil, fmt.Errorf("find %q: %w", name, blkio.ErrNoDevice) // err has the name twice
	}
	if err != nil {
		return nil, fmt.Errorf("find %q: %w", name, err)
	}
	stack, err := sys.Stack()
	if err != nil {
		return nil, err
	}
	for i := range stack {
		if d := &stack[i]; d.Dev == dev {
			return &d.DiskInfo, unfitFor(ctx, s, d)
		}
	}
	return nil, fmt.Errorf("find %q: no medium in the drive, or a path of a multipath disk", name)
}

// unfitFor returns why a device cannot be calibrated, or nil.
func unfitFor(ctx context.Context, s *storage.Storage, d *storage.BlockDevice) error {
	below, err := s.Physical(d.Dev)
	if err != nil {
		return err
	}
	names := strings.Join(blkio.DiskNames(below), ", ")
	switch {
	case d.Kind == storage.KindPartition:
		return fmt.Errorf("%s is a partition: calibrate its disk, %s", d.Name, names)
	case d.Kind == storage.KindLoop:
		on := blkio.DiskNames(s.Under(ctx, d.Dev))
		if len(on) == 0 { // such as in memory, or on a network filesystem
			return fmt.Errorf("%s is a loop device, and its file is not on a known disk", d.Name)
		}
		return fmt.Errorf("%s is a loop device: calibrate the disk of its file (%s)", d.Name, strings.Join(on, ", "))
	case len(d.Below) > 0:
		return fmt.Errorf("%s is a device of kind %s: io.cost works on the disks below: calibrate %s", d.Name, d.Kind, names)
	case !d.RequestBased:
		return fmt.Errorf("%s cannot have io.cost: its driver has no queue of requests (blk-mq)", d.Name)
	case d.Size < leastSize:
		return fmt.Errorf("%s is too small (%d bytes, minimum %d)", d.Name, d.Size, leastSize)
	}
	return nil
}

// ErrLocked means that another process has locked the disk.
var ErrLocked = errors.New("another program has locked it, such as another calibration")

// openDisk opens the device file of a disk, read-only and with direct I/O, and locks it as
// https://systemd.io/BLOCK_DEVICE_LOCKING asks for.
func openDisk(ctx context.Context, node string, d blkio.Disk) (_ *os.File, err error) {
	f, err := os.OpenFile(node, unix.O_RDONLY|unix.O_DIRECT|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open disk %s: %w", d.Name, err)
	}
	defer func() {
		if err != nil {
			f.Close() // it was only read
		}
	}()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, fmt.Errorf("open disk %s: %w", d.Name, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFBLK || blkio.DevOf(st.Rdev) != d.Dev {
		return nil, fmt.Errorf("open disk %s: %s is not block device %s", d.Name, node, d.Dev)
	}
	if err := lock(ctx, f); err != nil {
		return nil, fmt.Errorf("lock disk %s: %w", d.Name, err)
	}
	return f, nil
}

const (
	lockTries = 5
	lockPause = 200 * time.Millisecond
)

// lock locks a file. udev locks a disk for a moment at each event.
func lock(ctx context.Context, f *os.File) error {
	for try := 1; ; try++ {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case !errors.Is(err, unix.EWOULDBLOCK):
			return err
		case try == lockTries:
			return ErrLocked
		}
		select {
		case <-time.After(lockPause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
