package node

import (
	"context"
	"errors"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/plugin/enforce/plan"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// A budget is the most that the pods of a namespace may be granted together on a physical disk. What a pod is granted is derived from
// the state (tally.go) and stored nowhere: a container that ends, is removed or is created again cannot leave a wrong sum
// behind. What all pods of a namespace are granted is kept up to date (sums.go).

// former is the grant to a container by the records of an earlier process, and what is below the devices there. It counts until a
// policy with the budget has decided the container.
type former struct {
	own, total policy.Settings // counts until any policy has decided the container
	lowest     map[blkio.Dev][]blkio.Disk
	by         *policy.Pod // the policy whose decision was read; nil if the records were
	read       bool        // false before the first read
}

// unlistedPod is a pod that is known by the records on its cgroups only, because the runtime has not listed what runs.
type unlistedPod struct {
	own    []policy.Settings // of its containers
	total  policy.Settings
	lowest map[blkio.Dev][]blkio.Disk
}

// admit makes a new container part of its pod, unless the budget of its namespace has no room for it.
func (n *Node) admit(ctx context.Context, c *snapshot, ctr *Container) error {
	excess, err := n.pods.register(ctx, c, n.readFormer(c))
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

// readFormer reads what is granted to those containers of the namespace that are not decided yet, and returns the pods
// that no event has reported. It does nothing without a budget.
func (n *Node) readFormer(c *snapshot) []unlistedPod {
	b := c.decision.policy.Budget()
	if b == nil {
		return nil
	}
	for _, of := range n.pods.unread(c.pod.namespace, b) {
		if f, err := n.formerOf(&of); err == nil {
			n.pods.noteFormer(of.identity, f)
		}
	}
	if n.listing.done.Load() {
		return nil
	}
	return n.unlistedPods(c.pod.namespace)
}

// formerOf reads what a container and its pod are granted: from their records, unless the container is decided. A missing record
// is empty.
func (n *Node) formerOf(c *snapshot) (former, error) {
	f := former{read: true, by: c.decision.policy}
	if f.by != nil {
		f.lowest = n.lowest(c.decision.desired.Settings, c.decision.total)
		return f, nil
	}
	own, err := record.Read(n.cgroups.Cgroup(c.cgroup), record.KindContainer)
	if err != nil && !errors.Is(err, blkio.ErrGone) {
		return former{}, err
	}
	if f.own = rates(own); c.pod.group.cgroup != "" {
		total, err := record.Read(n.cgroups.Cgroup(c.pod.group.cgroup), record.KindPod)
		if err != nil && !errors.Is(err, blkio.ErrGone) {
			return former{}, err
		}
		f.total = rates(total)
	}
	f.lowest = n.lowest(f.own, f.total, c.spec.Values)
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

// rates returns the limits of a record, without the backstop. Observed ones count, as those of an observed
// container that was decided do.
func rates(r *record.Record) policy.Settings {
	if r == nil {
		return nil
	}
	return r.Settings.Where(func(s policy.Setting) bool { return s.Key.IsRate() && s.Source.Kind != policy.FromBackstop })
}

// unlistedPods returns what the pods of a namespace that no event has reported are granted by their records. A
// container without a record is not found.
func (n *Node) unlistedPods(namespace string) []unlistedPod {
	byUID := map[string]int{}
	var out []unlistedPod
	err := n.cgroups.Walk(record.Xattr, func(c cgroupfs.Cgroup, a cgroupfs.Attribute) error {
		r, err := record.ParseAttribute(a)
		if err != nil || r == nil || r.Namespace != namespace || n.pods.isReported(c.Path()) {
			return nil // status reports a record that cannot be read
		}
		if populated, unread := c.Populated(); unread == nil && !populated {
			return nil
		}
		i, found := byUID[r.UID]
		if !found {
			i = len(out)
			byUID[r.UID], out = i, append(out, unlistedPod{})
		}
		if r.Kind == record.KindPod {
			out[i].total = rates(r)
		} else {
			out[i].own = append(out[i].own, rates(r))
		}
		return nil
	})
	if err != nil {
		n.log.WithError(err).Warn("Reading the records of a namespace failed: its budget counts only what is known")
	}
	for i := range out {
		out[i].lowest = n.lowest(append(out[i].own, out[i].total)...)
	}
	return out
}

// unread returns the containers of a namespace that count for its budget, and for which formerOf was not called yet.
func (t *podTable) unread(namespace string, b *policy.NamespaceBudget) (out []snapshot) {
	s := t.state.Lock()
	defer t.state.Unlock()
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

func (t *podTable) noteFormer(c identity, f former) {
	s := t.state.Lock()
	defer t.state.Unlock()
	c.in(s).former = f
	s.recount(c.pod.group.in(s))
}

func (t *podTable) excess(c *snapshot, unlisted []unlistedPod) *annotation.Error {
	s := t.state.Lock()
	defer t.state.Unlock()
	return s.excess([]*snapshot{c}, unlisted, nil)
}

// excess returns an error if the budget has no room for some containers of one pod. They are taken not to be counted yet, and
// are added one after another. Each takes the place of those in its pod that have its name. grows is that of policy.Claim.
func (s *state) excess(of []*snapshot, unlisted []unlistedPod, grows func(blkio.Address) bool) *annotation.Error {
	if len(of) == 0 || of[0].decision.policy.Budget() == nil {
		return nil
	}
	t := s.tallyFor(of, unlisted)
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
