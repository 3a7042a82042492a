package inventory

import (
	"context"
	"errors"
	"maps"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// Layer is the location of the writable layers of containers. One of its fields is set.
type Layer struct {
	Dir     string // of the host, on the filesystem of the layers
	Reason  string // why that is not a disk that can be limited, as in blkio.Backing
	Unknown string // why the location is unknown, which may change
}

// Layers are the locations of writable layers by runtime handler: a runtime may store the
// layers of each handler in another way.
type Layers struct {
	Default  Layer            // of handlers that are not in the map
	Handlers map[string]Layer // "" is of pods that name no RuntimeClass
}

// Of returns where the layers of a handler's containers are.
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

// Backing returns what the layers are stored on.
func (l Layer) Backing(ctx context.Context, s Resolver) blkio.Backing {
	switch {
	case l.Unknown != "":
		return blkio.Backing{Reason: "the location of writable layers is unknown", Err: errors.New(l.Unknown)}
	case l.Reason != "":
		return blkio.Backing{Reason: l.Reason}
	}
	return s.Resolve(ctx, l.Dir)
}
