package plugin

import (
	"sync"
	"time"

	"github.com/nri-blkio/nri-blkio/plugin/health"
)

// connection is the state of the connection to the runtime. Its zero value is an
// instance on standby, which every instance is until it holds the node's lock.
type connection struct {
	mu      sync.Mutex // guards all below
	state   string     // as in health.Report; "" is health.Standby
	since   time.Time
	reason  string
	runtime string
	// other is used by the goroutine that serves the sessions only.
	other otherRuntime
}

func (c *connection) active() { c.change(health.Disconnected, "it has not connected yet", "") }

func (c *connection) connected(runtime string) { c.change(health.Connected, "", runtime) }

func (c *connection) lost(reason error) {
	text := ""
	if reason != nil {
		text = reason.Error()
	}
	c.change(health.Disconnected, text, "")
}

// notKubelets notes that the runtime is connected, and is not that of the kubelet.
func (c *connection) notKubelets(found *otherRuntimeError, runtime string) {
	c.change(health.Disconnected, found.Error(), runtime)
}

// uncompared notes while connected that it is not known whether the runtime is that of the kubelet, or that it is again.
func (c *connection) uncompared(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.state != health.Connected:
	case err != nil:
		c.reason = errNotCompared.Error() + ": " + err.Error()
	default:
		c.reason = ""
	}
}

// change notes a state, and since when it has lasted. It keeps the name of the
// runtime when there is no new one.
func (c *connection) change(state, reason, runtime string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state != state || c.since.IsZero() {
		c.state, c.since = state, time.Now().UTC()
	}
	c.reason = reason
	if runtime != "" {
		c.runtime = runtime
	}
}

// is reports whether the connection is in a state.
func (c *connection) is(state string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state == state || c.state == "" && state == health.Standby
}

// fill writes the state into a report.
func (c *connection) fill(r *health.Report) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r.State, r.Since, r.Reason, r.Runtime = c.state, c.since, c.reason, c.runtime
	if r.State == "" {
		r.State = health.Standby
	}
}
