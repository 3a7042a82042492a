package storage

import (
	"cmp"
	"context"
	"errors"
	"path"
	"strconv"
	"strings"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// layers has the directories of an overlay, as paths in the mount namespace of the process that mounted it.
type layers struct {
	upper string // "" if nothing can be written
	lower []string
}

// parseLayers reads them from the options of an overlay in mountinfo:
//
//	rw,lowerdir=/l1:/l2,upperdir=/u,workdir=/w,xino=off
//
// Layers that were given one by one are listed so, "lowerdir+=/l1,lowerdir+=/l2".
//
// Source: ovl_show_options in fs/overlayfs/params.c.
func parseLayers(options string) layers {
	var l layers
	for option := range strings.SplitSeq(options, ",") {
		key, value, _ := strings.Cut(option, "=")
		value = unescapeOctal(value)
		switch key {
		case "upperdir":
			l.upper = value
		case "lowerdir":
			l.lower = append(l.lower, splitLayers(value)...)
		case "lowerdir+", "datadir+":
			l.lower = append(l.lower, value)
		}
	}
	return l
}

// layers returns the layers of an overlay. EROFS that is mounted from a file (Linux 6.12) has one, the file.
func (m *Mount) layers() layers {
	if m.isFromFile() {
		return layers{lower: []string{m.Source}}
	}
	return parseLayers(m.Options)
}

// isFromFile reports whether a filesystem is mounted from a file, and not from a block device. Its source is the path.
func (m *Mount) isFromFile() bool {
	return m.FSType == "erofs" && m.Dev.Major == 0 && path.IsAbs(m.Source)
}

// splitLayers splits at colons without a backslash. Between two are layers of data
// only, so that there can be empty ones.
func splitLayers(list string) []string {
	var out []string
	var one strings.Builder
	end := func() {
		if one.Len() > 0 {
			out = append(out, one.String())
			one.Reset()
		}
	}
	for i := 0; i < len(list); i++ {
		switch {
		case list[i] == ':':
			end()
			continue
		case list[i] == '\\' && i+1 < len(list):
			i++
		}
		one.WriteByte(list[i])
	}
	end()
	return out
}

// unescapeOctal reverses the escaping of seq_file's show functions: "\040" is a blank.
func unescapeOctal(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+4 <= len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// maxOverlays is how deep overlays can be made of overlays: FILESYSTEM_MAX_STACK_DEPTH.
const maxOverlays = 2

// overlayBacking finds the disks of an overlay. Writes go to the disk of the upper layer. Files that were not
// written yet are read from the disks of the lower layers. A filesystem from a file is read from the disks of that.
func (s *snapshot) overlayBacking(ctx context.Context, m *Mount, depth int) (_ *blkio.Backing, at layerPlaces, certain bool) {
	b := &blkio.Backing{Mountpoint: m.Mountpoint, FSType: m.FSType}
	l := m.layers()
	found, certain := make(map[blkio.Dev]blkio.Disk), true
	var missing string // why a layer has no disk
	var places []string
	add := func(dir string) {
		of, direct, known := s.layer(ctx, m, dir, depth)
		certain = certain && known
		if !direct {
			dir = "/" // any mount may change it
		}
		places = append(places, placesDir(dir))
		for _, d := range of.Disks {
			found[d.Dev] = d
		}
		b.Err, b.Missing = cmp.Or(b.Err, of.Err), b.Missing || of.Missing
		missing = cmp.Or(missing, of.Reason)
		if b.Warning == nil {
			b.Warning = of.Warning
		}
	}
	if l.upper != "" {
		if add(l.upper); missing != "" {
			b.Reason = "the upper layer of this overlay: " + missing
			return b, newLayerPlaces(places), certain
		}
	}
	// A snapshotter's layers lie side by side, NUMBER/fs each, and there may be a hundred. So one of them is
	// resolved.
	seen := map[place]bool{}
	if p, ok := s.placeOf(l.upper); ok {
		seen[p] = true
	}
	for _, dir := range l.lower {
		p, ok := s.placeOf(dir)
		if !ok || !seen[p] {
			add(dir)
		}
		seen[p] = ok
	}
	switch {
	case len(found) == 0 && m.isFromFile():
		b.Reason = "the file of this " + m.FSType + ": " + missing
		return b, newLayerPlaces(places), certain
	case len(found) == 0:
		b.Reason = "no layer of this overlay is on a disk: " + cmp.Or(missing, "the kernel reports no layers")
		return b, newLayerPlaces(places), certain
	case missing != "" && b.Warning == nil: // an earlier warning is more severe
		b.Warning = &blkio.Warning{Text: "reads of a lower layer of this overlay are not limited: " + missing}
	}
	b.Disks = sortedDisks(found)
	return b, newLayerPlaces(places), certain
}

// place is where a snapshotter has its layers, by their text, and the mount.
type place struct {
	dir string
	m   *Mount
}

// placeOf recognises a layer of a snapshotter, DIR/NUMBER/fs.
func (s *snapshot) placeOf(layer string) (_ place, ok bool) {
	dir := placesDir(layer)
	if dir == layer {
		return place{}, false
	}
	m, _ := s.table.find(layer)
	return place{dir, m}, true
}

// placesDir returns the directory DIR of a layer of a snapshotter, DIR/NUMBER/fs, and any other layer as it is.
func placesDir(layer string) string {
	dir, name := path.Split(path.Clean(layer))
	dir, number := path.Split(path.Clean(dir))
	if _, err := strconv.ParseUint(number, 10, 64); err != nil || name != "fs" || !path.IsAbs(dir) {
		return layer
	}
	return path.Clean(dir)
}

// layer finds the backing of a layer's directory. direct is true if only mounts on the way to the directory, or below it,
// can change that.
func (s *snapshot) layer(ctx context.Context, m *Mount, dir string, depth int) (_ *blkio.Backing, direct, certain bool) {
	switch {
	case depth >= maxOverlays:
		return &blkio.Backing{Reason: "too many overlays are stacked"}, false, true
	case !path.IsAbs(dir):
		// containerd gives them so where there are many, by the directory it is in.
		return &blkio.Backing{Reason: "the kernel reports it by a relative path"}, true, true
	}
	dir = path.Clean(dir)
	if m.Mountpoint != "" && (dir == m.Mountpoint || isBelow(dir, strings.TrimSuffix(m.Mountpoint, "/"))) {
		// An overlay is often mounted over its own layer, which no path leads to then.
		return s.holder(ctx, s.table.beneath(m, dir), depth, true)
	}
	of, remote := s.table.find(dir)
	if of == nil || !isLocal(of) {
		return s.holder(ctx, of, depth, true)
	}
	if remote != nil {
		return &blkio.Backing{Reason: belowRemote(remote)}, false, false
	}
	target, err := s.host.resolve(ctx, s.table, dir)
	switch {
	case errors.Is(err, errUncertain):
		// The process that mounted it meant a directory in another mount namespace.
		return &blkio.Backing{Reason: "its directory does not exist on this node"}, false, false
	case err != nil:
		return &blkio.Backing{Reason: resolveFailed, Err: err}, false, false
	}
	if target != dir {
		of, _ = s.table.find(target)
	}
	return s.holder(ctx, of, depth, target == dir)
}

// holder is the backing of a mount that holds a layer. An overlay depends on its own layers, and EROFS on its file.
func (s *snapshot) holder(ctx context.Context, m *Mount, depth int, isDirect bool) (_ *blkio.Backing, direct, certain bool) {
	if m == nil {
		return s.uncovered(), isDirect, true
	}
	b, certain := s.mountBacking(ctx, m, depth+1)
	return b, isDirect && m.FSType != "overlay" && !m.isFromFile(), certain
}

// beneath finds the mount that covers a path, without resolving symlinks, and without m and
// the mounts on it.
func (t *MountTable) beneath(m *Mount, p string) *Mount {
	byID := t.ByID()
	isOn := func(other *Mount) bool {
		for range t.mounts { // bounded, should the parents go round in circles
			if other == nil || other.ID == m.ID {
				break
			}
			other = byID[other.Parent]
		}
		return other != nil && other.ID == m.ID
	}
	var best *Mount
	for i := range t.mounts {
		other := t.mounts[i]
		holds := other.Mountpoint == p || isBelow(p, strings.TrimSuffix(other.Mountpoint, "/"))
		if holds && (best == nil || len(other.Mountpoint) >= len(best.Mountpoint)) && !isOn(other) {
			best = other
		}
	}
	return best
}
