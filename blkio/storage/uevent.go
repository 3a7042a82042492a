package storage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// The events of disks that appear together, such as those of a shelf, are reported once.
const (
	burst    = 100 * time.Millisecond
	debounce = time.Second
	// A filesystem that a disk is added to has it some time after the kernel's event, so
	// the event is reported once more.
	repeatAfter = 10 * time.Second
)

// WatchDisks calls changed after block devices were added, removed or replaced, and again
// ten seconds later. It calls changed at most once a second. It returns when ctx ends, or
// with an error.
//
// Source: lib/kobject_uevent.c. The kernel sends these events to the network namespaces
// that the initial user namespace owns.
func WatchDisks(ctx context.Context, changed func()) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_KOBJECT_UEVENT)
	if err != nil {
		return fmt.Errorf("listen for devices: %w", err)
	}
	const kernel = 1 // the group that the kernel sends to; udev's is 2
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: kernel}); err != nil {
		unix.Close(fd)
		return fmt.Errorf("listen for devices: %w", err)
	}
	return watchSocket(ctx, os.NewFile(uintptr(fd), "uevents"), changed)
}

// watchSocket is WatchDisks on an open socket, which it closes. Nothing of it goes on
// after it has returned: it is called again after an error.
func watchSocket(ctx context.Context, socket io.ReadCloser, changed func()) error {
	defer socket.Close()
	stop := context.AfterFunc(ctx, func() { socket.Close() })
	defer stop()
	events := make(chan struct{}, 1)
	debouncing, cancel := context.WithCancel(ctx)
	var debouncer sync.WaitGroup
	debouncer.Go(func() { debounced(debouncing, events, changed) })
	err := listen(socket, events)
	cancel()
	debouncer.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("listen for devices: %w", err)
}

// listen sends to events for each event of a disk, until an error.
func listen(socket io.Reader, events chan<- struct{}) error {
	message := make([]byte, 16<<10) // UEVENT_BUFFER_SIZE is 2 KiB
	for {
		n, err := socket.Read(message)
		switch {
		case errors.Is(err, unix.ENOBUFS): // too many at a time; some may have been about disks
		case err != nil:
			return err
		case !isOfDisk(message[:n]):
			continue
		}
		select {
		case events <- struct{}{}:
		default: // an event is pending already
		}
	}
}

// isOfDisk reports whether a message of the kernel is about a block device:
//
//	add@/devices/.../block/sdb\0ACTION=add\0DEVPATH=...\0SUBSYSTEM=block\0MAJOR=8\0...
//
// A process that sends to this multicast group can only cause a refresh.
func isOfDisk(message []byte) bool { return bytes.Contains(message, []byte("\x00SUBSYSTEM=block\x00")) }

func debounced(ctx context.Context, events <-chan struct{}, changed func()) {
	var again <-chan time.Time
	for {
		select {
		case <-events:
			if !pause(ctx, burst) {
				return
			}
			select {
			case <-events: // the last of the burst
			default:
			}
			again = time.After(repeatAfter)
		case <-again:
			again = nil
		case <-ctx.Done():
			return
		}
		changed()
		if !pause(ctx, debounce-burst) {
			return
		}
	}
}

// pause returns false if ctx ends before it is over.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
