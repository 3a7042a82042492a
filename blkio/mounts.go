package blkio

import (
	"fmt"
	"io"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/moby/sys/mountinfo"
)

// Mount is one line of mountinfo, what is of use here.
type Mount struct {
	ID, Parent int
	Dev        Dev    // st_dev of its files; major 0 is no block device
	Root       string // of the mount within the filesystem
	Mountpoint string // absolute, free of symlinks
	FSType     string
	Source     string
	// Options are an overlay's, of which its layers are; "" for others.
	Options string
	// Peers is the number of the peer group that it is in, and Master that of the
	// one that it gets mounts and unmounts from; 0 for none.
	Peers, Master int
	// DataJournal is ext4's data=journal: no cgroup writeback.
	DataJournal bool
	// SlowFsync is what makes others' fsync wait behind a throttled writer:
	// ext4's nodelalloc and dioread_lock.
	SlowFsync bool
}

// MountTable is a snapshot of mountinfo. It does not change and is safe for
// concurrent use.
type MountTable struct {
	mounts []*Mount
	// byPoint holds an index into mounts, and others that of the next mount
	// on the same point, or -1: a stack, in no order.
	byPoint map[string]int32
	others  []int32
	longest int // mountpoint, in bytes

	sorting sync.Once
	sorted  []string // the mountpoints, without duplicates; see points
}

// ParseMountTable parses mountinfo as of proc_pid_mountinfo(5):
//
//	36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
//
// Parent IDs matter: a mount below a directory that another one has since
// covered cannot be reached, and is not found.
func ParseMountTable(r io.Reader) (*MountTable, error) {
	mounts, err := parseMounts(r)
	if err != nil {
		return nil, err
	}
	return newMountTable(mounts), nil
}

// parseMounts returns a mount for each line; one that cannot be reached from the
// root of the process has no Mountpoint.
func parseMounts(r io.Reader) ([]*Mount, error) {
	p := mountParser{names: make(map[string]string)}
	_, err := mountinfo.GetMountsFromReader(r, p.add)
	if err == nil {
		err = p.err
	}
	if err != nil {
		return nil, fmt.Errorf("parse mountinfo, mount %d: %w", len(p.mounts)+1, err)
	}
	return p.mounts, nil
}

func newMountTable(mounts []*Mount) *MountTable {
	unreachable := func(m *Mount) bool { return m.Mountpoint == "" }
	if slices.ContainsFunc(mounts, unreachable) {
		mounts = slices.DeleteFunc(slices.Clone(mounts), unreachable)
	}
	t := &MountTable{
		mounts:  mounts,
		byPoint: make(map[string]int32, len(mounts)),
		others:  make([]int32, len(mounts)),
	}
	for i := range mounts {
		t.others[i] = -1
		if first, ok := t.byPoint[mounts[i].Mountpoint]; ok {
			t.others[i] = first
		}
		t.byPoint[mounts[i].Mountpoint] = int32(i)
		t.longest = max(t.longest, len(mounts[i].Mountpoint))
	}
	return t
}

// mountParser takes what is of use from each line, and copies it: a part of
// the line would keep all of it.
type mountParser struct {
	mounts []*Mount
	names  map[string]string // few and often
	err    error
}

func (p *mountParser) add(info *mountinfo.Info) (skip, stop bool) {
	// The library takes what is no number for 0.
	if info.Major < 0 || info.Major > math.MaxUint32 || info.Minor < 0 || info.Minor > math.MaxUint32 {
		p.err = fmt.Errorf("device number %d:%d out of range", info.Major, info.Minor)
		return true, true
	}
	if !strings.HasPrefix(info.Mountpoint, "/") {
		p.mounts = append(p.mounts, &Mount{})
		return true, false
	}
	options := ""
	if info.FSType == "overlay" {
		options = strings.Clone(info.VFSOptions)
	}
	peers, master := propagation(info.Optional)
	p.mounts = append(p.mounts, &Mount{
		ID:          info.ID,
		Parent:      info.Parent,
		Dev:         Dev{Major: uint32(info.Major), Minor: uint32(info.Minor)},
		Root:        p.intern(info.Root),
		Mountpoint:  path.Clean(strings.Clone(info.Mountpoint)),
		FSType:      p.intern(info.FSType),
		Source:      p.intern(info.Source),
		Options:     options,
		Peers:       peers,
		Master:      master,
		DataJournal: hasOption(info.VFSOptions, "data=journal"),
		SlowFsync:   hasOption(info.VFSOptions, "nodelalloc") || hasOption(info.VFSOptions, "dioread_lock"),
	})
	return true, false
}

func (p *mountParser) intern(s string) string {
	if name, ok := p.names[s]; ok {
		return name
	}
	s = strings.Clone(s)
	p.names[s] = s
	return s
}

// propagation reads the optional fields, "shared:7 master:1". Others there are
// ignored, as proc_pid_mountinfo(5) wants.
func propagation(fields string) (peers, master int) {
	for f := range strings.FieldsSeq(fields) {
		tag, value, _ := strings.Cut(f, ":")
		n, err := strconv.Atoi(value)
		if err != nil {
			continue
		}
		switch tag {
		case "shared":
			peers = n
		case "master":
			master = n
		}
	}
	return peers, master
}

func hasOption(options, want string) bool {
	for o := range strings.SplitSeq(options, ",") {
		if o == want {
			return true
		}
	}
	return false
}

// All returns every mount in the order of the file. They must not be changed, and may
// be another table's, too.
func (t *MountTable) All() []*Mount { return t.mounts }

// Find returns the mount that holds an absolute path, taken as text: the
// longest mountpoint that is the path or a directory above it, the topmost if
// there are several, without those that another mount hides.
func (t *MountTable) Find(p string) (*Mount, bool) {
	if !strings.HasPrefix(p, "/") {
		return nil, false
	}
	m := t.find(path.Clean(p))
	return m, m != nil
}

// find takes a clean path. It looks up what covers each mountpoint on the way
// just once, so that the time grows with the length of the path and no more.
func (t *MountTable) find(p string) *Mount {
	// A tenant may write a path of 64 KiB, and each directory on the way is
	// looked up. Nothing is at one that is longer than each mountpoint.
	p = p[:min(len(p), t.longest+1)]
	for {
		if first, ok := t.byPoint[p]; ok {
			return t.top(first, p)
		}
		if p == "/" {
			return nil
		}
		p = parentDir(p)
	}
}

// top returns the mount that is seen on p: the top of the stack there, or what
// is around it if a mount further up hides the whole of it.
func (t *MountTable) top(first int32, p string) *Mount {
	var around *Mount
	if p != "/" {
		around = t.find(parentDir(p))
	}
	var seen *Mount
	if around == nil {
		seen = t.bottom(first) // the root, whose parent is not in the table
	} else if seen = t.childOf(first, around.ID); seen == nil {
		return around
	}
	if t.others[first] < 0 {
		return seen
	}
	for range t.mounts { // bounded, should the parents go round in circles
		next := t.childOf(first, seen.ID)
		if next == nil {
			break
		}
		seen = next
	}
	return seen
}

// bottom returns the mount of a stack that has no other one of it below.
func (t *MountTable) bottom(first int32) *Mount {
	for i := first; i >= 0; i = t.others[i] {
		m := t.mounts[i]
		if below := t.withID(first, m.Parent); below == nil || below == m {
			return m
		}
	}
	return t.mounts[first]
}

func (t *MountTable) withID(first int32, id int) *Mount {
	for i := first; i >= 0; i = t.others[i] {
		if t.mounts[i].ID == id {
			return t.mounts[i]
		}
	}
	return nil
}

func (t *MountTable) childOf(first int32, id int) *Mount {
	for i := first; i >= 0; i = t.others[i] {
		if t.mounts[i].Parent == id && t.mounts[i].ID != id {
			return t.mounts[i]
		}
	}
	return nil
}

// parentDir is path.Dir for a clean absolute path, without its allocations.
func parentDir(p string) string {
	if i := strings.LastIndexByte(p, '/'); i > 0 {
		return p[:i]
	}
	return "/"
}
