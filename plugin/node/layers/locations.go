// Package layers finds where the runtime stores the writable layers of containers. It asks the runtime, and compares the answer with
// the root mounts of processes.
package layers

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/nri-blkio/nri-blkio/plugin/inventory"
)

// Locations has the locations of the writable layers of containers that are created now. It does not change.
type Locations struct {
	inventory.Layers
	// registration counts the registrations with the runtime. The runtime registers the plugin after each start
	// of its own, when it may have another configuration. The layers of containers that were resolved during an
	// earlier registration stay where they are.
	registration int
	// compared has the handlers whose location was compared with the root mount of a process during this registration, with what that
	// shows if it differs. It replaces what the runtime answers, also later.
	compared map[string]inventory.Layer
}

// Of returns the location of a handler's layers.
func (l *Locations) Of(handler string) inventory.Layer {
	if seen := l.compared[handler]; seen != (inventory.Layer{}) {
		return seen
	}
	return l.Layers.Of(handler)
}

// Own is the location of the writable layer of a container. A restarted runtime does not move it.
type Own struct {
	inventory.Layer
	registration int // number of the registration with the runtime, during the first resolution
}

// Own returns the location of the layer of a container that is resolved now.
func (l *Locations) Own(handler string) *Own { return &Own{l.Of(handler), l.registration} }

// HasMoved reports whether the layer of a container is known to be at another location than when the container was resolved. It returns
// false for a container that was not, whose location is nil.
func (l *Locations) HasMoved(own *Own, handler string) bool {
	if own == nil {
		return false
	}
	now := l.Of(handler)
	return now.Unknown == "" && (own.registration == l.registration || own.Unknown != "") && own.Layer != now
}

// elsewhere returns an error with the handlers whose layers are not where the runtime is said to have them, or nil.
func (l *Locations) elsewhere() error {
	var errs []error
	for _, handler := range slices.Sorted(maps.Keys(l.compared)) {
		if seen := l.compared[handler]; seen != (inventory.Layer{}) {
			located := l.Layers.Of(handler)
			errs = append(errs, fmt.Errorf("handler %q: %s, instead of %s", handler, cmp.Or(seen.Dir, seen.Reason), cmp.Or(located.Dir, located.Reason, located.Unknown)))
		}
	}
	return errors.Join(errs...)
}
