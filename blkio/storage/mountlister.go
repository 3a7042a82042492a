package storage

import (
	"cmp"
	"errors"
	"slices"

	"golang.org/x/sys/unix"
)

// mountLister reads the mount table of a namespace with listmount(2) and
// statmount(2). The kernel gives each mount an ID that it never uses again, so that
// only the mounts that are new have to be read. For 5,000 mounts the list takes
// 0.3 ms, where the text of mountinfo takes 46 ms.
//
// A mount can change under its ID. If it is moved or remounted, the kernel reports a
// change, and the list is the same: then all mounts are read again. If others came or
// went at the same time, only those on the same mountpoints are read again, whose
// parents may have changed; recheck finds the rest. The kernel reports no change for a new
// propagation type, or for renamed directories above a root or a mountpoint: these are
// found after the next change.
//
// Source: the callers of touch_mnt_namespace in fs/namespace.c.
type mountLister struct {
	namespace uint64
	// text reads mountinfo, for the fields that the kernel's statmount lacks.
	text  func() (*MountTable, error)
	known []listedMount // by ID
	table *MountTable
	// Buffers that are used again.
	ids        []uint64
	buf, large []byte
}

// listedMount is a mount by its unique ID; nil if it has no path, and so is not in the
// table.
type listedMount struct {
	id uint64
	*Mount
}

// errOtherTable is the answer of a kernel that lists other mounts than mountinfo has.
var errOtherTable = errors.New("listmount and mountinfo differ")

// newMountLister lists the namespace of a mountinfo file. It compares the mounts with
// those of the text, which it reads at least once.
func newMountLister(name string, text func() (*MountTable, error)) (*mountLister, error) {
	namespace, err := mountNamespace(name)
	if err != nil {
		return nil, err
	}
	l := &mountLister{namespace: namespace, text: text, buf: make([]byte, smallStatus)}
	for range 3 { // Mounts may come and go between the two.
		if err = l.begin(); !errors.Is(err, errOtherTable) {
			break
		}
	}
	return l, err
}

// begin takes the mounts of the text, each with the ID that the kernel lists it by.
func (l *mountLister) begin() error {
	t, err := l.text()
	if err != nil {
		return err
	}
	if l.ids, err = listMounts(l.namespace, l.ids); err != nil {
		return err
	}
	byID := t.ByID()
	l.known, l.table = make([]listedMount, 0, len(l.ids)), t
	found := 0
	for _, id := range l.ids {
		s, err := statMounted(l.namespace, id, statMount, l.buf)
		if errors.Is(err, unix.ENOENT) {
			return errOtherTable
		}
		if err != nil {
			return err
		}
		m := byID[int(s.uint32(atOldID))]
		if m != nil {
			found++
		}
		l.known = append(l.known, listedMount{id, m})
	}
	if found != len(t.mounts) {
		return errOtherTable
	}
	return nil
}

// read returns the table and the mounts that came and went since the last one. A
// changed mount is in that list twice.
func (l *mountLister) read() (*MountTable, []*Mount, error) {
	var err error
	if l.ids, err = listMounts(l.namespace, l.ids); err != nil {
		return nil, nil, err
	}
	next := make([]listedMount, 0, len(l.ids))
	d := newMountDelta()
	old := l.known
	for _, id := range l.ids {
		for ; len(old) > 0 && old[0].id < id; old = old[1:] {
			d.remove(old[0].Mount)
		}
		if len(old) > 0 && old[0].id == id {
			next, old = append(next, old[0]), old[1:]
			continue
		}
		m, err := l.stat(id)
		if errors.Is(err, unix.ENOENT) {
			continue // it was unmounted again
		}
		if err != nil {
			return nil, nil, err
		}
		d.add(m)
		next = append(next, listedMount{id, m})
	}
	for _, m := range old {
		d.remove(m.Mount)
	}
	isAffected := func(m *Mount) bool { return d.points[m.Mountpoint] }
	if d.isEmpty() {
		isAffected = func(*Mount) bool { return true }
	}
	if err := l.again(next, d, isAffected); err != nil {
		return nil, nil, err
	}
	if err := l.complete(next, d); err != nil {
		return nil, nil, err
	}
	l.take(next, d)
	return l.table, d.list(), nil
}

// recheck reads n mounts again, from the one with this index on. The delta is empty if
// none has changed.
func (l *mountLister) recheck(first, n int) (*MountTable, []*Mount, error) {
	first = min(first, len(l.known))
	part := slices.Clone(l.known[first:min(first+n, len(l.known))]) // not all: mostly none has changed
	d := newMountDelta()
	if err := l.again(part, d, func(*Mount) bool { return true }); err != nil {
		return nil, nil, err
	}
	if !d.isEmpty() {
		next := slices.Clone(l.known)
		copy(next[first:], part)
		l.take(next, d)
	}
	return l.table, d.list(), nil
}

// again reads those of the mounts again that were there before, and replaces those
// that have changed.
func (l *mountLister) again(mounts []listedMount, d *mountDelta, isAffected func(*Mount) bool) error {
	for i, old := range mounts {
		if old.Mount == nil || d.added[old.Mount] || !isAffected(old.Mount) {
			continue
		}
		m, err := l.stat(old.id)
		if errors.Is(err, unix.ENOENT) {
			continue // The next change is about that.
		}
		if err != nil {
			return err
		}
		if m != nil && l.lacks(m) {
			m.Source, m.FSType = old.Source, old.FSType
		} else if m != nil && m.Source == "" {
			m.Source = old.Source
		}
		if m == nil || *m != *old.Mount {
			d.remove(old.Mount)
			d.add(m)
			mounts[i].Mount = m
		}
	}
	return nil
}

// lacks reports whether the disks of a mount depend on a field that statmount does not
// have before Linux 6.13.
func (l *mountLister) lacks(m *Mount) bool {
	return m.Source == "" && m.Dev.Major == 0 && (noDiskReason(m.FSType) == "" || m.FSType == "fuse") && m.FSType != "overlay"
}

// complete reads the text for new mounts that lack a field.
func (l *mountLister) complete(next []listedMount, d *mountDelta) error {
	var lacking []*Mount
	for _, m := range next {
		if m.Mount != nil && d.added[m.Mount] && l.lacks(m.Mount) {
			lacking = append(lacking, m.Mount)
		}
	}
	if len(lacking) == 0 {
		return nil
	}
	t, err := l.text()
	if err != nil {
		return err
	}
	for _, m := range lacking {
		i := slices.IndexFunc(t.mounts, func(o *Mount) bool { return o.ID == m.ID })
		if i >= 0 {
			m.Source, m.FSType = t.mounts[i].Source, t.mounts[i].FSType
		}
	}
	return nil
}

// take makes next the known mounts.
func (l *mountLister) take(next []listedMount, d *mountDelta) {
	mounts := make([]*Mount, 0, len(next))
	for _, m := range next {
		if m.Mount != nil {
			mounts = append(mounts, m.Mount)
		}
	}
	l.known = next
	l.table = l.table.next(mounts, d.fresh, d.gone)
}

// The buffers of stat. The kernel prints a path again with twice the room until it fits or the buffer is full.
// So a small buffer bounds the cost of a long path.
const (
	smallStatus = statmountSize + 2*unix.PathMax
	largeStatus = statmountSize + 2*maxMountField
)

// stat reads a mount; nil if it has no path, or none that a call of the kernel takes.
// Mostly all fits into a small buffer. If not, it is the root, which a tenant can make
// long and which no limit depends on, or the layers of an overlay.
func (l *mountLister) stat(id uint64) (*Mount, error) {
	s, err := statMounted(l.namespace, id, statAll, l.buf)
	if err == nil {
		return s.mount(), nil
	}
	if l.large == nil {
		l.large = make([]byte, largeStatus)
	}
	var m *Mount
	for _, mask := range []uint64{statAll &^ statRoot, statSuperblock | statMount | statMountpoint} {
		if !errors.Is(err, unix.EOVERFLOW) {
			break
		}
		if s, err = statMounted(l.namespace, id, mask, l.large); err == nil {
			m = s.mount()
		}
	}
	if errors.Is(err, unix.EOVERFLOW) {
		return nil, nil
	}
	if err != nil || m == nil || int(s.uint32(atSize))+unix.PathMax <= len(l.buf) {
		return m, err // It was the root.
	}
	if s, err = statMounted(l.namespace, id, statRoot, l.buf); err == nil {
		m.Root = string(s.text(statRoot, atRoot))
	}
	return m, nil
}

// mountDelta is the difference of two tables.
type mountDelta struct {
	fresh  []*Mount
	added  map[*Mount]bool
	gone   map[*Mount]bool
	points map[string]bool // mountpoints of both
}

func newMountDelta() *mountDelta {
	return &mountDelta{added: map[*Mount]bool{}, gone: map[*Mount]bool{}, points: map[string]bool{}}
}

func (d *mountDelta) add(m *Mount) {
	if m != nil {
		d.fresh, d.added[m], d.points[m.Mountpoint] = append(d.fresh, m), true, true
	}
}

func (d *mountDelta) remove(m *Mount) {
	if m != nil {
		d.gone[m], d.points[m.Mountpoint] = true, true
	}
}

func (d *mountDelta) isEmpty() bool { return len(d.fresh)+len(d.gone) == 0 }

func (d *mountDelta) list() []*Mount {
	out := append(make([]*Mount, 0, len(d.fresh)+len(d.gone)), d.fresh...) // not nil, which means unknown
	for m := range d.gone {
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b *Mount) int { return cmp.Compare(a.ID, b.ID) })
	return out
}
