package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nri-blkio/nri-blkio/plugin/bounded"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
	"github.com/nri-blkio/nri-blkio/plugin/node/guard"
	"github.com/nri-blkio/nri-blkio/policy"
)

// This file finds where the runtime stores the writable layers of containers.

// layerLocations has the locations of the writable layers of containers that are created now.
type layerLocations struct {
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
func (l *layerLocations) Of(handler string) inventory.Layer {
	if seen := l.compared[handler]; seen != (inventory.Layer{}) {
		return seen
	}
	return l.Layers.Of(handler)
}

// moved reports whether the layer of a container is known to be at another location than when the container was
// resolved.
func (l *layerLocations) moved(c *snapshot) bool {
	at, now := c.layer.at, l.Of(c.pod.request.now.Load().Handler)
	return at != nil && now.Unknown == "" && (c.layer.registration == l.registration || at.Unknown != "") && *at != now
}

// layers has the locations of writable layers. It asks the runtime for them.
type layers struct {
	*environment
	state     *guard.Value[state]
	passes    *bounded.Calls
	current   atomic.Pointer[layerLocations] // stored while the lock of the state is held
	questions chan layerQuestion             // at most one, which the runtime has not answered
	problem   atomic.Pointer[error]          // of the last question of askAgain, which is nil without one
}

// layerQuestion is a question to a runtime that has not reported the locations of its layers.
type layerQuestion struct {
	runtime, version string
	registration     int
}

const (
	// layersFirst bounds the question for which the registration waits. The session gives up on it after a
	// quarter of the runtime's own deadline.
	layersFirst    = 400 * time.Millisecond
	layersDeadline = 3 * time.Second // bounds the later questions
	layersRetry    = time.Second     // the first pause between two questions, which doubles
	layersPause    = 30 * time.Second
)

// Registered asks a runtime that registers the plugin where it stores writable layers, and waits at most
// patience for the answer. A late answer is still used for the containers that are created after it.
func (n *Node) Registered(ctx context.Context, runtime, version string, patience time.Duration) {
	err := n.inFlight.calls.For(ctx, "", patience, func(ctx context.Context) error {
		n.layers.askAtRegistration(ctx, runtime, version)
		return nil
	})
	if err != nil {
		n.log.WithError(fmt.Errorf("locate writable layers: %w", err)).Error("Locating writable layers failed: rootfs uses the previous location")
	}
}

// compare compares the location of the layers of a container that starts with the root mount of its process, once for each handler.
// The runtime behind a socket or a configuration file can be another one than that of the container. Later a tenant's process can
// have another root.
func (l *layers) compare(ctx context.Context, find *inventory.Finder, c *snapshot, pol *policy.Policy) {
	handler, before := c.pod.request.now.Load().Handler, l.current.Load()
	if _, done := before.compared[handler]; done || l.processMounts == nil || c.pid <= 0 || !slices.Contains(pol.HostKernelHandlers, handler) {
		return
	}
	seen, disks, err := find.SeenLayer(ctx, c.pid, c.cgroup)
	if err != nil {
		c.logger(l.log).WithError(err).Warn("Comparing the location of writable layers failed")
		return
	}
	located := before.Of(handler)
	if len(disks) == 0 || located.Reason != "" && seen.Reason != "" || slices.Equal(disks, located.Backing(ctx, l.storage).Disks) {
		seen = inventory.Layer{}
	}
	l.noteCompared(handler, seen, before.registration)
}

// noteCompared keeps what the first comparison of a handler has shown, unless the runtime has registered the plugin meanwhile.
func (l *layers) noteCompared(handler string, seen inventory.Layer, registration int) {
	s := l.state.Lock()
	defer l.state.Unlock()
	now := *l.current.Load()
	if _, done := now.compared[handler]; done || now.registration != registration {
		return
	}
	now.compared = maps.Clone(now.compared)
	if now.compared == nil {
		now.compared = map[string]inventory.Layer{}
	}
	now.compared[handler] = seen
	l.store(s, &now)
}

// elsewhere returns an error with the handlers whose layers are not where the runtime is said to have them, or nil.
func (l *layers) elsewhere() error {
	now := l.current.Load()
	var errs []error
	for _, handler := range slices.Sorted(maps.Keys(now.compared)) {
		if seen := now.compared[handler]; seen != (inventory.Layer{}) {
			located := now.Layers.Of(handler)
			errs = append(errs, fmt.Errorf("handler %q: %s, instead of %s", handler, cmp.Or(seen.Dir, seen.Reason), cmp.Or(located.Dir, located.Reason, located.Unknown)))
		}
	}
	return errors.Join(errs...)
}

// askAtRegistration asks for the layers when the runtime registers the plugin. It waits for the answer until ctx ends,
// because the first container comes with it. A runtime that starts may answer only after the registration, so
// askAgain repeats a question without an answer.
func (l *layers) askAtRegistration(ctx context.Context, runtime, version string) {
	if l.readLayers == nil {
		return
	}
	a := layerQuestion{runtime, version, l.nextRegistration()}
	if l.ask(ctx, a, layersFirst) == nil {
		return
	}
	select {
	case <-l.questions: // the question to an earlier runtime
	default:
	}
	l.questions <- a
}

// nextRegistration keeps the known layers for the registration that begins.
func (l *layers) nextRegistration() int {
	l.state.Lock()
	defer l.state.Unlock()
	next := *l.current.Load()
	next.registration++
	next.compared = nil
	l.current.Store(&next)
	return next.registration
}

// ask asks once, for at most d. The layers that come with an error are used until there is a better answer, and
// a late answer is used as well.
func (l *layers) ask(ctx context.Context, a layerQuestion, d time.Duration) error {
	// The bound is twice d: the configuration files are read after the runtime has not answered in time.
	return l.passes.For(ctx, "layers", 2*d, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, d)
		defer cancel()
		fresh, err := l.readLayers(ctx, a.runtime, a.version)
		l.move(fresh, a.registration)
		return err
	})
}

// move stores an answer, and has those containers of this registration resolved again that it moves.
func (l *layers) move(fresh inventory.Layers, registration int) {
	s := l.state.Lock()
	defer l.state.Unlock()
	if fresh.Equal(inventory.Layers{}) || l.current.Load().registration != registration {
		return
	}
	l.store(s, &layerLocations{fresh, registration, l.current.Load().compared})
}

// store makes locations the current ones, and has the containers resolved again that it moves.
func (l *layers) store(s *state, now *layerLocations) {
	l.current.Store(now)
	for _, pod := range s.pods {
		for _, c := range pod.containers {
			if now.moved(&c.snapshot) {
				s.markDirty(pod.group.in(s))
			}
		}
	}
}

// askAgain repeats the question that a runtime has not answered, until ctx ends.
func (l *layers) askAgain(ctx context.Context) {
	var a layerQuestion
	var again <-chan time.Time
	var pause time.Duration
	for {
		select {
		case <-ctx.Done():
			return
		case a = <-l.questions:
			pause = layersRetry
		case <-again:
			err := l.ask(ctx, a, layersDeadline)
			if l.problem.Store(&err); err == nil {
				again = nil
				continue
			}
			pause = min(2*pause, layersPause)
		}
		again = time.After(pause)
	}
}
