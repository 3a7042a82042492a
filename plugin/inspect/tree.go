package inspect

import (
	"cmp"
	"context"
	"path"
	"slices"
	"strings"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
)

// Node is a device, filesystem, swap or volume of the node. Its children are stored on it.
// Its fields depend on the kind:
//
//	disk, partition, lvm, crypt, multipath, raid1 (and other levels), md, dm, loop
//	             name, dev, size, readOnly; also, except for partitions, model,
//	             rotational, scheduler, below, max, weight; and buffered
//	             if it has only raw block volumes on it
//	filesystem   name (its type), dev (of stat), mountpoints, buffered
//	swap         name, path (of the device or file), size, used
//	volume       name, plugin, uid, namespace and pod if they are known, path
//	blockVolume  the same for a raw block volume; buffered
//
// A node that is stored on several devices is complete below the first of them. Below the
// others it has only kind, name, dev and again.
type Node struct {
	Kind  string `json:"kind"`
	Name  string `json:"name"`
	Dev   string `json:"dev,omitempty"`
	Again bool   `json:"again,omitempty"`

	Device
	Enforced
	Place

	Children []*Node `json:"children,omitempty"`
}

// Device describes a block device, or a swap.
type Device struct {
	Model      string   `json:"model,omitempty"` // of a drive; of a dm device its name, of an md device its level, of a loop device its file
	Size       uint64   `json:"size,omitempty"`  // bytes
	Used       uint64   `json:"used,omitempty"`  // bytes
	Rotational bool     `json:"rotational,omitempty"`
	ReadOnly   bool     `json:"readOnly,omitempty"`
	Scheduler  string   `json:"scheduler,omitempty"`
	Below      []string `json:"below,omitempty"` // names of the devices directly below
}

// Enforced reports which controls the kernel can enforce on a device or filesystem. A field
// is nil if the control does not apply to the kind.
type Enforced struct {
	Max      *Support `json:"max,omitempty"`
	Weight   *Support `json:"weight,omitempty"`
	Buffered *Support `json:"buffered,omitempty"`
}

// Place is the place of a filesystem (Mountpoints), or of a volume (the other fields).
type Place struct {
	Mountpoints []string `json:"mountpoints,omitempty"` // those in pods' directories last

	Plugin    string `json:"plugin,omitempty"` // "kubernetes.io/csi"
	Namespace string `json:"namespace,omitempty"`
	Pod       string `json:"pod,omitempty"`
	UID       string `json:"uid,omitempty"`
	Path      string `json:"path,omitempty"`
	Orphan    bool   `json:"orphan,omitempty"` // see Orphans of the report
	Reason    string `json:"reason,omitempty"` // why the disk of a filesystem is unknown
}

// The kinds that are no block devices.
const (
	KindFilesystem  = "filesystem"
	KindSwap        = "swap"
	KindVolume      = "volume"
	KindBlockVolume = "blockVolume"
)

// parts has the parts of a node's storage from which a tree is made.
type parts struct {
	features cgroupfs.Features
	qos      map[blkio.Dev]blkio.CostQOSLine
	bfq      map[blkio.Dev]bool // disks that bfq divides by weights of this program
	devices  []storage.BlockDevice
	swaps    []storage.Swap
	volumes  []podVolume
}

// treeBuilder makes the tree of its parts.
type treeBuilder struct {
	storage *storage.Storage
	sys     storage.Sysfs
	parts

	nodes       map[blkio.Dev]*Node // the block devices
	filesystems map[blkio.Dev]*Node // by the number of stat
	roots       []*Node
}

func (b *treeBuilder) build(ctx context.Context) []*Node {
	b.nodes, b.filesystems = map[blkio.Dev]*Node{}, map[blkio.Dev]*Node{}
	b.roots = []*Node{}
	for i := range b.devices {
		b.nodes[b.devices[i].Dev] = b.deviceNode(&b.devices[i])
	}
	for _, d := range b.devices {
		b.put(b.nodes[d.Dev], d.Parents)
	}
	for _, f := range b.storage.Filesystems() {
		n := b.filesystemNode(&f)
		b.filesystems[f.Dev] = n
		b.put(n, f.Devices)
	}
	for _, s := range b.swaps {
		b.addSwap(ctx, s)
	}
	for _, v := range b.volumes {
		b.addVolume(ctx, v)
	}
	for _, d := range b.devices {
		b.finish(&d, b.nodes[d.Dev])
	}
	b.roots = slices.DeleteFunc(b.roots, func(n *Node) bool {
		// The kernel's 16 ramdisks have a size before they are used.
		return strings.HasPrefix(n.Dev, "1:") && len(n.Children) == 0
	})
	once(b.roots)
	return b.roots
}

// put puts a thing on each device below it.
func (b *treeBuilder) put(n *Node, below []blkio.Disk) {
	placed := false
	for _, d := range below {
		if p := b.nodes[d.Dev]; p != nil && p != n {
			p.Children = append(p.Children, n)
			placed = true
		}
	}
	if !placed {
		b.roots = append(b.roots, n)
	}
}

// once leaves the first of a thing that is in several places as it is. Devices
// that are in a circle are in none of the roots, and not shown.
func once(roots []*Node) {
	seen := map[*Node]bool{}
	var visit func(list []*Node)
	visit = func(list []*Node) {
		for i, n := range list {
			if seen[n] {
				list[i] = &Node{Kind: n.Kind, Name: n.Name, Dev: n.Dev, Again: true}
				continue
			}
			seen[n] = true
			visit(n.Children)
		}
	}
	visit(roots)
}

func (b *treeBuilder) deviceNode(d *storage.BlockDevice) *Node {
	n := &Node{
		Kind: string(d.Kind), Name: d.Name, Dev: d.Dev.String(),
		Device: Device{Size: d.Size, ReadOnly: d.ReadOnly, Model: d.Model, Rotational: d.Rotational, Scheduler: d.Scheduler},
	}
	if d.Kind == storage.KindPartition {
		return n // a limit is its disk's
	}
	n.Below = blkio.DiskNames(d.Parents)
	limit, weight := maxSupport(b.features), b.weightOf(d.DiskInfo)
	n.Max, n.Weight = &limit, &weight
	return n
}

// finish sets the fields that depend on the data on a device. Without a filesystem on it, writes to the device
// have cgroup writeback, because its own page cache has.
//
// Source: bd_init_fs_context in block/bdev.c, which sets SB_I_CGROUPWB.
func (b *treeBuilder) finish(d *storage.BlockDevice, n *Node) {
	raw := !slices.ContainsFunc(n.Children, func(c *Node) bool { return c.Kind != KindBlockVolume })
	if d.Kind != storage.KindPartition && raw {
		n.Buffered = &Support{OK: blkio.Yes}
	}
}

func (b *treeBuilder) filesystemNode(f *storage.Filesystem) *Node {
	n := &Node{Kind: KindFilesystem, Name: f.Type, Dev: f.Dev.String(), Enforced: Enforced{Buffered: bufferedOf(f.Warning)}}
	if f.Err != nil {
		n.Reason = f.Err.Error()
	}
	volume := map[string]bool{}
	for _, v := range b.volumes {
		volume[v.path] = true
	}
	rank := func(m *storage.Mount) int {
		switch {
		case volume[m.Mountpoint]:
			return 2
		case m.Root != "/":
			return 1 // a mount of all of it is more useful than one of a part
		}
		return 0
	}
	mounts := slices.Clone(f.Mounts)
	slices.SortStableFunc(mounts, func(x, y *storage.Mount) int { return cmp.Compare(rank(x), rank(y)) })
	for _, m := range mounts {
		n.Mountpoints = append(n.Mountpoints, m.Mountpoint)
	}
	return n
}

// bufferedOf reports whether limits apply to buffered writes. The warning that others wait
// for an fsync does not concern that.
func bufferedOf(w *blkio.Warning) *Support {
	switch {
	case w == nil:
		return &Support{OK: blkio.Yes}
	case w.Kind == blkio.NoCgroupWriteback:
		return &Support{blkio.No, w.Text}
	}
	return &Support{blkio.Yes, w.Text}
}

func (b *treeBuilder) addSwap(ctx context.Context, s storage.Swap) {
	n := &Node{Kind: KindSwap, Name: path.Base(s.Name), Device: Device{Size: s.Size, Used: s.Used}, Place: Place{Path: s.Name}}
	if s.File {
		if fs := b.filesystemAt(b.storage.Resolve(ctx, s.Name)); fs != nil {
			fs.Children = append(fs.Children, n)
			return
		}
	} else if dev, err := b.storage.Node(s.Name); err == nil {
		b.put(n, []blkio.Disk{{Dev: dev}})
		return
	}
	b.roots = append(b.roots, n)
}

// filesystemAt returns the node of the filesystem that a path is in, nil if it is
// in none with a disk.
func (b *treeBuilder) filesystemAt(at *blkio.Backing) *Node {
	m, ok := b.storage.Mounts().Find(at.Mountpoint)
	if !ok || m.FSType != at.FSType {
		return nil
	}
	return b.filesystems[m.Dev]
}

func (b *treeBuilder) addVolume(ctx context.Context, v podVolume) {
	at := b.storage.Resolve(ctx, v.path)
	if at.Reason != "" {
		return // on no disk of the node
	}
	n := v.node()
	if v.Block {
		n.Kind, n.Buffered = KindBlockVolume, &Support{OK: blkio.Yes}
		b.put(n, at.Disks)
		return
	}
	if fs := b.filesystemAt(at); fs != nil {
		fs.Children = append(fs.Children, n)
		return
	}
	// One without a device of its own, whose disks are known all the same.
	n.Buffered = bufferedOf(at.Warning)
	b.put(n, at.Disks)
}
