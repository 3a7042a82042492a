package storage

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// CostSolution has the values of io.cost for a disk in udev's hardware database.
type CostSolution struct {
	Name  string // "naive", "isolation", "bandwidth", ...
	Model blkio.CostModel
	QOS   blkio.CostQOS
}

// The solution that systemd takes if /etc/udev/iocost.conf names no other one (parse_config in
// src/udev/iocost/iocost.c).
const defaultSolution = "naive"

// maxUdev bounds a file of udev's database, in bytes.
const maxUdev = 64 << 10

// ReadCostSolution reads the solution of io.cost that udev's database has for a device; nil if
// it has none. udev is the directory /run/udev/data.
func ReadCostSolution(udev fs.FS, dev blkio.Dev) (*CostSolution, error) {
	data, err := readUdev(udev, dev)
	if err != nil || data == nil {
		return nil, err
	}
	s, err := parseCostSolution(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("parse udev's database, b%s: %w", dev, err)
	}
	return s, nil
}

// readUdev reads a device's file of udev's database; nil if there is none.
func readUdev(udev fs.FS, dev blkio.Dev) ([]byte, error) {
	f, err := udev.Open("b" + dev.String())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read udev's database: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxUdev+1))
	if err != nil {
		return nil, fmt.Errorf("read udev's database: %w", err)
	}
	if len(data) > maxUdev { // without its end, a value could be another one
		return nil, fmt.Errorf("parse udev's database, b%s: larger than %d bytes", dev, maxUdev)
	}
	return data, nil
}

// ReadLinks returns the symlinks that udev makes for a device, as absolute paths; nil if its database has no such
// device. udev is the directory /run/udev/data.
func ReadLinks(udev fs.FS, dev blkio.Dev) ([]string, error) {
	data, err := readUdev(udev, dev)
	if err != nil {
		return nil, err
	}
	return parseLinks(string(data)), nil
}

// parseLinks parses the links in a device's file of udev's database:
//
//	S:disk/by-id/nvme-Samsung_SSD_980_S64DNX0R
//	S:disk/by-path/pci-0000:01:00.0-nvme-1
//	I:1234567
//
// Source: device_update_db in systemd's src/libsystemd/sd-device/device-private.c. Other lines are of no use here.
func parseLinks(data string) (out []string) {
	for line := range strings.Lines(data) {
		if link, isLink := strings.CutPrefix(strings.TrimRight(line, "\n"), "S:"); isLink && link != "" {
			out = append(out, "/dev/"+link)
		}
	}
	return out
}

// parseCostSolution parses a device's file of udev's database:
//
//	I:1234567
//	E:ID_MODEL=Samsung_SSD_980
//	E:IOCOST_SOLUTIONS=isolation isolated-bandwidth bandwidth naive
//	(1)
//	E:IOCOST_MODEL_ISOLATED_BANDWIDTH=rbps=2706339840 rseqiops=89698 rrandiops=110036 wbps=1063126016 wseqiops=135560 wrandiops=130734
//	(2)
//	E:IOCOST_QOS_ISOLATED_BANDWIDTH=rpct=0.00 rlat=9000 wpct=0.00 wlat=94410 min=100.00 max=100.00
//	(3)
//
//	(1) "naive" is taken, or else the first one
//	(2) as in io.cost.model
//	(3) as in io.cost.qos; a solution has both
//
// Source: query_named_solution in systemd's src/udev/iocost/iocost.c; hwdb.d/90-iocost.hwdb.
func parseCostSolution(r io.Reader) (*CostSolution, error) {
	properties := map[string]string{}
	scan := bufio.NewScanner(r)
	for scan.Scan() {
		if text, isProperty := strings.CutPrefix(scan.Text(), "E:"); isProperty {
			name, value, _ := strings.Cut(text, "=")
			properties[name] = value
		}
	}
	if err := scan.Err(); err != nil {
		return nil, err
	}
	names := strings.Fields(properties["IOCOST_SOLUTIONS"])
	if len(names) == 0 {
		return nil, nil
	}
	s := &CostSolution{Name: names[0]}
	if slices.Contains(names, defaultSolution) {
		s.Name = defaultSolution
	}
	key := strings.ReplaceAll(strings.ToUpper(s.Name), "-", "_")
	model, hasModel := properties["IOCOST_MODEL_"+key]
	qos, hasQOS := properties["IOCOST_QOS_"+key]
	if !hasModel || !hasQOS {
		return nil, nil // systemd ignores it as well
	}
	var err error
	s.Model, s.QOS, err = blkio.ParseCost(model, qos)
	return s, err
}

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
