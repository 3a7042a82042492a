package check

import (
	"cmp"
	"context"
	"iter"
	"path"
	"slices"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
)

// storage is the storage of a node as if the pod of a manifest ran there. It answers for the
// sources of the pod's mounts, which do not exist yet, and passes on all other questions to the
// node. All disks of an unknown node are unknown.
type storage struct {
	node    inventory.Storage            // nil if the node is unknown
	sources map[string]source            // by the path that the runtime would get
	devices map[blkio.Dev]*blkio.Backing // raw block volumes, by the number that stands for theirs
	unknown []string                     // names of the disks that are unknown; the index is the number
}

// source has the data that the source of a mount leads to.
type source struct {
	path    string         // on the node, with the filesystems mounted below it; "" if there is none
	backing *blkio.Backing // if path is ""
}

func newStorage(node inventory.Storage) *storage {
	return &storage{node: node, sources: map[string]source{}, devices: map[blkio.Dev]*blkio.Backing{}}
}

// unknownDisk returns the backing that stands for an unknown disk. The same name is the same
// disk. Limits on the disk can be parsed and compared all the same.
func (s *storage) unknownDisk(name string) *blkio.Backing {
	i := slices.Index(s.unknown, name)
	if i < 0 {
		i = len(s.unknown)
		s.unknown = append(s.unknown, name)
	}
	return &blkio.Backing{Disks: []blkio.Disk{blkio.UnknownDisk(uint32(i), name)}}
}

// addDevice adds a raw block volume. It returns a device number that stands for the volume's.
func (s *storage) addDevice(b *blkio.Backing) blkio.Dev {
	dev := blkio.UnknownDisk(uint32(len(s.devices)), "").Dev
	s.devices[dev] = b
	return dev
}

// nodePath returns the path on the node for the source of a mount. ok is false if there is
// none, or if the node is unknown.
func (s *storage) nodePath(hostPath string) (p string, ok bool) {
	p = path.Clean(hostPath)
	if src, isSource := s.sources[p]; isSource {
		p = src.path
	}
	return p, s.node != nil && p != ""
}

// Resolve returns the backing of a path.
func (s *storage) Resolve(ctx context.Context, hostPath string) *blkio.Backing {
	p, onNode := s.nodePath(hostPath)
	switch {
	case onNode:
		return s.node.Resolve(ctx, p)
	case p != "":
		return s.unknownDisk("disk of " + p)
	}
	return s.sources[path.Clean(hostPath)].backing
}

// Below returns the mount below hostPath that the path rel is on.
func (s *storage) Below(ctx context.Context, hostPath, rel string) (at string, b *blkio.Backing, ok bool) {
	if p, onNode := s.nodePath(hostPath); onNode {
		return s.node.Below(ctx, p, rel)
	}
	return "", nil, false
}

// Submounts returns all mounts below hostPath.
func (s *storage) Submounts(ctx context.Context, hostPath string) iter.Seq2[string, *blkio.Backing] {
	if p, onNode := s.nodePath(hostPath); onNode {
		return s.node.Submounts(ctx, p)
	}
	return func(func(string, *blkio.Backing) bool) {}
}

// Device returns the backing of a block device by its number. A pod that does not run has no
// devices but its raw block volumes.
func (s *storage) Device(dev blkio.Dev) blkio.Backing {
	return *cmp.Or(s.devices[dev], new(blkio.Backing)) // a volume in a filesystem has none
}

// Physical returns the physical disks below a disk.
func (s *storage) Physical(disk blkio.Dev) ([]blkio.Disk, error) {
	if s.node == nil {
		return nil, blkio.ErrNoDevice
	}
	return s.node.Physical(disk)
}

// Under returns the disks below a disk, at any depth.
func (s *storage) Under(ctx context.Context, disk blkio.Dev) []blkio.Disk {
	if s.node == nil {
		return nil
	}
	return s.node.Under(ctx, disk)
}

// Links returns udev's links to a disk.
func (s *storage) Links(disk blkio.Dev) []string {
	if s.node == nil {
		return nil
	}
	return s.node.Links(disk)
}

// Refresh does nothing: the caller has read the mount table.
func (s *storage) Refresh(context.Context) error { return nil }
