package node

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nri-blkio/nri-blkio/plugin/bounded"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
	"github.com/nri-blkio/nri-blkio/plugin/reminder"
)

// placed are the layers of containers that are created now.
type placed struct {
	inventory.Layers
	// registration counts the runtime's. It registers us after each start of its own,
	// when it may have another configuration. The layers of containers that were
	// looked into during an earlier one stay where they are.
	registration int
}

// moved reports whether another place is known now for the layer of a container than
// when it was resolved.
func (l *placed) moved(c *snapshot) bool {
	at := c.layer.at
	return at != nil && (c.layer.registration == l.registration || at.Unknown != "") && *at != l.Of(c.pod.asks.facts.Handler)
}

// layers is where writable layers are stored. It asks the runtime for that.
type layers struct {
	*environment
	pods      *podTable
	passes    *bounded.Calls
	current   atomic.Pointer[placed] // stored with the lock of the state held
	questions chan asked             // at most one, which the runtime has not answered
}

// asked is a runtime that did not say where its layers are.
type asked struct {
	runtime, version string
	registration     int
}

const (
	// layersFirst bounds the question that the registration waits for; the session
	// gives up on it after a quarter of the runtime's own deadline.
	layersFirst    = 400 * time.Millisecond
	layersDeadline = 3 * time.Second // of the later ones
	layersRetry    = time.Second     // the first pause between two, which doubles
	layersPause    = 30 * time.Second
)

// Registered asks a runtime that registers us where it stores writable layers, and waits for
// the answer for some time. A late answer is still taken over: it is of use for the
// containers that come then.
func (n *Node) Registered(ctx context.Context, runtime, version string, patience time.Duration) {
	err := n.inFlight.calls.For(ctx, "", patience, func(ctx context.Context) error {
		n.layers.reread(ctx, runtime, version)
		return nil
	})
	if err != nil {
		n.log.WithError(fmt.Errorf("locate writable layers: %w", err)).Error("Locating writable layers failed: rootfs uses the previous location")
	}
}

// reread is for the runtime's registration of us. Until ctx ends it waits for
// the answer: then the first container comes with it. A runtime that starts may
// answer only after it has registered us, so whatever is missing is asked for again.
func (l *layers) reread(ctx context.Context, runtime, version string) {
	if l.readLayers == nil {
		return
	}
	a := asked{runtime, version, l.pods.nextRegistration(l)}
	if l.ask(ctx, a, layersFirst) == nil {
		return
	}
	select {
	case <-l.questions: // an earlier runtime's
	default:
	}
	l.questions <- a
}

// nextRegistration keeps the layers that are known, for the registration that begins.
func (t *podTable) nextRegistration(l *layers) int {
	t.state.Lock()
	defer t.state.Unlock()
	next := *l.current.Load()
	next.registration++
	l.current.Store(&next)
	return next.registration
}

// ask asks once, for at most d. What is told beside an error holds until there
// is a better answer, and a late answer is used as well.
func (l *layers) ask(ctx context.Context, a asked, d time.Duration) error {
	// Twice: what files tell comes as the runtime's answer has not come in time.
	return l.passes.For(ctx, "layers", 2*d, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, d)
		defer cancel()
		fresh, err := l.readLayers(ctx, a.runtime, a.version)
		l.pods.moveLayers(l, fresh, a.registration)
		return err
	})
}

// moveLayers takes over an answer, and has the containers of this registration that it
// moves resolved again.
func (t *podTable) moveLayers(l *layers, fresh inventory.Layers, registration int) {
	s := t.state.Lock()
	defer t.state.Unlock()
	if fresh.Equal(inventory.Layers{}) || l.current.Load().registration != registration {
		return
	}
	now := &placed{fresh, registration}
	l.current.Store(now)
	for _, pod := range s.pods {
		for _, c := range pod.containers {
			if now.moved(&c.snapshot) {
				s.markDirty(pod.group.in(s))
			}
		}
	}
}

// askAgain asks for what a runtime did not answer, until ctx ends.
func (l *layers) askAgain(ctx context.Context) {
	var a asked
	var again <-chan time.Time
	var pause time.Duration
	var problem reminder.Reminder
	for {
		select {
		case <-ctx.Done():
			return
		case a = <-l.questions:
			pause = layersRetry
		case <-again:
			err := l.ask(ctx, a, layersDeadline)
			if err == nil {
				again, problem = nil, reminder.Reminder{}
				continue
			}
			// A runtime that starts takes some seconds.
			if pause = min(2*pause, layersPause); pause == layersPause && problem.Due(time.Now(), err) {
				l.log.WithError(err).Warn("Asking the runtime for the location of writable layers failed: using its configuration files")
			}
		}
		again = time.After(pause)
	}
}
