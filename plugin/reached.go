package plugin

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/sirupsen/logrus"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
)

// A container can get at disks that nobody tells us of: a device node is made in it
// from outside, as KubeVirt does for a running virtual machine, a filesystem is mounted
// in its mount namespace alone, a process is handed an open file. Whichever way it was,
// the kernel charges the container with what it does there, in io.stat, and so such a
// disk is found soon after its first use. Limits that were asked for each disk ("*")
// are for that one, too.
//
// A container is also charged for disks that it does not have: those under its own, and
// those that the kernel swaps to.

// enough is how many bytes a container has to be charged with on a disk that nobody told
// of. What is less may be nothing of its own: a page of the runtime's program, a
// filesystem's log and superblocks that its sync(2) writes, as it does on all disks of
// the node (docs/quirks.md). At the smallest limit that a policy allows by default it is
// what passes in 16 seconds.
const enough = 1 << 20

// charge is what a container was charged with on a disk that it is not taken to use.
type charge struct {
	bytes uint64
	// explained: with the last look, by another of its disks, or by swap.
	explained bool
}

// findReached looks for disks that containers use and that nobody told of. What is found
// makes their groups restless.
func (p *Plugin) findReached(ctx context.Context, groups []*group) {
	var of []*container
	p.mu.Lock()
	for _, g := range groups {
		for _, pod := range g.pods {
			for _, c := range pod.containers {
				if c.mayReach() {
					of = append(of, c)
				}
			}
		}
	}
	p.mu.Unlock()
	if len(of) == 0 {
		return
	}
	err := p.passes.bounded(ctx, " reached", lookDeadline, func(ctx context.Context) error {
		stacks := newStacks(p.storage)
		for _, c := range of {
			if p.reach(ctx, stacks, c); ctx.Err() != nil {
				return ctx.Err()
			}
		}
		return nil
	})
	if err != nil && ctx.Err() == nil {
		p.log.WithError(err).Warn("Not known of all containers which disks they use")
	}
}

// mayReach says that a "*" means what a container is seen to use. The caller holds
// Plugin.mu.
func (c *container) mayReach() bool {
	return c.running && c.cgroup != "" && c.source == nil && c.policy != nil &&
		c.pod.request.StarOf(c.name) && c.policy.CheckRuntime(c.pod.request, c.pod.handler) == nil
}

// reach looks at what a container is charged with, and says whether there is something
// to decide anew.
func (p *Plugin) reach(ctx context.Context, stacks *stacks, c *container) bool {
	p.mu.Lock()
	old, wanted := *c, c.mayReach()
	p.mu.Unlock()
	if !wanted {
		return false
	}
	stats, err := p.cgroups.Cgroup(old.cgroup).ReadIOStat()
	if errors.Is(err, blkio.ErrGone) || errors.Is(err, blkio.ErrNotSupported) {
		return false // it has ended, or the controller is yet to come
	}
	var reached []blkio.Disk
	var charged map[blkio.Dev]charge
	if err == nil {
		reached, charged, err = stacks.judge(ctx, &old, stats)
	}
	if err != nil { // what was found holds
		if ctx.Err() == nil {
			old.logger(p.log).WithError(err).Warn("Not known which disks a container uses")
		}
		return false
	}
	p.mu.Lock()
	before := c.reached
	c.reached, c.charged = reached, charged
	changed := !slices.Equal(reached, before)
	if changed {
		c.pod.group.changed()
	}
	p.mu.Unlock()
	for _, d := range reached {
		if !slices.Contains(before, d) {
			old.logger(p.log).WithFields(logrus.Fields{"disk": d.Name, "dev": d.Dev.String(), "used": stats[d.Dev].String()}).
				Info(`A container uses a disk that no mount and no device of it told of: "*" means that, too`)
		}
	}
	return changed
}

// stacks is what one pass over the node knows of how its disks are made of others.
type stacks struct {
	storage Storage
	under   map[blkio.Dev][]blkio.Disk
	swap    map[blkio.Dev]bool // nil before it is asked for
}

func newStacks(s Storage) *stacks {
	return &stacks{storage: s, under: map[blkio.Dev][]blkio.Disk{}}
}

// judge returns the disks that a container uses and that nobody told of, and what it is
// charged with on others. A disk stays for as long as the kernel has its counters, which
// are lost with the disk alone.
func (s *stacks) judge(ctx context.Context, c *container, stats map[blkio.Dev]blkio.Stat) (reached []blkio.Disk, charged map[blkio.Dev]charge, err error) {
	told := disksOf(&c.facts)
	var untold []blkio.Dev
	for dev, stat := range stats {
		if !told[dev] && stat.Bytes() > 0 { // 0: a flush, which sync(2) sends to all disks
			untold = append(untold, dev)
		}
	}
	if len(untold) == 0 {
		return nil, nil, nil
	}
	slices.SortFunc(untold, blkio.Dev.Compare)
	explained, err := s.explained(ctx, told, stats)
	if err != nil {
		return nil, nil, err
	}
	charged = map[blkio.Dev]charge{}
	for _, dev := range untold {
		bytes, last := stats[dev].Bytes(), c.charged[dev]
		if bytes < last.bytes {
			last = charge{} // another disk has the number now
		}
		known := slices.IndexFunc(c.reached, func(d blkio.Disk) bool { return d.Dev == dev })
		switch {
		case known >= 0:
			reached = append(reached, c.reached[known])
		case explained[dev]:
			charged[dev] = charge{bytes, true}
		case last.explained: // what was above has left, and may have been used since the last look
			charged[dev] = charge{bytes, false}
		case bytes-last.bytes < enough:
			charged[dev] = last
		default:
			reached = append(reached, s.disk(dev)...)
		}
	}
	return reached, charged, nil
}

// disk is the disk with a number, none if it has just left.
func (s *stacks) disk(dev blkio.Dev) []blkio.Disk {
	return slices.DeleteFunc(slices.Clone(s.storage.Device(dev).Disks), func(d blkio.Disk) bool { return d.Dev != dev })
}

// explained are the disks that a container is charged for because it uses others, or
// because the kernel swaps.
func (s *stacks) explained(ctx context.Context, told map[blkio.Dev]bool, stats map[blkio.Dev]blkio.Stat) (map[blkio.Dev]bool, error) {
	out, err := s.swapped(ctx)
	if err != nil {
		return nil, err
	}
	for dev := range told {
		s.addUnder(ctx, dev, out)
	}
	for dev := range stats {
		s.addUnder(ctx, dev, out)
	}
	return out, ctx.Err() // after which some files are not found
}

// swapped returns a copy of those that are swapped to, with what is under them.
func (s *stacks) swapped(ctx context.Context) (map[blkio.Dev]bool, error) {
	if s.swap == nil {
		disks, err := s.storage.SwapDisks(ctx)
		if err != nil {
			return nil, err
		}
		s.swap = map[blkio.Dev]bool{}
		for _, d := range disks {
			s.swap[d.Dev] = true
			s.addUnder(ctx, d.Dev, s.swap)
		}
	}
	return maps.Clone(s.swap), nil
}

func (s *stacks) addUnder(ctx context.Context, dev blkio.Dev, to map[blkio.Dev]bool) {
	under, known := s.under[dev]
	if !known {
		under = s.storage.Under(ctx, dev)
		s.under[dev] = under
	}
	for _, d := range under {
		to[d.Dev] = true
	}
}

// disksOf are the disks that were told of. The host's devices that a privileged container
// has are not among them: "*" means those that it uses.
func disksOf(facts *policy.Container) map[blkio.Dev]bool {
	out := map[blkio.Dev]bool{}
	add := func(b *blkio.Backing) {
		for _, d := range b.Disks {
			out[d.Dev] = true
		}
	}
	add(&facts.Rootfs)
	for i := range facts.Mounts {
		m := &facts.Mounts[i]
		if m.Injected {
			continue
		}
		add(&m.Backing)
		for k := range m.Below {
			add(&m.Below[k].Backing)
		}
	}
	return out
}
