package node

import (
	"slices"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
	"github.com/nri-blkio/nri-blkio/plugin/podfacts"
	"github.com/nri-blkio/nri-blkio/policy"
)

// The pod in one slot is the owner of that in another one, if it was there first. The latter has a raw block claim on a disk of its own,
// which it lends. What was lent depends on earlier events, so the model takes it from the plugin, and verifies it by itself.
const (
	borrowingSlot = 6
	lendingSlot   = 7
	rawDevice     = "/dev/raw"
)

// specOf returns the facts about a container in its OCI spec.
func (p *modelPod) specOf(c *modelContainer) func() *inventory.Spec {
	mounts := p.spec.mounts(c.name, c.data)
	return func() *inventory.Spec {
		out := specOf(c.name, mounts...)()
		if p.slot == lendingSlot {
			out.Devices = []inventory.Device{{Path: rawDevice, Type: "b", Dev: lentDisk.Dev}}
		}
		return out
	}
}

// lendsToNone reports whether the lender has an owner that was removed, or none although there is a pod that it could lend to.
func (r *modelRuntime) lendsToNone(p *modelPod) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	owner := r.pods[borrowingSlot]
	return p.slot == lendingSlot && owner != nil && p.owner.UID != owner.uid
}

// lentTo returns what is lent to a pod, of which the plugin can know several sandboxes. The caller holds mu.
func (r *modelRuntime) lentTo(p *modelPod) (out policy.Lent) {
	if p.slot != borrowingSlot {
		return out
	}
	s := r.plugin.state.Lock()
	defer r.plugin.state.Unlock()
	for _, known := range s.byUID[p.uid] {
		out = policy.Together(out, known.borrowed())
	}
	return out
}

// checkLent finds limits that a pod lends and its owner did not borrow, or the other way round, and a lent disk that was forgotten.
func (r *modelRuntime) checkLent(known modelKnown, report func(string, ...any)) {
	owner, lender := r.pods[borrowingSlot], r.pods[lendingSlot]
	if owner == nil || !slices.ContainsFunc(owner.sandboxes, func(sb *modelSandbox) bool { return slices.Contains(known.sandboxes, sb.id) }) {
		return
	}
	now := r.lentTo(owner)
	if owner.lent && len(now.Disks) == 0 {
		report("%s: what was lent to it is forgotten", owner.name)
	}
	owner.lent = len(now.Disks) > 0
	if lender == nil || lender.owner != (podfacts.Owner{Name: owner.name, UID: owner.uid, IsPod: true}) || !lender.hasDocument || known.late[lender.uid] || r.raised() {
		return
	}
	var want policy.Lent
	for _, sb := range lender.sandboxes {
		for _, c := range sb.containers {
			switch {
			case c.state != modelRunning || !known.containers[c.id]:
				continue
			case lender.isOutdated(sb) || r.keepsClaims(lender, c):
				return // some limits may be those that were granted before
			}
			facts, d := r.facts(lender, c), r.decided(lender, c)
			want = policy.Together(want, r.ruledIn(lender, sb).Lends(&facts, &d))
		}
	}
	isEqual := slices.EqualFunc(now.Limits, want.Limits, func(a, b policy.Setting) bool { return a.Value == b.Value })
	if len(want.Disks) > 0 && (!isEqual || !slices.Equal(now.Disks, []blkio.Disk{lentDisk})) {
		report("%s: %v is lent to it, want %v of %s", owner.name, now, want, lender.name)
	}
}
