package inventory

import (
	"context"
	"slices"
	"strings"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
)

// A container can use disks that no mount or device declares. A device node is created in it from outside, as
// KubeVirt does for a running virtual machine. Or a filesystem is mounted in its mount namespace alone, or a
// process passes it an open file. In each case the kernel charges the container's I/O in io.stat, so such a
// disk is found soon after its first use. The limits of "*" include it.
//
// A container is also charged for disks that it does not have: those below its own, and those that the kernel
// swaps to. If it calls sync(2), it is charged for those of any filesystem of the node, because it then writes
// their logs. A limit there would delay other writers of that filesystem. So a disk with a filesystem that is
// mounted on the node does not count as undeclared.

// MinUsage is the I/O in bytes from which a disk counts as an undeclared disk of a
// container. Less can be a page of the runtime's program, or the superblock of a filesystem
// that is mounted or unmounted while the container calls sync(2). The smallest limit that a
// policy allows by default passes this much in 16 seconds.
const MinUsage = 1 << 20

// charge is the I/O of a container to a disk that does not count as its own.
type charge struct {
	bytes uint64
	// explained is true if the last comparison explained the I/O by another disk of the container, by swap, or
	// by a filesystem that the node had mounted.
	explained bool
}

// Usage is the I/O of a container to disks that no mount or device declares.
type Usage struct {
	// Undeclared are the disks that the container uses although no mount or device declares them,
	// sorted by number.
	Undeclared []blkio.Disk
	// charged has the I/O to other disks. The map is replaced, never changed.
	charged map[blkio.Dev]charge
}

// IsZero reports whether there is no such I/O.
func (u *Usage) IsZero() bool { return len(u.Undeclared) == 0 && len(u.charged) == 0 }

// FindUndeclared finds the undeclared disks of a container. It compares stats, the io.stat of the
// container's cgroup, with the declared disks and with last, the usage that it returned before. A
// disk remains in the usage while the kernel has counters of it; the kernel drops them when the disk
// is removed. starred are the undeclared disks that an earlier process of the plugin found.
func (s *Stacks) FindUndeclared(ctx context.Context, facts *policy.Container, last *Usage, stats map[blkio.Dev]blkio.Stat, starred map[blkio.Dev]bool) (Usage, error) {
	declared := declaredDisks(facts)
	var undeclared []blkio.Dev
	for dev, stat := range stats {
		if !declared[dev] && stat.Bytes() > 0 { // 0: a flush, which sync(2) sends to all disks
			undeclared = append(undeclared, dev)
		}
	}
	if len(undeclared) == 0 {
		return Usage{}, nil
	}
	slices.SortFunc(undeclared, blkio.Dev.Compare)
	explained, err := s.explained(ctx, declared, stats)
	if err != nil {
		return Usage{}, err
	}
	out := Usage{charged: map[blkio.Dev]charge{}}
	for _, dev := range undeclared {
		bytes, before := stats[dev].Bytes(), last.charged[dev]
		if bytes < before.bytes {
			before = charge{} // another disk has the number now
		}
		known := slices.IndexFunc(last.Undeclared, func(d blkio.Disk) bool { return d.Dev == dev })
		switch {
		case known >= 0:
			out.Undeclared = append(out.Undeclared, last.Undeclared[known])
		case starred[dev]:
			out.Undeclared = append(out.Undeclared, s.disk(dev)...)
		case explained[dev] || s.readShared(ctx).mounted[dev]:
			out.charged[dev] = charge{bytes, true}
		case before.explained: // the disk above was removed, and may have been used since the last comparison
			out.charged[dev] = charge{bytes, false}
		case bytes-before.bytes < MinUsage:
			out.charged[dev] = before
		default:
			out.Undeclared = append(out.Undeclared, s.disk(dev)...)
		}
	}
	return out, nil
}

// declaredDisks returns the declared disks. The host's devices that a privileged container
// has are not among them: "*" means those that it uses.
func declaredDisks(facts *policy.Container) map[blkio.Dev]bool {
	out := map[blkio.Dev]bool{}
	for o := range facts.Objects() {
		for _, d := range o.Disks {
			if !o.Injected {
				out[d.Dev] = true
			}
		}
	}
	return out
}

// isDeclared reports whether a disk is one of declaredDisks.
func isDeclared(facts *policy.Container, dev blkio.Dev) bool {
	for o := range facts.Objects() {
		if !o.Injected && slices.ContainsFunc(o.Disks, func(d blkio.Disk) bool { return d.Dev == dev }) {
			return true
		}
	}
	return false
}

// Counters caches for one pass the bytes of cgroups' io.stat. Those of a cgroup include the ones of its descendants, removed ones
// included. It is safe for concurrent use.
type Counters struct {
	read  func(cgroup string) ([]blkio.DevBytes, error)
	known cache[string, counters] // by cgroup
}

type counters struct {
	bytes []blkio.DevBytes
	err   error
}

// NewCounters returns a cache of what read returns.
func NewCounters(read func(cgroup string) ([]blkio.DevBytes, error)) *Counters {
	return &Counters{read: read}
}

// Read reads the counters of a cgroup.
func (x *Counters) Read(cgroup string) {
	bytes, err := x.read(cgroup)
	x.known.put(cgroup, counters{bytes, err})
}

// MayDiffer reports whether FindUndeclared may find another usage than last for a container, by the counters of its cgroup and of those
// above it. It begins at the top, because the ancestor of all pods often answers for all of them. It reads nothing: if the answer depends
// on a cgroup that was not read yet, it returns that one as unread. It takes disks that were mounted or below others at the last
// comparison as such until they are used again.
func (x *Counters) MayDiffer(cgroup string, facts *policy.Container, last *Usage) (may bool, unread string) {
	for end := 0; end < len(cgroup); {
		if next := strings.IndexByte(cgroup[end+1:], '/'); next >= 0 && last.IsZero() {
			end += 1 + next
		} else {
			end = len(cgroup)
		}
		switch one, known := x.known.get(cgroup[:end]); {
		case !known:
			return false, cgroup[:end]
		case one.err == nil && last.covers(facts, one.bytes):
			return false, ""
		}
	}
	return true, ""
}

// covers reports whether FindUndeclared would return the same usage with these counters.
func (u *Usage) covers(facts *policy.Container, now []blkio.DevBytes) bool {
	listed := 0
	for _, d := range now {
		if isDeclared(facts, d.Dev) {
			continue
		}
		listed++
		before, isCharged := u.charged[d.Dev]
		isSame := d.Bytes == before.bytes || !before.explained && d.Bytes-before.bytes < MinUsage // or less than before, which is far more
		if isFound := isCharged && isSame || slices.ContainsFunc(u.Undeclared, func(x blkio.Disk) bool { return x.Dev == d.Dev }); !isFound {
			return false
		}
	}
	return listed == len(u.Undeclared)+len(u.charged)
}
