package node

import (
	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// A budget is the most that the pods of a namespace may be granted together on a physical disk. What a pod is granted is derived from
// the state (tally.go) and stored nowhere: a container that ends, is removed or is created again cannot leave a wrong sum
// behind. What all pods of a namespace are granted is kept up to date (sums.go).

// exceeded returns the error that refuses a container, if the budget has no room for it and the policy rejects that.
func (n *Node) exceeded(c *snapshot, excess *annotation.Error) error {
	if excess == nil {
		return nil
	}
	if !c.decision.policy.Refuses(excess) {
		c.logger(n.log).WithError(excess).Warn("Container exceeds the budget of its namespace")
		return nil
	}
	n.metrics.overBudget.Add(1)
	return n.rejected(c, excess)
}

// readFormer reads what is granted to those containers of the namespace that are not decided yet. It does nothing without a budget.
func (n *Node) readFormer(c *snapshot) {
	b := c.decision.policy.Budget()
	if b == nil {
		return
	}
	for _, of := range n.unread(c.pod.namespace, b) {
		if f, err := n.formerOf(&of); err == nil {
			n.noteFormer(of.identity, f)
		}
	}
}

// formerOf returns what a container and its pod are granted: by their records, unless the container is decided, and the disks below.
func (n *Node) formerOf(c *snapshot) (former, error) {
	if err := n.recallContainer(c); err != nil {
		return former{}, err
	}
	f := c.former
	if f.by = c.decision.policy; f.by != nil {
		f.lowest = n.lowest(c.decision.desired.Settings, c.decision.total)
	}
	return f, nil
}

// lowest returns the physical disks below those of settings, see policy.Container.Lowest.
func (n *Node) lowest(of ...policy.Settings) map[blkio.Dev][]blkio.Disk {
	var devs []blkio.Dev
	for _, list := range of {
		for _, s := range list {
			if s.Key.IsRate() {
				devs = append(devs, s.Dev)
			}
		}
	}
	return inventory.Lowest(n.storage, devs)
}

// unread returns the containers of a namespace that count for its budget, and for which formerOf was not called yet.
func (n *Node) unread(namespace string, b *policy.NamespaceBudget) (out []snapshot) {
	s := n.state.Lock()
	defer n.state.Unlock()
	sums := s.sumsOf(namespace, b)
	sums.update(nil)
	for g := range sums.unread {
		for _, pod := range g.pods {
			for _, c := range pod.containers {
				if pod.namespace == namespace && c.isUnread(b) && g.counts(pod, c) {
					out = append(out, c.snapshot)
				}
			}
		}
	}
	return out
}

func (n *Node) noteFormer(c identity, f former) {
	s := n.state.Lock()
	defer n.state.Unlock()
	c.in(s).former = f
	s.recount(c.pod.group.in(s))
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
		t.own.AddContainer(&c.decision.desired, c.decision.policy.Budget())
	}
	return nil
}

// claim returns the claim of a container to a budget of which other containers have the sums of t.
func (c *snapshot) claim(t *tally) policy.Claim {
	return policy.Claim{Pod: c.decision.policy, Desired: &c.decision.desired, Total: c.decision.total, Own: &t.own, Others: t.others}
}
