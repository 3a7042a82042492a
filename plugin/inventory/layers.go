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

// SeenLayer returns the location of writable layers by the root mount of a process whose container has executed nothing yet. It is
// known for an overlay whose upper layer is on one filesystem with those of other containers: DIR/NUMBER/fs of containerd,
// DIR/ID/diff of CRI-O.
func (f *Finder) SeenLayer(ctx context.Context, pid int, cgroup string) (seen Layer, known bool, _ error) {
	mounts, err := f.ProcessMounts(ctx, pid, cgroup)
	if err != nil {
		return Layer{}, false, err
	}
	i := slices.IndexFunc(mounts, func(m blkio.ProcessMount) bool { return m.IsRoot })
	if i < 0 || !path.IsAbs(mounts[i].Upper) {
		return Layer{}, false, nil
	}
	seen.Dir = path.Dir(path.Dir(mounts[i].Upper))
	own, all := f.Storage.Resolve(ctx, mounts[i].Upper), f.Storage.Resolve(ctx, seen.Dir)
	return seen, len(own.Disks) > 0 && own.Mountpoint == all.Mountpoint, nil
}

// Backing returns the disks that the layers are stored on.
func (l Layer) Backing(ctx context.Context, s Resolver) blkio.Backing {
	switch {
	case l.Unknown != "":
		return blkio.Backing{Reason: "the location of writable layers is unknown", Err: errors.New(l.Unknown)}
	case l.Reason != "":
		return blkio.Backing{Reason: l.Reason}
	}
	return s.Resolve(ctx, l.Dir)
}
