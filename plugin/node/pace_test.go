package node

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/podfacts"
)

// TestEditPace verifies that 100 edits of one pod do not fill the log, and that the newest edit counts after a pause.
func TestEditPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLiveNode(t)
		l.run(sandbox(annotationsOf(limitsKey+"containers", "rootfs wbps=2Mi")), "a", "b")
		lines := func(value string) int {
			before := len(l.logged.AllEntries())
			for i := range 100 {
				l.edit(limitsKey+"containers", fmt.Sprintf(value, 3+i%2))
				time.Sleep(200 * time.Millisecond)
			}
			return len(l.logged.AllEntries()) - before
		}
		if applied := lines("rootfs wbps=%dMi"); applied > 60 {
			t.Errorf("100 edits: %d lines", applied)
		}
		if rejected := lines("rootfs wpbs=%dMi"); rejected > 20 {
			t.Errorf("100 invalid edits: %d lines", rejected)
		}
		for _, mib := range []int64{5, 6, 7} {
			l.edit(limitsKey+"containers", fmt.Sprintf("rootfs wbps=%dMi", mib))
		}
		time.Sleep(changeInterval)
		l.pass(t.Context())
		l.want("the newest", all(7*mi, 7*mi))
		time.Sleep(changesAtOnce * changeInterval)
		for mib := range blkio.Amount(changesAtOnce) {
			l.edit(limitsKey+"containers", fmt.Sprintf("rootfs wbps=%dMi", 10+mib))
			l.want("after a pause", all((10+mib)*mi, (10+mib)*mi))
		}
	})
}

// TestDelayedEdit verifies that the newest of many edits counts once its time has come, without a pass.
func TestDelayedEdit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLiveNode(t)
		l.resync = time.Hour
		l.run(sandbox(annotationsOf(limitsKey+"containers", "rootfs wbps=2Mi")), "a", "b")
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			l.reconcile(ctx)
		}()
		const more = 5
		for i := range changesAtOnce + more {
			edited := annotationsOf(limitsKey+"containers", fmt.Sprintf("rootfs wbps=%dMi", 10+i))
			l.SetLive("u1", &podfacts.Facts{Namespace: "prod", Name: "db-0", Annotations: edited})
			time.Sleep(100 * time.Millisecond)
		}
		const last = 10 + changesAtOnce - 1
		l.want("the last one that counts at once", all(last*mi, last*mi))
		time.Sleep(changeInterval + time.Second)
		synctest.Wait()
		l.want("the newest one", all((last+more)*mi, (last+more)*mi))
		cancel()
		<-ended
	})
}
