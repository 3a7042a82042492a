package fakenode

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// Disks is a mount table and the disks of a node, for one or more processes of the plugin. Finding a disk can fail or
// hang.
type Disks struct {
	Gates

	mu     sync.Mutex // guards all below
	byName map[string]blkio.Disk
	mounts map[string]blkio.Backing   // by mount point
	below  map[blkio.Dev][]blkio.Disk // of a device of others; none if they cannot be found
	files  map[blkio.Dev][]blkio.Disk // of a loop device
	broken error                      // of the mount table
	noSwap error                      // of the list of swaps
}

// NewDisks returns a node with the disks vda (of /), vdb (/mnt/data), vdc (/mnt/third), and vdd, vde, vdf and vdg (not
// mounted), and with a filesystem in memory at /mnt/mem.
func NewDisks() *Disks {
	d := &Disks{byName: map[string]blkio.Disk{}, mounts: map[string]blkio.Backing{}, below: map[blkio.Dev][]blkio.Disk{}, files: map[blkio.Dev][]blkio.Disk{}}
	for i, name := range []string{"vda", "vdb", "vdc", "vdd", "vde", "vdf", "vdg"} {
		d.byName[name] = blkio.Disk{Dev: blkio.Dev{Major: 254, Minor: uint32(16 * i)}, Name: name}
	}
	for at, name := range map[string]string{"/": "vda", "/mnt/data": "vdb", "/mnt/third": "vdc", "/mnt/mem": "tmpfs"} {
		d.Mount(at, name)
	}
	return d
}

// Disk returns a disk by its name.
func (d *Disks) Disk(name string) (disk blkio.Disk, found bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	disk, found = d.byName[name]
	return disk, found
}

// Name returns the name of a disk.
func (d *Disks) Name(dev blkio.Dev) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	for name, disk := range d.byName {
		if disk.Dev == dev {
			return name
		}
	}
	return dev.String()
}

// Mount mounts a filesystem on some disks at a path of the host, or "tmpfs". A name that is new is a logical volume on vda.
func (d *Disks) Mount(at string, names ...string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	b := blkio.Backing{Mountpoint: at, FSType: "ext4"}
	for _, name := range names {
		if name == "tmpfs" {
			b.FSType, b.Reason = name, "tmpfs is memory, not a disk"
			continue
		}
		disk, found := d.byName[name]
		if !found {
			disk = d.add(name, "vda")
		}
		b.Disks = append(b.Disks, disk)
	}
	d.mounts[at] = b
}

// Stack adds a device of other ones. "file" before them is a loop device with a file there, and without any they cannot be found.
func (d *Disks) Stack(name string, on ...string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.add(name, on...)
}

func (d *Disks) add(name string, on ...string) blkio.Disk {
	disk := blkio.Disk{Dev: blkio.Dev{Major: 253, Minor: uint32(len(d.byName))}, Name: name}
	d.byName[name] = disk
	to := d.below
	if len(on) > 0 && on[0] == "file" {
		to, on = d.files, on[1:]
	}
	to[disk.Dev] = nil
	for _, other := range on {
		to[disk.Dev] = append(to[disk.Dev], d.byName[other])
	}
	return disk
}

// BreakSwaps makes the list of swaps unreadable, until err is nil.
func (d *Disks) BreakSwaps(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.noSwap = err
}

// Unplug removes a disk from the node. It returns a function that brings it back with the same number.
func (d *Disks) Unplug(name string) (plug func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	disk := d.byName[name]
	delete(d.byName, name)
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.byName[name] = disk
	}
}

// Unmount removes the mount at a path of the host.
func (d *Disks) Unmount(at string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.mounts, at)
}

// Break makes the search for the disks of paths at a mount point fail.
func (d *Disks) Break(at string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mounts[at] = blkio.Backing{Mountpoint: at, FSType: "ext4", Reason: "its disk cannot be read", Err: err}
}

// BreakTable makes the mount table unreadable, until err is nil.
func (d *Disks) BreakTable(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.broken = err
}

// MountOf returns the mount that a path of the host is on.
func (d *Disks) MountOf(host string) blkio.Backing {
	d.mu.Lock()
	defer d.mu.Unlock()
	best := "/"
	for at := range d.mounts {
		if len(at) > len(best) && (host == at || strings.HasPrefix(host, at+"/")) {
			best = at
		}
	}
	b := d.mounts[best]
	b.Disks = slices.Clone(b.Disks)
	return b
}

// MountTable is the Disks as one process sees them, until it ends.
type MountTable struct {
	*Disks
	Ended <-chan struct{}
}

// Refresh reads the mount table.
func (m MountTable) Refresh(context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.broken
}

// Resolve returns the disks of a path of the host.
func (m MountTable) Resolve(_ context.Context, host string) *blkio.Backing {
	b := m.MountOf(host)
	if !m.Wait(b.Mountpoint, m.Ended) {
		return &blkio.Backing{Reason: "the process has ended", Err: errProcessEnded}
	}
	return &b
}

// Below returns the mount below a path that the path rel is on.
func (m MountTable) Below(_ context.Context, host, rel string) (string, *blkio.Backing, bool) {
	full := strings.TrimSuffix(host, "/") + "/" + strings.Trim(rel, "/")
	b := m.MountOf(full)
	if b.Mountpoint == m.MountOf(host).Mountpoint || !strings.HasPrefix(b.Mountpoint, strings.TrimSuffix(host, "/")+"/") {
		return "", nil, false
	}
	return strings.TrimPrefix(b.Mountpoint, strings.TrimSuffix(host, "/")+"/"), &b, true
}

// Submounts returns all mounts below a path of the host.
func (m MountTable) Submounts(_ context.Context, host string) iter.Seq2[string, *blkio.Backing] {
	return maps.All(m.mountedBelow(host))
}

// mountedBelow returns the mounts below a path of the host, by their paths from there.
func (d *Disks) mountedBelow(host string) map[string]*blkio.Backing {
	d.mu.Lock()
	defer d.mu.Unlock()
	found := map[string]*blkio.Backing{}
	for at, b := range d.mounts {
		if rel, isBelow := strings.CutPrefix(at, strings.TrimSuffix(host, "/")+"/"); isBelow && rel != "" {
			found[rel] = &b
		}
	}
	return found
}

// Device returns a disk by its number.
func (m MountTable) Device(dev blkio.Dev) blkio.Backing {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, disk := range m.byName {
		if disk.Dev == dev {
			return blkio.Backing{Disks: []blkio.Disk{disk}}
		}
	}
	return blkio.Backing{Reason: "no such disk", Missing: true}
}

// Physical returns the disks that a logical volume is on, and the disk itself if it is none.
func (m MountTable) Physical(dev blkio.Dev) ([]blkio.Disk, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if below, isStacked := m.below[dev]; isStacked && below != nil {
		return below, nil
	} else if isStacked {
		return nil, errors.New("no such device")
	}
	for _, disk := range m.byName {
		if disk.Dev == dev {
			return []blkio.Disk{disk}, nil
		}
	}
	return nil, errors.New("no such disk")
}

// Under returns the disks that a device is on.
func (m MountTable) Under(_ context.Context, dev blkio.Dev) []blkio.Disk {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Concat(m.below[dev], m.files[dev])
}

// Links returns no links.
func (MountTable) Links(blkio.Dev) []string { return nil }

// FilesystemAt returns the number of the disk that is mounted at a path of the host.
func (m MountTable) FilesystemAt(at string) blkio.Dev {
	m.mu.Lock()
	defer m.mu.Unlock()
	if b := m.mounts[at]; len(b.Disks) > 0 {
		return b.Disks[0].Dev
	}
	return blkio.Dev{}
}

// Locate returns the path itself.
func (MountTable) Locate(_ context.Context, host string) (string, bool) { return host, true }

// MountedDisks returns no disks: undeclared ones are then those of I/O.
func (MountTable) MountedDisks() map[blkio.Dev]bool { return nil }

// SwapDisks returns no disks.
func (m MountTable) SwapDisks(context.Context) ([]blkio.Disk, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return nil, m.noSwap
}

// Resolver is a Storage in which a function finds the disks of paths, and any number is that of a disk. It has no mounts.
type Resolver struct {
	MountTable
	Find func(host string) blkio.Backing
}

// NewResolver returns a Resolver with a function.
func NewResolver(find func(host string) blkio.Backing) Resolver {
	return Resolver{MountTable{Disks: &Disks{}}, find}
}

// Resolve returns the disks of a path of the host.
func (r Resolver) Resolve(_ context.Context, host string) *blkio.Backing {
	b := r.Find(host)
	return &b
}

// Physical returns the disk itself.
func (Resolver) Physical(dev blkio.Dev) ([]blkio.Disk, error) { return []blkio.Disk{{Dev: dev}}, nil }

// Device returns a disk by its number.
func (Resolver) Device(dev blkio.Dev) blkio.Backing { return On(blkio.Disk{Dev: dev, Name: "raw"}) }

// On is a filesystem on a disk.
func On(disk blkio.Disk) blkio.Backing {
	return blkio.Backing{FSType: "ext4", Disks: []blkio.Disk{disk}}
}
