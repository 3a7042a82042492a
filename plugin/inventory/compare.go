package inventory

import (
	"context"
	"errors"
	"path"
	"slices"
	"strings"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/volumepath"
	"github.com/nri-blkio/nri-blkio/policy"
)

// The runtime mounts a hostPath volume after the plugin has resolved its path. In between, a tenant that can
// write to a directory above the volume can lead the path to another disk, and back again. So the disks of a
// container are those of the mounts of its first process, which the runtime makes before StartContainer.
//
// The mounts of the OCI spec cannot be matched with those of the process one by one. A symbolic link in an
// image or a volume moves a mountpoint, and mounts hide one another. Instead, each disk of a mount of the
// process is compared with the known disks. Known are those with which the limits were decided, and those of
// mounts without a limit, which the tenant may choose. Limits that were requested for a path then apply to an
// unknown disk as well. These are the limits of the spec's mount around its mountpoint or, if there is none,
// all of them.

// isRedirectable reports whether a limit depends on where a path of the host leads that
// a tenant may be able to change. The kubelet's directories for the pod are root's.
func (f *Finder) isRedirectable(pod *Pod, c *Container) bool {
	if f.ProcessMounts == nil {
		return false
	}
	for i := range c.spec.Mounts {
		m := &c.spec.Mounts[i]
		if isSelected(m, &c.Facts.Mounts[i]) && !f.isKubelets(pod.UID, m.Source) {
			return true
		}
	}
	return false
}

// isSelected reports whether a target of the request means a mount of the host.
func isSelected(m *Mount, found *policy.Mount) bool { return m.IsBind() && !found.Backing.Unresolved }

// isKubelets reports whether a path is one that the kubelet has made for a pod: nothing
// but root can write to the directories above it. A pod's UID is not known before the
// pod is there, so no hostPath volume of its own can name such a path. A symlink of a tenant, which the runtime
// follows, can lead to one below another root.
func (f *Finder) isKubelets(uid, source string) bool {
	v, below, ok := volumepath.Parse(volumepath.Pods(f.KubeletRoot), source)
	if !ok || v.UID != uid {
		return false
	}
	isSubPath := v.Plugin == "" && strings.Count(below, "/") == 1 // CONTAINER/INDEX
	return below == "" || isSubPath || v.Plugin == volumepath.CSI && below == "mount"
}

// Compare finds mounts of a container's first process that are on other disks than its OCI spec leads to.
// Limits that were requested for mounts of the spec then apply to these disks as well. After an error of
// ProcessMounts, or of a disk that cannot be found, the caller repeats the comparison.
func (f *Finder) Compare(ctx context.Context, pod *Pod, c *Container, pid int, cgroup string) error {
	mounts, err := f.ProcessMounts(ctx, pid, cgroup)
	if err != nil {
		return err
	}
	strays, err := f.strays(ctx, c, mounts)
	if err != nil {
		return err
	}
	err = c.addStrays(f.history(pod), strays)
	if err == nil {
		c.isUncompared = false
	}
	return err
}

// strays returns those of a process's mounts that nothing declares.
func (f *Finder) strays(ctx context.Context, c *Container, mounts []blkio.ProcessMount) ([]blkio.ProcessMount, error) {
	d := declared{write: map[blkio.Dev]bool{}, read: map[blkio.Dev]bool{}}
	root := slices.IndexFunc(mounts, func(m blkio.ProcessMount) bool { return m.IsRoot })
	d.addFacts(&c.Facts, len(c.kept.Mounts), root >= 0 && mounts[root].ReadOnly)
	found := d.strays(mounts)
	if len(found) == 0 {
		return nil, nil
	}
	if err := f.Storage.Refresh(ctx); err != nil {
		return nil, err
	}
	if err := d.addUnselected(ctx, f.Storage, c); err != nil {
		return nil, err
	}
	return d.strays(found), nil
}

// declared has the disks with which the limits of a container were decided: those that it may write to, and
// those that it may only read. One value covers both where the container writes.
type declared struct{ write, read map[blkio.Dev]bool }

func (d *declared) add(b *blkio.Backing, readOnly bool) {
	for _, disk := range b.Disks {
		if readOnly {
			d.read[disk.Dev] = true
		} else {
			d.write[disk.Dev] = true
		}
	}
}

// addFacts adds the disks with which the limits were decided. The first n mounts are those of the spec, and
// devices follow. The devices of a privileged container are not limited.
func (d *declared) addFacts(facts *policy.Container, n int, readOnlyRoot bool) {
	d.add(&facts.Rootfs, readOnlyRoot)
	for i := range facts.Mounts {
		m := &facts.Mounts[i]
		if i >= n && m.Injected {
			continue
		}
		d.add(m.Backing, m.ReadOnly)
		for k := range m.Below {
			d.add(m.Below[k].Backing, false)
		}
	}
}

// addUnselected adds the disks without a requested limit: those of mounts that no target
// selects, and those of mounts below a volume that only a path selects.
func (d *declared) addUnselected(ctx context.Context, storage Storage, c *Container) error {
	through := map[string]bool{}
	for i := range c.kept.Mounts {
		m := &c.kept.Mounts[i]
		source := path.Clean(m.Source)
		if !m.IsBind() || through[source] {
			continue
		}
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		if !isSelected(m, &c.Facts.Mounts[i]) {
			d.add(storage.Resolve(context.WithoutCancel(ctx), source), c.Facts.Mounts[i].ReadOnly)
		}
		if through[source] = m.IsRecursive(); through[source] {
			for _, b := range storage.Submounts(ctx, source) {
				d.add(b, false)
			}
		}
	}
	return context.Cause(ctx) // the last list may have ended early
}

func (d *declared) covers(disk blkio.Disk, readOnly bool) bool {
	return d.write[disk.Dev] || readOnly && d.read[disk.Dev]
}

// strays returns the mounts with a disk that is not declared, or that cannot be known.
func (d *declared) strays(mounts []blkio.ProcessMount) []blkio.ProcessMount {
	var out []blkio.ProcessMount
	for _, m := range mounts {
		isStray := func(disk blkio.Disk) bool { return !d.covers(disk, m.ReadOnly) }
		if !m.IsRoot && (m.Backing.Err != nil || slices.ContainsFunc(m.Backing.Disks, isStray)) {
			out = append(out, m)
		}
	}
	return out
}

// addStrays adds the disks of mounts that nothing declares. The error is about a disk that cannot be found.
func (c *Container) addStrays(h history, found []blkio.ProcessMount) (err error) {
	if len(found) == 0 {
		return nil
	}
	type place struct {
		backing  *blkio.Backing
		readOnly bool
		around   int
	}
	done := map[place]bool{} // a tenant may mount one directory a thousand times
	index := policy.IndexMounts(c.Facts.Mounts)
	c.Facts.Mounts = slices.Clone(c.Facts.Mounts)
	for i := range found {
		m := &found[i]
		at := place{m.Backing, m.ReadOnly, index.Find(m.Mountpoint)}
		if done[at] {
			continue
		}
		done[at] = true
		err = errors.Join(err, m.Backing.Err)
		if len(m.Backing.Disks) > 0 {
			c.Added = append(slices.Clip(c.Added), *m) // a copy of the container has the other ones
			c.addStray(h, m, at.around)
			c.keepStray(m)
		}
	}
	return err
}

// keepStray keeps the filesystem of a writable mount, unless it is kept already.
func (c *Container) keepStray(m *blkio.ProcessMount) {
	isIt := func(b blkio.Backing) bool { return b.Mountpoint == m.Backing.Mountpoint }
	if !m.ReadOnly && m.Backing.Mountpoint != "" && !slices.ContainsFunc(c.Strays, isIt) {
		c.Strays = append(slices.Clip(c.Strays), *m.Backing) // a copy of the container has the other ones
	}
}

// addStray adds the disks of a mount to the spec's mount around its mountpoint. If that cannot be the one, it
// adds them to all mounts that can be. A read-only mount of the spec is never writable.
func (c *Container) addStray(h history, m *blkio.ProcessMount, around int) {
	canBe := func(i int) bool {
		return i >= 0 && i < len(c.kept.Mounts) && isSelected(&c.kept.Mounts[i], &c.Facts.Mounts[i]) &&
			(m.ReadOnly || !c.Facts.Mounts[i].ReadOnly)
	}
	for i := range c.kept.Mounts {
		if !canBe(i) || canBe(around) && i != around {
			continue
		}
		to := &c.Facts.Mounts[i]
		to.Backing, to.Below = h.both(to.Backing, m.Backing), slices.Clone(to.Below)
		for k := range to.Below {
			if b := &to.Below[k]; !isLeftOut(b.Backing) {
				b.Backing = h.both(b.Backing, m.Backing)
			}
		}
	}
}
