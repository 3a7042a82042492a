package plugin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
)

// charge is what a container was charged with on a disk that it is not taken to use.
type charge struct {
	bytes uint64
	// explained: with the last look, by another of its disks, by swap, or by a filesystem
	// that the node had mounted.
	explained bool
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

// judgement is the I/O that a container was found to do: reached are its undeclared disks,
// charged is its I/O to other disks.
type judgement struct {
	reached []blkio.Disk
	charged map[blkio.Dev]charge
}

// judge looks at the I/O of a container. A disk that was found stays for as long as the
// kernel has its counters, which are lost with the disk alone; starred are those that an
// earlier process found.
func (s *stacks) judge(ctx context.Context, c *container, stats map[blkio.Dev]blkio.Stat, starred map[blkio.Dev]bool) (judgement, error) {
	told := disksOf(&c.disks.facts)
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
		bytes, last := stats[dev].Bytes(), c.use.charged[dev]
		if bytes < last.bytes {
			last = charge{} // another disk has the number now
		}
		known := slices.IndexFunc(c.use.reached, func(d blkio.Disk) bool { return d.Dev == dev })
		switch {
		case known >= 0:
			out.reached = append(out.reached, c.use.reached[known])
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
			u.err = fmt.Errorf("find the disks below %s: no answer", dev)
		}
		cancel()
		s.under[dev] = u
	}
	for _, d := range u.disks {
		to[d.Dev] = true
	}
	return u.err
}

// disksOf are the declared disks. The host's devices that a privileged container
// has are not among them: "*" means those that it uses.
func disksOf(facts *policy.Container) map[blkio.Dev]bool {
	out := map[blkio.Dev]bool{}
	anyTold(facts, func(d blkio.Disk) bool {
		out[d.Dev] = true
		return false
	})
	return out
}

// isTold says that a disk is one of disksOf.
func isTold(facts *policy.Container, dev blkio.Dev) bool {
	return anyTold(facts, func(d blkio.Disk) bool { return d.Dev == dev })
}

func anyTold(facts *policy.Container, is func(blkio.Disk) bool) bool {
	if slices.ContainsFunc(facts.Rootfs.Disks, is) {
		return true
	}
	for i := range facts.Mounts {
		m := &facts.Mounts[i]
		if m.Injected {
			continue
		}
		if slices.ContainsFunc(m.Backing.Disks, is) {
			return true
		}
		for k := range m.Below {
			if slices.ContainsFunc(m.Below[k].Backing.Disks, is) {
				return true
			}
		}
	}
	return false
}
