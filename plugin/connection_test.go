package plugin

import (
	"errors"
	"testing"

	"github.com/nri-blkio/nri-blkio/plugin/health"
)

// TestConnection verifies that a probe and status see each state, the time since which it has lasted, and the
// reason. Failed tries for the same state do not change that time.
func TestConnection(t *testing.T) {
	p := newPlugin(t, nil)
	p.connection = connection{}
	if r := p.Health(); r.State != health.Standby {
		t.Errorf("before the lock: %+v", r)
	}
	p.connection.active()
	if r := p.Health(); r.State != health.Disconnected || r.Reason == "" || r.Since.IsZero() {
		t.Errorf("before the first connection: %+v", r)
	}
	p.connection.connected("containerd 2.4.2")
	first := p.Health()
	if first.State != health.Connected || first.Reason != "" || first.Runtime != "containerd 2.4.2" || first.Mode != "enforce" {
		t.Errorf("connected: %+v", first)
	}
	p.connection.lost(errDisconnected)
	lost := p.Health()
	p.connection.lost(errors.New("no such file"))
	again := p.Health()
	if lost.State != health.Disconnected || lost.Runtime != "containerd 2.4.2" || !again.Since.Equal(lost.Since) || again.Reason != "no such file" {
		t.Errorf("lost: %+v, then %+v", lost, again)
	}
}

// TestValidatorHealth verifies that status and the probe see the validator as they see the plugin.
func TestValidatorHealth(t *testing.T) {
	v := NewValidator(nil, nil)
	v.connection.active()
	if r := v.Health(); r.Part != health.Validator || r.State != health.Disconnected {
		t.Errorf("before the first connection: %+v", r)
	}
	v.connection.connected("")
	if r := v.Health(); r.State != health.Connected {
		t.Errorf("connected: %+v", r)
	}
}
