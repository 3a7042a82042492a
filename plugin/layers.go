package plugin

import (
	"context"
	"time"

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
func (l *placed) moved(c *container) bool {
	at := c.layer.at
	return at != nil && (c.layer.registration == l.registration || at.Unknown != "") && *at != l.Of(c.pod.handler)
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

// rereadLayers is for the runtime's registration of us. Until ctx ends it waits for
// the answer: then the first container comes with it. A runtime that starts may
// answer only after it has registered us, so whatever is missing is asked for again.
func (p *Plugin) rereadLayers(ctx context.Context, runtime, version string) {
	if p.readLayers == nil {
		return
	}
	a := asked{runtime, version, p.nextRegistration()}
	if p.askLayers(ctx, a, layersFirst) == nil {
		return
	}
	select {
	case <-p.layers.questions: // an earlier runtime's
	default:
	}
	p.layers.questions <- a
}

// nextRegistration keeps the layers that are known, for the registration that begins.
func (p *Plugin) nextRegistration() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	next := *p.layers.current.Load()
	next.registration++
	p.layers.current.Store(&next)
	return next.registration
}

// askLayers asks once, for at most d. What is told beside an error holds until there
// is a better answer, and a late answer is used as well.
func (p *Plugin) askLayers(ctx context.Context, a asked, d time.Duration) error {
	// Twice: what files tell comes as the runtime's answer has not come in time.
	return p.inFlight.passes.For(ctx, "layers", 2*d, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, d)
		defer cancel()
		fresh, err := p.readLayers(ctx, a.runtime, a.version)
		p.moveLayers(fresh, a.registration)
		return err
	})
}

// moveLayers takes over an answer, and has the containers of this registration that it
// moves resolved again.
func (p *Plugin) moveLayers(fresh inventory.Layers, registration int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if fresh.Equal(inventory.Layers{}) || p.layers.current.Load().registration != registration {
		return
	}
	now := &placed{fresh, registration}
	p.layers.current.Store(now)
	for _, pod := range p.pods {
		for _, c := range pod.containers {
			if now.moved(c) {
				p.markDirty(pod.group)
			}
		}
	}
}

// askLayersAgain asks for what a runtime did not answer, until ctx ends.
func (p *Plugin) askLayersAgain(ctx context.Context) {
	var a asked
	var again <-chan time.Time
	var pause time.Duration
	var problem reminder.Reminder
	for {
		select {
		case <-ctx.Done():
			return
		case a = <-p.layers.questions:
			pause = layersRetry
		case <-again:
			err := p.askLayers(ctx, a, layersDeadline)
			if err == nil {
				again, problem = nil, reminder.Reminder{}
				continue
			}
			// A runtime that starts takes some seconds.
			if pause = min(2*pause, layersPause); pause == layersPause && problem.Due(time.Now(), err) {
				p.log.WithError(err).Warn("Asking the runtime for the location of writable layers failed: using its configuration files")
			}
		}
		again = time.After(pause)
	}
}
