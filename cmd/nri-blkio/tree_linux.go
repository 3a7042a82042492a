package main

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

// treeNode is one thing of the node's storage, with what is on it in children.
// Which fields are there depends on the kind:
//
//	disk, partition, lvm, crypt, multipath, raid1 (and other levels), md, dm, loop
//	             name, dev, size, readOnly; but for partitions also model,
//	             rotational, scheduler, below, max, weight, latency, and buffered
//	             where nothing but pods' block devices is on it
//	filesystem   name (its type), dev (of stat), mountpoints, buffered
//	swap         name (of the device or file), size, used
//	volume       name, plugin, uid, namespace and pod if they are known, path
//	blockVolume  the same for a device that a pod has without a filesystem; buffered
//
// A thing with several devices below is in full on the first of them; on the
// others it has kind, name, dev and again only.
type treeNode struct {
	Kind       string   `json:"kind"`
	Name       string   `json:"name"`
	Dev        string   `json:"dev,omitempty"`
	Again      bool     `json:"again,omitempty"`
	Model      string   `json:"model,omitempty"` // of a drive; else the name of the LV or the like, the file of a loop device
	Size       uint64   `json:"size,omitempty"`  // bytes
	Used       uint64   `json:"used,omitempty"`  // bytes
	Rotational bool     `json:"rotational,omitempty"`
	ReadOnly   bool     `json:"readOnly,omitempty"`
	Scheduler  string   `json:"scheduler,omitempty"`
	Below      []string `json:"below,omitempty"` // the names of the devices that it is made of

	Max      *support `json:"max,omitempty"`
	Weight   *support `json:"weight,omitempty"`
	Latency  *support `json:"latency,omitempty"`
	Buffered *support `json:"buffered,omitempty"`

	Mountpoints []string `json:"mountpoints,omitempty"` // those of pods' volumes last

	Plugin    string `json:"plugin,omitempty"` // "kubernetes.io/csi"
	Namespace string `json:"namespace,omitempty"`
	Pod       string `json:"pod,omitempty"`
	UID       string `json:"uid,omitempty"`
	Path      string `json:"path,omitempty"`
	Orphan    bool   `json:"orphan,omitempty"` // its pod is gone: see "orphans" of the report
	Reason    string `json:"reason,omitempty"` // why a volume is on no disk, or a filesystem's is not known

	Children []*treeNode `json:"children,omitempty"`

	InMemory bool `json:"-"` // a volume on no disk that is in memory
}

// The kinds that are no block devices.
const (
	kindFilesystem  = "filesystem"
	kindSwap        = "swap"
	kindVolume      = "volume"
	kindBlockVolume = "blockVolume"
)

// treeBuilder makes the tree of what was read.
type treeBuilder struct {
	storage  *storage.Storage
	sys      storage.Sysfs
	features cgroupfs.Features
	qos      map[blkio.Dev]bool
	devices  []storage.BlockDevice
	swaps    []storage.Swap
	volumes  []podVolume

	nodes       map[blkio.Dev]*treeNode // the block devices
	filesystems map[blkio.Dev]*treeNode // by the number of stat
	roots       []*treeNode
	elsewhere   []*treeNode
}

// build returns the disks at the bottom, and the volumes that are on none.
func (b *treeBuilder) build(ctx context.Context) (roots, elsewhere []*treeNode) {
	b.nodes, b.filesystems = map[blkio.Dev]*treeNode{}, map[blkio.Dev]*treeNode{}
	b.roots, b.elsewhere = []*treeNode{}, []*treeNode{}
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
	b.roots = slices.DeleteFunc(b.roots, func(n *treeNode) bool {
		// The kernel's 16 ramdisks have a size before they are used.
		return strings.HasPrefix(n.Dev, "1:") && len(n.Children) == 0
	})
	once(b.roots)
	return b.roots, b.elsewhere
}

// put puts a thing on each device below it.
func (b *treeBuilder) put(n *treeNode, below []blkio.Disk) {
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
func once(roots []*treeNode) {
	seen := map[*treeNode]bool{}
	var visit func(list []*treeNode)
	visit = func(list []*treeNode) {
		for i, n := range list {
			if seen[n] {
				list[i] = &treeNode{Kind: n.Kind, Name: n.Name, Dev: n.Dev, Again: true}
				continue
			}
			seen[n] = true
			visit(n.Children)
		}
	}
	visit(roots)
}

func (b *treeBuilder) deviceNode(d *storage.BlockDevice) *treeNode {
	n := &treeNode{
		Kind: string(d.Kind), Name: d.Name, Dev: d.Dev.String(), Size: d.Size, ReadOnly: d.ReadOnly,
		Model: d.Model, Rotational: d.Rotational, Scheduler: d.Scheduler,
	}
	if d.Kind == storage.KindPartition {
		return n // a limit is its disk's
	}
	n.Below = diskNames(d.Parents)
	limit, weight, latency := maxSupport(b.features), weightOf(b.features, b.qos, d.DiskInfo, b.sys), latencyOf(b.features, d.DiskInfo)
	n.Max, n.Weight, n.Latency = &limit, &weight, &latency
	return n
}

// finish is for what depends on what is on a device: without a filesystem, what
// is written to its own page cache has cgroup writeback.
//
// Source: bd_init_fs_context in block/bdev.c, which sets SB_I_CGROUPWB.
func (b *treeBuilder) finish(d *storage.BlockDevice, n *treeNode) {
	raw := !slices.ContainsFunc(n.Children, func(c *treeNode) bool { return c.Kind != kindBlockVolume })
	if d.Kind != storage.KindPartition && raw {
		n.Buffered = &support{OK: blkio.Yes}
	}
}

func (b *treeBuilder) filesystemNode(f *storage.Filesystem) *treeNode {
	n := &treeNode{Kind: kindFilesystem, Name: f.Type, Dev: f.Dev.String(), Buffered: bufferedOf(f.Warning)}
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
			return 1 // a mount of all of it says more than one of a part
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

// bufferedOf is about limits alone: that others wait for an fsync is told, and
// the limits hold.
func bufferedOf(w *blkio.Warning) *support {
	switch {
	case w == nil:
		return &support{OK: blkio.Yes}
	case w.Kind == blkio.NoCgroupWriteback:
		return &support{blkio.No, w.Text}
	}
	return &support{blkio.Yes, w.Text}
}

func (b *treeBuilder) addSwap(ctx context.Context, s storage.Swap) {
	n := &treeNode{Kind: kindSwap, Name: path.Base(s.Name), Path: s.Name, Size: s.Size, Used: s.Used}
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
func (b *treeBuilder) filesystemAt(at blkio.Backing) *treeNode {
	m, ok := b.storage.Mounts().Find(at.Mountpoint)
	if !ok || m.FSType != at.FSType {
		return nil
	}
	return b.filesystems[m.Dev]
}

func (b *treeBuilder) addVolume(ctx context.Context, v podVolume) {
	at := b.storage.Resolve(ctx, v.path)
	n := v.node()
	if at.Reason != "" {
		n.Reason, n.InMemory = at.Reason, slices.Contains([]string{"tmpfs", "ramfs", "hugetlbfs"}, at.FSType)
		b.elsewhere = append(b.elsewhere, n)
		return
	}
	if v.Block {
		n.Kind, n.Buffered = kindBlockVolume, &support{OK: blkio.Yes}
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
