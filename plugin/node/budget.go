package node

import (
	"context"
	"errors"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/enforce/plan"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// A budget is the most that the pods of a namespace may be granted together on a disk. What they are granted is
// derived from the state each time, and stored nowhere: a container that ends, is removed or is created again
// cannot leave a wrong sum behind.

// former is the grant to a container by the records of an earlier process. It counts until this process has
// decided the container.
type former struct {
	own, total policy.Settings
	read       bool // false before the records were read
}

// admit makes a new container part of its pod, unless the budget of its namespace has no room for it.
func (n *Node) admit(ctx context.Context, c *snapshot, ctr *Container) error {
	n.readFormer(c)
	excess, err := n.pods.register(ctx, c)
	switch {
	case err != nil:
		return err
	case excess != nil && n.fallBack(ctx, c, ctr, excess):
		return errEdited
	}
	return n.exceeded(c, excess)
}

// exceeded returns the error that refuses a container, if the budget has no room for it and the policy rejects that.
func (n *Node) exceeded(c *snapshot, excess *annotation.Error) error {
	if excess == nil {
		return nil
	}
	log := c.logger(n.log).WithError(excess)
	if !plan.Refuses(c.decision.policy, excess) {
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
		if f, err := n.formerOf(of); err == nil {
			n.pods.noteFormer(of, f)
		}
	}
}

// formerOf reads the records of a container and its pod. A missing record is empty.
func (n *Node) formerOf(c identity) (former, error) {
	own, err := record.Read(n.cgroups.Cgroup(c.cgroup), record.KindContainer)
	if err != nil && !errors.Is(err, blkio.ErrGone) {
		return former{}, err
	}
	f := former{read: true, own: rates(own)}
	if c.pod.group.cgroup == "" {
		return f, nil
	}
	total, err := record.Read(n.cgroups.Cgroup(c.pod.group.cgroup), record.KindPod)
	if err != nil && !errors.Is(err, blkio.ErrGone) {
		return former{}, err
	}
	f.total = rates(total)
	return f, nil
}

// rates returns the limits of a record, without the backstop. Observed ones count, as those of an observed
// container that was decided do.
func rates(r *record.Record) policy.Settings {
	if r == nil {
		return nil
	}
	return r.Settings.Where(func(s policy.Setting) bool { return s.Key.IsRate() && s.Source.Kind != policy.FromBackstop })
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
	c.in(s).former = f
}

func (t *podTable) excess(c *snapshot) *annotation.Error {
	s := t.state.Lock()
	defer t.state.Unlock()
	return s.excess([]*snapshot{c}, nil)
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
