package node

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/sirupsen/logrus"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
	"github.com/nri-blkio/nri-blkio/plugin/enforce/plan"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
	"github.com/nri-blkio/nri-blkio/policy"
)

// resolver finds the disks of containers, and decides their limits. It changes only the snapshots that it is
// given, and no other part of the state.
type resolver struct {
	*environment
	// around returns the facts about a pod on which the decision for one of its containers depends.
	around func(podIdentity) surroundings
	// total returns the limits of the pod as a whole, for a container of it. It is checkTotal if it is nil.
	total func(pol *policy.Pod, c *snapshot) (policy.Settings, error)
	// held has the lines of a trial, which are logged if its edit counts. If it is nil, lines are logged at once.
	held *[]func()
}

// surroundings has the facts about a pod on which the decision for one of its containers depends.
type surroundings struct {
	seen     []policy.Container // the containers that were created so far
	former   policy.Desired     // see pod.former
	isShared bool               // another pod shares its cgroup
}

// warn logs a line about a container.
func (r *resolver) warn(c *snapshot, fields logrus.Fields, text string) {
	log := c.logger(r.log).WithFields(fields)
	if r.held != nil {
		*r.held = append(*r.held, func() { log.Warn(text) })
		return
	}
	log.Warn(text)
}

// finder returns an inventory.Finder with the storage of the node.
func (r *resolver) finder() *inventory.Finder {
	return &inventory.Finder{Storage: r.storage, KubeletRoot: r.kubelet, ProcessMounts: r.processMounts}
}

// inventoried returns the facts about a pod by which the disks of its containers are found.
func (p *podIdentity) inventoried(pol *policy.Pod) *inventory.Pod {
	return &inventory.Pod{UID: p.uid, Sandbox: p.id, Targets: pol.Targets()}
}

// resolve finds the disks of a container and decides its limits by a policy and a request, and notes both in c.
// An error is an internal failure, after which c must not be used. A mistake of the tenant, or a limit that this
// node cannot enforce, is in c.decision.err.
func (r *resolver) resolve(ctx context.Context, current *policy.Policy, by *request, now *layerLocations, c *snapshot) error {
	pol := by.under(current)
	c.disks.InvalidateFor(pol.Targets())
	if !c.disks.IsResolved() {
		if err := r.findDisks(ctx, pol, c, now); err != nil {
			return err
		}
	} else if now.moved(c) {
		if err := r.move(ctx, c, now); err != nil {
			return err
		}
	}
	if c.needsComparison() {
		c.resolution.notCompared = r.compareMounts(ctx, pol, c)
	}
	old := *c
	c.decision.policy, c.decision.request, c.disks.Facts.Undeclared = pol, by, c.use.seen.Undeclared
	if pol.Budget() != nil {
		r.finder().FindLowest(&c.disks)
	}
	c.decision.desired, c.decision.err = r.decide(pol, c)
	if err := r.keepGranted(pol, by, &old, c); err != nil {
		return err
	}
	checkTotal := r.total
	if checkTotal == nil {
		checkTotal = r.checkTotal
	}
	total, err := checkTotal(pol, c)
	c.decision.total, c.decision.err = total, plan.First(pol, c.decision.err, err)
	c.decision.err = plan.First(pol, c.tooManyMounts(pol), c.decision.err)
	return nil
}

// findDisks finds the disks of a container by its description in the runtime's event.
func (r *resolver) findDisks(ctx context.Context, pol *policy.Pod, c *snapshot, now *layerLocations) error {
	if err := r.storage.Refresh(ctx); err != nil {
		return fmt.Errorf("read mounts: %w", err)
	}
	if c.cgroup == "" {
		return c.decision.err
	}
	if moved := now.moved(c); moved || c.layer.at == nil {
		layer := now.Of(c.pod.request.handler)
		c.layer = ownLayer{&layer, now.registration}
		c.disks.Facts.Rootfs = blkio.Backing{} // the layer was never there
	}
	before := c.disks.Err()
	if err := r.finder().Find(ctx, c.pod.inventoried(pol), *c.layer.at, &c.disks); err != nil {
		return err
	}
	c.disks.Facts.Stage, c.disks.Facts.MemoryLimited = c.stage(), r.isMemoryLimited(c)
	// The disks that were found are kept, and the reconciler resolves the container again. The warning is
	// logged once.
	if err := c.disks.Err(); err != nil && before == nil {
		r.warn(c, logrus.Fields{logrus.ErrorKey: err}, "Some disks of a container are not resolved yet")
	}
	return nil
}

// isMemoryLimited reports whether a memory limit bounds the dirty pages of the container. A later resize does
// not count, because the warning is about the request.
func (r *resolver) isMemoryLimited(c *snapshot) bool {
	return policy.MemoryBoundsDirty(c.memoryLimit, r.nodeMemory) ||
		policy.MemoryBoundsDirty(r.cgroups.Cgroup(c.pod.group.cgroup).MemoryMax(), r.nodeMemory)
}

// move finds the disk of a writable layer whose location has changed. All other facts about the container stay
// valid.
func (r *resolver) move(ctx context.Context, c *snapshot, now *layerLocations) error {
	layer := now.Of(c.pod.request.handler)
	rootfs := layer.Backing(ctx, r.storage)
	if rootfs.Err != nil {
		return fmt.Errorf("find the writable layer: %w", rootfs.Err)
	}
	c.layer, c.disks.Facts.Rootfs = ownLayer{&layer, now.registration}, rootfs
	return nil
}

// pidUnknown is a container's process ID until the event of its start names the process.
// The reconciler may see the container's cgroup before that event.
const pidUnknown = -1

// needsComparison reports whether the mounts of a running container have not been compared yet.
func (c *snapshot) needsComparison() bool {
	return c.disks.IsUncompared() && c.mayRun() && c.pid != pidUnknown
}

// compareMounts adds to the facts of a container the disks under the mounts of its first process that the
// plugin did not know.
func (r *resolver) compareMounts(ctx context.Context, pol *policy.Pod, c *snapshot) error {
	if c.pid == 0 {
		r.warn(c, nil, "The runtime reports no process for a container: its mounts are not compared with the node's")
		c.disks.SetCompared()
		return nil
	}
	added, err := r.finder().Compare(ctx, c.pod.inventoried(pol), &c.disks, c.pid, c.cgroup)
	for _, m := range added {
		r.warn(c, logrus.Fields{"mountpoint": m.Mountpoint, "disks": names(m.Backing.Disks)},
			"A mount of a container is on another disk than its path on the node led to: its limits hold for that disk as well")
	}
	if errors.Is(err, storage.ErrNoProcess) {
		if populated, unknown := r.cgroups.Cgroup(c.cgroup).Populated(); unknown == nil && !populated {
			c.disks.SetCompared()
			return nil // it has ended
		}
	}
	if err != nil {
		return fmt.Errorf("compare mounts: %w", err)
	}
	return nil
}

func names(disks []blkio.Disk) string {
	var out []string
	for _, d := range disks {
		out = append(out, d.Name)
	}
	return strings.Join(out, " ")
}
