package plugin

import (
	"context"
	"maps"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// Layer says where containers' writable layers are stored. One of the two is
// set.
type Layer struct {
	Dir    string // of the host, on what the layers are stored on
	Reason string // why that is no disk which can be limited, as in blkio.Backing
}

// Layers are those of a node, by the runtime handler of the pod: a runtime may
// store those of each handler by other means.
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

// Equal compares all of them.
func (l Layers) Equal(other Layers) bool {
	return l.Default == other.Default && maps.Equal(l.Handlers, other.Handlers)
}

// rereadLayers is for when the runtime registers us, which it does after each
// start of its own: it may have another configuration now. Containers that are
// known keep what is known of them: their layers do not move.
func (p *Plugin) rereadLayers(ctx context.Context, runtime, version string) {
	if p.readLayers == nil {
		return
	}
	fresh, err := p.readLayers(ctx, runtime, version)
	if err != nil {
		p.log.WithError(err).Error("Where writable layers are cannot be read again, what was known holds")
		return
	}
	p.layers.Store(&fresh)
}

// Resolver finds what a path of the host is stored on; a *blkio.Storage.
type Resolver interface {
	Resolve(ctx context.Context, hostPath string) blkio.Backing
}

// Backing is what a layer is stored on.
func (l Layer) Backing(ctx context.Context, s Resolver) blkio.Backing {
	if l.Reason != "" {
		return blkio.Backing{Reason: l.Reason}
	}
	return s.Resolve(ctx, l.Dir)
}
