package inventory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
)

// underDeadline bounds the search for the disks below one disk: the file of a loop device
// may be on a filesystem that does not answer. Containers that depend on the result are
// handled in the next pass. No other container waits.
const underDeadline = time.Second

// Stacks caches for one pass which disks are below others, which ones the kernel swaps to,
// and which ones have mounted filesystems. It is safe for concurrent use.
type Stacks struct {
	disks  Disks
	under  cache[blkio.Dev, under]
	shared atomic.Pointer[shared] // nil before it was read
}

// shared has the facts that are the same for all containers.
type shared struct {
	swap    map[blkio.Dev]bool
	swapErr error
	mounted map[blkio.Dev]bool
}

type under struct {
	disks []blkio.Disk
	err   error // there may be more
}

// NewStacks returns an empty cache, which reads each fact when it is first needed.
func NewStacks(d Disks) *Stacks {
	return &Stacks{disks: d}
}

// disk returns the disk with a number, or none if it has just been removed.
func (s *Stacks) disk(dev blkio.Dev) []blkio.Disk {
	return slices.DeleteFunc(slices.Clone(s.disks.Device(dev).Disks), func(d blkio.Disk) bool { return d.Dev != dev })
}

// explained returns the disks whose I/O a container is charged with because it uses disks
// above them, or because the kernel swaps.
func (s *Stacks) explained(ctx context.Context, declared map[blkio.Dev]bool, stats map[blkio.Dev]blkio.Stat) (map[blkio.Dev]bool, error) {
	all := s.readShared(ctx)
	out, err := maps.Clone(all.swap), all.swapErr
	for dev := range declared {
		err = errors.Join(err, s.AddUnder(ctx, dev, out))
	}
	for dev, stat := range stats {
		if stat.Bytes() > 0 { // a flush writes no data to the disks below
			err = errors.Join(err, s.AddUnder(ctx, dev, out))
		}
	}
	return out, err
}

// readShared reads, once, the facts that are the same for all containers.
func (s *Stacks) readShared(ctx context.Context) *shared {
	if known := s.shared.Load(); known != nil {
		return known
	}
	fresh := &shared{swap: map[blkio.Dev]bool{}, mounted: s.disks.MountedDisks()}
	var disks []blkio.Disk
	disks, fresh.swapErr = s.disks.SwapDisks(ctx)
	for _, d := range disks {
		fresh.swap[d.Dev] = true
		fresh.swapErr = errors.Join(fresh.swapErr, s.AddUnder(ctx, d.Dev, fresh.swap))
	}
	s.shared.Store(fresh)
	return fresh
}

// AddUnder adds to a set all disks below a disk: I/O to the disk is I/O to them as well.
// With an error, some may be missing.
func (s *Stacks) AddUnder(ctx context.Context, dev blkio.Dev, to map[blkio.Dev]bool) error {
	u, known := s.under.get(dev)
	if !known {
		within, cancel := context.WithTimeout(ctx, underDeadline)
		u.disks = s.disks.Under(within, dev)
		if within.Err() != nil {
			u.err = fmt.Errorf("find the disks below %s: no answer", dev)
		}
		cancel()
		s.under.put(dev, u)
	}
	for _, d := range u.disks {
		to[d.Dev] = true
	}
	return u.err
}

// cache keeps answers to questions for one pass. The caller finds an answer without the lock, because that can hang: two
// callers may find the same one. It is safe for concurrent use.
type cache[K comparable, V any] struct {
	mu    sync.Mutex // guards known
	known map[K]V
}

func (c *cache[K, V]) get(key K) (V, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, known := c.known[key]
	return v, known
}

func (c *cache[K, V]) put(key K, v V) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil {
		c.known = map[K]V{}
	}
	c.known[key] = v
}

// loopDeadline bounds the search for the disk below a loop device: its file may be on a filesystem that does not answer.
const loopDeadline = time.Second

// FindLowest finds the physical disks below the disks of a container, undeclared ones included. They may have changed since the last
// call. Only a budget needs them.
func (f *Finder) FindLowest(c *Container) { c.Facts.Lowest = Lowest(f.Storage, devsOf(&c.Facts)) }

// devsOf returns the disks of a container, undeclared ones included.
func devsOf(c *policy.Container) []blkio.Dev {
	devs := make([]blkio.Dev, 0, 8) // mostly enough
	add := func(disks []blkio.Disk) {
		for _, d := range disks {
			if !slices.Contains(devs, d.Dev) {
				devs = append(devs, d.Dev)
			}
		}
	}
	for o := range c.Objects() {
		add(o.Disks)
	}
	add(c.Undeclared)
	return devs
}

// Lowest returns the physical disks below those of some devices that are made of others, see policy.Container.Lowest. A device whose
// members cannot be read is left out: it counts as a disk of its own. The map is not nil.
func Lowest(s Storage, devs []blkio.Dev) map[blkio.Dev][]blkio.Disk {
	if out := madeOf(devs, func(dev blkio.Dev) []blkio.Disk { return lowest(s, dev) }); out != nil {
		return out
	}
	return map[blkio.Dev][]blkio.Disk{}
}

// madeOf returns the disks below each of some devices that is made of others.
func madeOf(devs []blkio.Dev, disksOf func(blkio.Dev) []blkio.Disk) map[blkio.Dev][]blkio.Disk {
	var out map[blkio.Dev][]blkio.Disk
	for _, dev := range devs {
		below := disksOf(dev)
		if len(below) == 0 || len(below) == 1 && below[0].Dev == dev {
			continue
		}
		if out == nil {
			out = map[blkio.Dev][]blkio.Disk{}
		}
		out[dev] = below
	}
	return out
}

// lowest returns the physical disks below a device, or the device itself if it is one, sorted by number. Loop devices with files on
// one another are few, because the kernel bounds the depth of a stack.
func lowest(s Storage, dev blkio.Dev) []blkio.Disk {
	physical, err := s.Physical(dev)
	if err != nil || !slices.ContainsFunc(physical, isLoop) {
		return physical
	}
	var out []blkio.Disk
	for _, d := range physical {
		if below := belowLoop(s, d); len(below) > 0 {
			out = append(out, below...)
		} else {
			out = append(out, d)
		}
	}
	slices.SortFunc(out, func(a, b blkio.Disk) int { return a.Dev.Compare(b.Dev) })
	return slices.CompactFunc(out, func(a, b blkio.Disk) bool { return a.Dev == b.Dev })
}

func isLoop(d blkio.Disk) bool { return strings.HasPrefix(d.Name, "loop") }

// belowLoop returns the physical disks below a loop device; none for another one, and if its file cannot be found.
func belowLoop(s Storage, d blkio.Disk) (out []blkio.Disk) {
	if !isLoop(d) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), loopDeadline)
	defer cancel()
	for _, under := range s.Under(ctx, d.Dev) { // at any depth
		if !isLoop(under) {
			out = append(out, lowest(s, under.Dev)...)
		}
	}
	return out
}
