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
	parts.Go(func() { n.exits.ends.Watch(ctx) })
	parts.Go(func() { n.reconcile(ctx) })
	parts.Go(func() { n.layers.askAgain(ctx) })
	parts.Wait()
	n.inFlight.passes.Wait(passDeadline)
	n.inFlight.calls.Wait(passDeadline)
}
