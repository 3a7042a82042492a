package node

import "context"

// pass is a pass over all pods, and what follows from it.
func (n *Node) pass(ctx context.Context) {
	n.beginPass(ctx)
	n.settle(ctx)
}

// settle reconciles groups until none is due, like a worker of the reconciler.
func (n *Node) settle(ctx context.Context) {
	for next, ok := n.nextTurn(ctx); ok; next, ok = n.nextTurn(ctx) {
		n.reconcileTurn(ctx, next)
	}
	n.endPass()
}
