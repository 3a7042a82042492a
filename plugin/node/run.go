package node

import (
	"context"
	"sync"
)

// Run watches the ends of containers and reconciles the node until ctx ends. It returns once neither writes any
// more, because only then another instance may serve the node. It does not wait for a call that hangs in the
// kernel.
func (n *Node) Run(ctx context.Context) {
	var parts sync.WaitGroup
	parts.Go(func() { n.recovery.Loop(ctx, "watch the exits of containers", n.exits.ends.Watch) })
	parts.Go(func() { n.recovery.Loop(ctx, "reconcile", n.reconcile) })
	parts.Go(func() { n.recovery.Loop(ctx, "locate writable layers", n.layers.askAgain) })
	if n.events != nil {
		parts.Go(func() {
			n.recovery.Loop(ctx, "write events", func(ctx context.Context) { n.events.Run(ctx, n.present) })
		})
	}
	parts.Wait()
	n.inFlight.passes.Wait(passDeadline)
	n.inFlight.calls.Wait(passDeadline)
}
