package plugin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

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
// A container is also charged for disks that it does not have: those under its own,
// those that the kernel swaps to, and, where it calls sync(2), those of any filesystem of
// the node, whose log it writes then. To limit it there would hold up the others who
// write to that filesystem, so a disk with one that is mounted on the node is none that a
// container comes by unseen.

// enough is how many bytes a container has to be charged with on a disk that nobody told
// of. What is less may be nothing of its own: a page of the runtime's program, the
// superblock of a filesystem that comes or goes as it calls sync(2). At the smallest
// limit that a policy allows by default it is what passes in 16 seconds.
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

// isPartial says that not all disks that are to be limited are known, by a failure of
// ours. The caller holds Plugin.mu.
func (c *container) isPartial() bool { return c.source != nil || c.unjudged && c.mayReach() }

// reach looks at what a container is charged with, and says whether there is something
// to decide or to write anew.
func (p *Plugin) reach(ctx context.Context, stacks *stacks, c *container) bool {
	p.mu.Lock()
	old, wanted, pod := *c, c.mayReach(), c.pod.group.cgroup
	p.mu.Unlock()
	if !wanted {
		return false
	}
	stats, err := p.cgroups.Cgroup(old.cgroup).ReadIOStat()
	if errors.Is(err, blkio.ErrGone) || errors.Is(err, blkio.ErrNotSupported) {
		return false // it has ended, or the controller is yet to come
	}
	var found judgement
	if err == nil {
		var starred map[blkio.Dev]bool
		if old.unjudged {
			starred = p.starred(old.cgroup, pod)
		}
		found, err = stacks.judge(ctx, &old, stats, starred)
	}
	if ctx.Err() != nil {
		return false
	}
	p.mu.Lock()
	again := err != nil && err.Error() == c.notJudged
	changed := err == nil && (c.unjudged || !slices.Equal(found.reached, c.reached))
	if c.notJudged = ""; err != nil { // what was found holds
		c.notJudged = err.Error()
	} else {
		c.reached, c.charged, c.unjudged = found.reached, found.charged, false
	}
	if changed {
		c.pod.group.changed()
	}
	p.mu.Unlock()
	switch {
	case again:
	case err != nil:
		old.logger(p.log).WithError(err).Warn("Not known which disks a container uses")
	default:
		old.tellReached(p.log, found.reached, stats)
	}
	return changed
}

// tellReached logs those disks that the container, as it was before, was not known to use.
func (c *container) tellReached(log logrus.FieldLogger, reached []blkio.Disk, stats map[blkio.Dev]blkio.Stat) {
	for _, d := range reached {
		if !slices.Contains(c.reached, d) {
			c.logger(log).WithFields(logrus.Fields{"disk": d.Name, "dev": d.Dev.String(), "used": stats[d.Dev].String()}).
				Info(`A container uses a disk that no mount and no device of it told of: "*" means that, too`)
		}
	}
}

// starred are the disks that an earlier process has limited for a "*" by the records of
// a container and of its pod. What it found stays found.
func (p *Plugin) starred(cgroups ...string) map[blkio.Dev]bool {
	out := map[blkio.Dev]bool{}
	for _, cgroup := range cgroups {
		if cgroup == "" {
			continue
		}
		r, err := ReadRecord(p.cgroups.Cgroup(cgroup))
		if err != nil || r == nil || r.Observed {
			continue // who writes the record next tells what is wrong with it
		}
		for _, l := range r.Limits {
			if dev, err := blkio.ParseDev(l.Dev); err == nil && l.Source.Target == "*" {
				out[dev] = true
			}
		}
	}
	return out
}

// underDeadline is for what is under one disk: the path of a loop device's file may lead
// to a filesystem that does not answer. The containers that it matters to wait for the
// next pass, and the others for nothing.
const underDeadline = time.Second

// stacks is what one pass over the node knows of how its disks are made of others.
type stacks struct {
	storage Storage
	under   map[blkio.Dev]under
	once    bool // the rest is known
	swap    map[blkio.Dev]bool
	swapErr error
	mounted map[blkio.Dev]bool
}

type under struct {
	disks []blkio.Disk
	err   error // there may be more
}

func newStacks(s Storage) *stacks {
	return &stacks{storage: s, under: map[blkio.Dev]under{}}
}

// judgement is what a container was found to use: reached are the disks that nobody told
// of, charged what it did to others.
type judgement struct {
	reached []blkio.Disk
	charged map[blkio.Dev]charge
}

// judge looks at the I/O of a container. A disk that was found stays for as long as the
// kernel has its counters, which are lost with the disk alone; starred are those that an
// earlier process found.
func (s *stacks) judge(ctx context.Context, c *container, stats map[blkio.Dev]blkio.Stat, starred map[blkio.Dev]bool) (judgement, error) {
	told := disksOf(&c.facts)
	var untold []blkio.Dev
	for dev, stat := range stats {
		if !told[dev] && stat.Bytes() > 0 { // 0: a flush, which sync(2) sends to all disks
			untold = append(untold, dev)
		}
	}
	if len(untold) == 0 {
		return judgement{}, nil
	}
	slices.SortFunc(untold, blkio.Dev.Compare)
	explained, err := s.explained(ctx, told, stats)
	if err != nil {
		return judgement{}, err
	}
	out := judgement{charged: map[blkio.Dev]charge{}}
	for _, dev := range untold {
		bytes, last := stats[dev].Bytes(), c.charged[dev]
		if bytes < last.bytes {
			last = charge{} // another disk has the number now
		}
		known := slices.IndexFunc(c.reached, func(d blkio.Disk) bool { return d.Dev == dev })
		switch {
		case known >= 0:
			out.reached = append(out.reached, c.reached[known])
		case starred[dev]:
			out.reached = append(out.reached, s.disk(dev)...)
		case explained[dev] || s.mounted[dev]:
			out.charged[dev] = charge{bytes, true}
		case last.explained: // what was above has left, and may have been used since the last look
			out.charged[dev] = charge{bytes, false}
		case bytes-last.bytes < enough:
			out.charged[dev] = last
		default:
			out.reached = append(out.reached, s.disk(dev)...)
		}
	}
	return out, nil
}

// disk is the disk with a number, none if it has just left.
func (s *stacks) disk(dev blkio.Dev) []blkio.Disk {
	return slices.DeleteFunc(slices.Clone(s.storage.Device(dev).Disks), func(d blkio.Disk) bool { return d.Dev != dev })
}

// explained are the disks that a container is charged for because it uses others, or
// because the kernel swaps.
func (s *stacks) explained(ctx context.Context, told map[blkio.Dev]bool, stats map[blkio.Dev]blkio.Stat) (map[blkio.Dev]bool, error) {
	s.look(ctx)
	out, err := maps.Clone(s.swap), s.swapErr
	for dev := range told {
		err = errors.Join(err, s.addUnder(ctx, dev, out))
	}
	for dev, stat := range stats {
		if stat.Bytes() > 0 { // a flush brings nothing to what is under it
			err = errors.Join(err, s.addUnder(ctx, dev, out))
		}
	}
	return out, err
}

// look asks, once, what is of the node and no container's.
func (s *stacks) look(ctx context.Context) {
	if s.once {
		return
	}
	s.once, s.swap, s.mounted = true, map[blkio.Dev]bool{}, s.storage.MountedDisks()
	var disks []blkio.Disk
	disks, s.swapErr = s.storage.SwapDisks(ctx)
	for _, d := range disks {
		s.swap[d.Dev] = true
		s.swapErr = errors.Join(s.swapErr, s.addUnder(ctx, d.Dev, s.swap))
	}
}

func (s *stacks) addUnder(ctx context.Context, dev blkio.Dev, to map[blkio.Dev]bool) error {
	u, known := s.under[dev]
	if !known {
		within, cancel := context.WithTimeout(ctx, underDeadline)
		u.disks = s.storage.Under(within, dev)
		if within.Err() != nil {
			u.err = fmt.Errorf("what is under %s: no answer", dev)
		}
		cancel()
		s.under[dev] = u
	}
	for _, d := range u.disks {
		to[d.Dev] = true
	}
	return u.err
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
