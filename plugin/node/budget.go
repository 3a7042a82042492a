package node

import (
	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// A budget is the most that the pods of a namespace may be granted together on a disk. What they are granted is
// derived from the state each time, and stored nowhere: a container that ends, is removed or is created again
// cannot leave a wrong sum behind.

// exceeded returns the error that refuses a container, if the budget has no room for it and the policy rejects that.
func (n *Node) exceeded(c *snapshot, excess *annotation.Error) error {
	if excess == nil {
		return nil
	}
	log := c.logger(n.log).WithError(excess)
	if !c.decision.policy.Refuses(excess) {
		log.Warn("Container exceeds the budget of its namespace")
		return nil
	}
	n.metrics.overBudget.Add(1)
	log.Info("Rejected a container")
	return excess
}

// readFormer reads the records of those containers of the namespace that are not decided yet. It does nothing
// without a budget.
func (n *Node) readFormer(c *snapshot) {
	if c.decision.policy.Budget() == nil {
		return
	}
	for _, of := range n.pods.undecided(c.pod.namespace) {
		other := snapshot{identity: of}
		if err := n.recallContainer(&other); err == nil {
			n.pods.noteFormer(of, other.former)
		}
	}
}

// undecided returns the containers of a namespace that count and whose records were not read yet.
func (t *podTable) undecided(namespace string) (out []identity) {
	s := t.state.Lock()
	defer t.state.Unlock()
	for _, pod := range s.namespaces[namespace] {
		for _, c := range pod.containers {
			if c.decision.policy == nil && !c.former.read && c.cgroup != "" && pod.group.in(s).counts(pod, c) {
				out = append(out, c.identity)
			}
		}
	}
	return out
}

func (t *podTable) noteFormer(c identity, f former) {
	s := t.state.Lock()
	defer t.state.Unlock()
	if of := c.in(s); !of.former.read {
		of.former = f
	}
}

// excess returns an error if the budget has no room for some containers of one pod. They are taken not to be counted yet, and
// are added one after another. Each takes the place of those in its pod that have its name. grows is that of policy.Claim.
func (s *state) excess(of []*snapshot, grows func(blkio.Address) bool) *annotation.Error {
	if len(of) == 0 || of[0].decision.policy.Budget() == nil {
		return nil
	}
	t := s.tallyFor(of)
	for _, c := range of {
		claim := c.claim(t)
		claim.Grows = grows
		if err := claim.Check(); err != nil {
			return err
		}
		t.grow(c)
	}
	return nil
}

// claim returns the claim of a container to a budget of which other containers have the sums of t.
func (c *snapshot) claim(t *tally) policy.Claim {
	return policy.Claim{Pod: c.decision.policy, Desired: &c.decision.desired, Total: c.decision.total, Granted: t.granted}
}

// tallyFor returns what is granted of a budget where some containers of one pod use it, without these.
func (s *state) tallyFor(of []*snapshot) *tally {
	t, names := newTally(of[0].decision.policy.Budget()), map[string]bool{}
	for _, c := range of {
		t.addCharges(c)
		names[c.name] = true
	}
	namespace, own := of[0].pod.namespace, of[0].pod.group.in(s)
	s.addNamespace(t, namespace, own)
	t.begin()
	own.addTo(t, namespace, names)
	t.end(true)
	return t
}
