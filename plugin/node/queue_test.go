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

// groups returns all groups.
func (n *Node) groups() (out []groupIdentity) {
	for _, g := range n.peek().groups {
		out = append(out, g.identity())
	}
	return out
}
