package plugin

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nri-blkio/nri-blkio/plugin/health"
	"github.com/nri-blkio/nri-blkio/plugin/node"
	"github.com/nri-blkio/nri-blkio/plugin/reminder"
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

// Of two runtimes with NRI on a node, the one that starts last owns the socket (docs/reference/quirks.md). A plugin that is connected to
// the other one than the kubelet's gets a valid list without the kubelet's pods, and none of their events.

const (
	// compareEvery is the time between two comparisons of the runtime's list with the kubelet's pods.
	compareEvery = 5 * time.Second
	// comparePatience is how long pods have to be missing in the list.
	comparePatience = 10 * time.Second
)

// errReplaced ends a session with a runtime that is not the kubelet's, once another one has taken the socket.
var errReplaced = errors.New("another runtime has taken NRI's socket")

// otherRuntimeError ends a session with a runtime that is not the kubelet's. The next session begins with a list of its own.
type otherRuntimeError struct {
	unlisted int
	uid      string // of one of them
}

func (e *otherRuntimeError) Error() string {
	return fmt.Sprintf("the runtime at NRI's socket is not the kubelet's: it has not listed %d of the running pods, such as %.60q "+
		"(of two runtimes with NRI, the last one to start owns the socket: docs/reference/quirks.md)", e.unlisted, e.uid)
}

// otherRuntime finds out whether the runtime is another one than the kubelet's. It outlasts sessions. Only the goroutine that serves
// them uses it.
type otherRuntime struct {
	found     *otherRuntimeError // nil unless it is another one
	since     time.Time          // when the first comparison found pods that are missing; zero without such pods
	tolerated []string           // pods that were missing before another runtime took the socket
	problem   reminder.Reminder  // that the comparison fails
}

// errNotCompared stands for each error of a comparison, so that one that lasts is logged seldom, whatever pods it names.
var errNotCompared = errors.New("the runtime's list is not compared with the kubelet's pods")

// compare takes the result of a comparison, and reports whether it is another one. isReplaced is true if another runtime has taken the socket
// since the session began.
//
// A runtime that has listed some of the pods is the kubelet's. A few others may be missing, because containers that are created during the
// list reach no plugin. But with a new owner of the socket the kubelet may use that one, for the pods that appear from then on.
func (o *otherRuntime) compare(l node.Listing, isReplaced bool, now time.Time) bool {
	missing := l.Unlisted
	switch {
	case l.Listed == 0:
	case isReplaced:
		missing = slices.DeleteFunc(slices.Clone(missing), func(uid string) bool { return slices.Contains(o.tolerated, uid) })
	default:
		o.tolerated, missing = missing, nil
	}
	if len(missing) == 0 {
		o.found, o.since = nil, time.Time{}
		return false
	}
	if o.since.IsZero() {
		o.since = now
	}
	if now.Sub(o.since) < comparePatience {
		return o.found != nil
	}
	o.found = &otherRuntimeError{len(missing), missing[0]}
	return true
}

// checkRuntime compares the runtime's list with the kubelet's pods. The error ends the session: once when the other runtime is found, because
// a new list may have the pods, and whenever another runtime has taken the socket afterwards. A pre-installed plugin stays,
// because nothing would start it again.
func (s *session) checkRuntime() error {
	o := &s.p.connection.other
	listing, err := s.p.node.CompareListed()
	if err != nil {
		if s.p.connection.uncompared(err); o.problem.Due(time.Now(), errNotCompared) {
			s.log.WithError(err).Warn("Comparing the runtime's list with the kubelet's pods failed, retrying")
		}
		return nil
	}
	s.p.connection.uncompared(nil)
	o.problem.Due(time.Now(), nil)
	before := o.found
	isReplaced := s.socket.isReplaced()
	isOther := o.compare(listing, isReplaced, time.Now())
	switch {
	case isOther && !s.preinstalled && before == nil:
		return o.found
	case isOther && !s.preinstalled && isReplaced:
		return errReplaced
	case isOther:
		if before == nil {
			s.log.WithError(o.found).Warn("Not connected to the runtime; limits stay in force")
		}
		s.p.connection.notKubelets(o.found, s.runtime)
	case before != nil:
		s.p.connection.connected(s.runtime)
		s.log.WithField("runtime", s.runtime).Info("Connected to the kubelet's runtime")
	}
	return nil
}
