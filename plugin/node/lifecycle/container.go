package lifecycle

import (
	"errors"
	"fmt"
)

// ErrUnexpected is the error of an event that the runtime and the plugin never produce in
// the phase of the container or the drain. The phase stays the same.
var ErrUnexpected = errors.New("unexpected event")

// Next returns the phase of a container after an event, and the actions that the
// transition asks for. Unless the error is nil, the phase is the same and there are no
// actions. The error wraps ErrUnexpected.
func Next(p Phase, e Event) (Phase, Actions, error) {
	if p < 0 || p >= numPhases || e < 0 || e >= numEvents {
		return p, 0, fmt.Errorf("%w: %v in phase %v", ErrUnexpected, e, p)
	}
	c := rowOf(p)[e]
	if !c.expected {
		return p, 0, fmt.Errorf("%w: %v in phase %v", ErrUnexpected, e, p)
	}
	return c.to, c.do, nil
}

// Container is the phase of one container. Its zero value is Absent. Only its events
// change it. It is not safe for concurrent use.
type Container struct{ phase Phase }

// Phase returns the current phase.
func (c Container) Phase() Phase { return c.phase }

// Handle makes the transition of an event, and returns the actions that the caller takes. The error is that of
// Next. The plan of the pod changes if Phase().MayRun() does.
func (c *Container) Handle(e Event) (do Actions, err error) {
	c.phase, do, err = Next(c.phase, e)
	return do, err
}
