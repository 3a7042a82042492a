package cluster

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nri-blkio/nri-blkio/plugin/health"
	"github.com/nri-blkio/nri-blkio/plugin/reminder"
)

// TestUnread verifies that objects that cannot be read are in the log, once and again while that lasts, whichever they are: without
// the role for the limits of storage drivers, no document of a pod with a claim is complete.
func TestUnread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newTestAPI()
		bound := newClaim("wbps=1Mi")
		bound.Spec.VolumeName = volumeRef().Name
		api.set(claimRef("a"), bound)
		api.fail(errors.New("forbidden"), Volumes)
		p := startWith(t, Config{Dir: t.TempDir(), API: api, Node: testNode})
		defer p.stop()
		p.api = api
		logged := func(want int) {
			t.Helper()
			got := 0
			for _, e := range p.log.AllEntries() {
				if strings.HasPrefix(e.Message, "Some objects cannot be read") && e.Data["objects"] == 1 && fmt.Sprint(e.Data["error"]) == "forbidden" {
					got++
				}
			}
			if got != want {
				t.Errorf("%d lines of the log, want %d", got, want)
			}
		}
		time.Sleep(time.Minute)
		p.has("without the volume", testUID, "no limits")
		logged(1)
		time.Sleep(reminder.Interval)
		logged(2)
		if r := p.Health(); r.State != health.Connected || r.Reason != "1 objects cannot be read: forbidden" {
			t.Errorf("reports %+v", r)
		}
		api.fail(nil, Volumes)
		time.Sleep(2 * reminder.Interval)
		p.has("after that", testUID, "wbps=1Mi")
		logged(2)
	})
}
