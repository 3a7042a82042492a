package node

import (
	"context"
	"sync"
)

// Run watches the ends of containers and reconciles the node until ctx ends. It returns once
// all of that writes no more: only then may another instance serve the node. A call that
// hangs in the kernel cannot be waited for.
func (n *Node) Run(ctx context.Context) {
	var parts sync.WaitGroup
	parts.Go(func() { n.recovery.Loop(ctx, "watch the exits of containers", n.exits.ends.Watch) })
	parts.Go(func() { n.recovery.Loop(ctx, "reconcile", n.reconcile) })
	parts.Go(func() { n.recovery.Loop(ctx, "locate writable layers", n.layers.askAgain) })
	parts.Wait()
	n.inFlight.passes.Wait(passDeadline)
	n.inFlight.calls.Wait(passDeadline)
}
