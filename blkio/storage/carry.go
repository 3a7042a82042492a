package storage

import (
	"context"
	"slices"
	"strings"
	"unique"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// mountBacking is the backing of a mount, with what it depends on beside the mount and its disks.
type mountBacking struct {
	*blkio.Backing
	layers layerPlaces // of an overlay
}

// layerPlaces are the directories in which the layers of an overlay are. Most overlays of a node have the same ones. The zero
// value has none.
type layerPlaces struct{ dirs unique.Handle[string] }

// placeSeparator is in no path.
const placeSeparator = "\x00"

func newLayerPlaces(dirs []string) layerPlaces {
	slices.Sort(dirs)
	return layerPlaces{unique.Make(strings.Join(slices.Compact(dirs), placeSeparator))}
}

// isTouched reports whether a mount on one of the mountpoints can be on the way to a layer, or to another one beside it.
func (l layerPlaces) isTouched(mountpoints map[string]bool) bool {
	if l == (layerPlaces{}) {
		return false
	}
	for dir := range strings.SplitSeq(l.dirs.Value(), placeSeparator) {
		for p := range mountpoints {
			if p == dir || isBelow(p, strings.TrimSuffix(dir, "/")) || isBelow(dir, strings.TrimSuffix(p, "/")) {
				return true
			}
		}
	}
	return false
}

// carryOver takes what an older snapshot had found and what is still right, so that the next handler does not wait for
// sysfs. It resolves the devices again.
func (s *snapshot) carryOver(ctx context.Context, old *snapshot, c *mountChange) {
	moved := map[blkio.Dev]bool{} // the former disks of filesystems that have others now
	for key, disks := range old.devices.copy() {
		if ctx.Err() != nil {
			return
		}
		now, _ := s.readDisks(key) // none after an error: it is made again when a path is resolved
		if len(now) > 0 {
			s.devices.put(key, now, maxPaths)
		}
		if !slices.Equal(now, disks) {
			for _, d := range disks {
				moved[d.Dev] = true
			}
		}
	}
	if c.mounts != nil {
		s.carryMounts(old, c.mounts, moved)
	}
}

// carryMounts keeps the backings of mounts that have not changed. A node has thousands, and each container that follows its
// mounts needs all of them after each change.
func (s *snapshot) carryMounts(old *snapshot, changed []*Mount, moved map[blkio.Dev]bool) {
	gone, mountpoints := make(map[*Mount]bool, len(changed)), make(map[string]bool, len(changed))
	for _, m := range changed {
		gone[m], mountpoints[m.Mountpoint] = true, true
	}
	touched := map[layerPlaces]bool{}
	isTouched := func(l layerPlaces) bool {
		t, known := touched[l]
		if !known {
			t = l.isTouched(mountpoints)
			touched[l] = t
		}
		return t
	}
	hasMoved := func(d blkio.Disk) bool { return moved[d.Dev] }
	for m, known := range old.mounts.copy() {
		if !gone[m] && !isTouched(known.layers) && !slices.ContainsFunc(known.Disks, hasMoved) {
			s.mounts.put(m, known, len(s.table.mounts))
		}
	}
}
