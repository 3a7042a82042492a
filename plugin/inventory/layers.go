package inventory

import (
	"context"
	"errors"
	"maps"
	"path"
	"slices"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// Layer is the location of writable layers. Exactly one of its fields is set.
type Layer struct {
	Dir     string // directory on the node, on the filesystem of the layers
	Reason  string // why the layers are on no disk that can be limited, as in blkio.Backing
	Unknown string // why the location is unknown for now
}

// Layers has the locations of writable layers by runtime handler. A runtime can store the layers of each
// handler elsewhere.
type Layers struct {
	Default  Layer            // for handlers that are not in the map
	Handlers map[string]Layer // "" is the handler of pods without a RuntimeClass
}

// Of returns the location of a handler's layers.
func (l Layers) Of(handler string) Layer {
	if own, ok := l.Handlers[handler]; ok {
		return own
	}
	return l.Default
}

// Equal reports whether both have the same locations.
func (l Layers) Equal(other Layers) bool {
	return l.Default == other.Default && maps.Equal(l.Handlers, other.Handlers)
}

// noOverlay is why writable layers cannot be limited that are on other disks than the runtime says, and not in one directory.
const noOverlay = "the root of a container is no overlay, and is on another disk than the runtime or its configuration says"

// SeenLayer returns the location of writable layers, and the disks of one of them, by the root mount of a process whose container has
// executed nothing yet. If the root is an overlay, the location is the directory of all upper layers: DIR of containerd's DIR/NUMBER/fs
// and of CRI-O's DIR/ID/diff. If it is no overlay, for example a device for each container, the location has only a reason. There are no
// disks if they are unknown, or if the upper layers of two containers can be on two filesystems.
func (f *Finder) SeenLayer(ctx context.Context, pid int, cgroup string) (Layer, []blkio.Disk, error) {
	mounts, err := f.ProcessMounts(ctx, pid, cgroup)
	if err != nil {
		return Layer{}, nil, err
	}
	i := slices.IndexFunc(mounts, func(m blkio.ProcessMount) bool { return m.IsRoot })
	if i < 0 {
		return Layer{}, nil, nil
	}
	root := &mounts[i]
	if path.IsAbs(root.Upper) {
		dir := path.Dir(path.Dir(root.Upper))
		if own, all := f.Storage.Resolve(ctx, root.Upper), f.Storage.Resolve(ctx, dir); own.Mountpoint == all.Mountpoint {
			return Layer{Dir: dir}, own.Disks, nil
		}
	} else if root.Upper == "" && root.Backing != nil && root.Backing.FSType != "overlay" {
		return Layer{Reason: noOverlay}, root.Backing.Disks, nil
	}
	return Layer{}, nil, nil
}

// Backing returns the disks that the layers are stored on.
func (l Layer) Backing(ctx context.Context, s Resolver) *blkio.Backing {
	switch {
	case l.Unknown != "":
		return &blkio.Backing{Reason: "the location of writable layers is unknown", Err: errors.New(l.Unknown)}
	case l.Reason != "":
		return &blkio.Backing{Reason: l.Reason}
	}
	return s.Resolve(ctx, l.Dir)
}
