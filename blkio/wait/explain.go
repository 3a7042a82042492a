package wait

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// Share is a part of the time that the threads of some cgroups waited.
type Share struct {
	// Cause is one of the causes of threads, or for I/O of their own Limit, Scheduler or Device. It is IO if nothing tells
	// where that I/O was.
	Cause Cause
	// By is as in Place. Of another cause than Limit it is 0 if it is one of the cgroups. A Writeback of 0 is of an
	// unknown owner, or of its own that nothing is known of.
	By  uint64
	Dev blkio.Dev // zero: unknown
	// Op is Read or WriteOut for a Limit, whose keys are of reads or of writes. WriteOut is any write. It is None for others.
	Op Op
	// Behind is what the data of By, or of the journal, waited for most itself: mostly a limit. It is nil if that
	// is unknown.
	Behind *Place
	Time   time.Duration // of threads
	Part   float64       // of the time of all shares
}

// Explain returns where the time of threads went that are in the cgroups, the largest share first. The cgroups are those
// of one container, or one pod. A journal whose disk is unknown is that of one of the disks that they have used. It is a function of its
// arguments.
//
// A limit is in the result only if it held I/O of these cgroups, or of the owner that they waited for.
func Explain(t Times, cgroups map[uint64]bool, used map[blkio.Dev]bool) []Share {
	e := explanation{
		t: t, cgroups: cgroups, used: used, places: slices.SortedFunc(maps.Keys(t.At), Place.compare), disks: map[blkio.Dev]bool{},
		inFlight: map[uint64]time.Duration{}, shares: map[Share]time.Duration{}, behind: map[Share]*Place{},
	}
	for _, place := range e.places {
		if place.Cause == Scheduler || place.Cause == Device {
			e.disks[place.Dev] = true
		}
	}
	for _, place := range e.places {
		switch {
		case !cgroups[place.Cgroup]:
		case place.Op == Read || place.Op == Direct:
			e.inFlight[place.Cgroup] += t.At[place].Sum
		case place.Cause == IO:
			e.inFlight[place.Cgroup] -= t.At[place].Sum
		}
	}
	for _, place := range e.places {
		if cgroups[place.Cgroup] && place.Op == None {
			e.thread(place, t.At[place].Sum)
		}
	}
	return e.sorted()
}

// explanation has the shares by all but Behind, Time and Part.
type explanation struct {
	t       Times
	cgroups map[uint64]bool
	used    map[blkio.Dev]bool // disks
	places  []Place            // sorted, so that sums and choices are the same each time
	disks   map[blkio.Dev]bool // at which requests were counted
	// inFlight is the time of each cgroup's reads and direct writes, without that of threads that wait in IO.
	inFlight map[uint64]time.Duration
	shares   map[Share]time.Duration
	behind   map[Share]*Place
}

func (p Place) compare(o Place) int {
	return cmp.Or(cmp.Compare(p.Cause, o.Cause), cmp.Compare(p.Op, o.Op), cmp.Compare(p.Cgroup, o.Cgroup), cmp.Compare(p.By, o.By), p.Dev.Compare(o.Dev))
}

func (e *explanation) thread(place Place, sum time.Duration) {
	own := e.cgroups[place.By]
	switch place.Cause {
	case Async:
		// Completions of other kinds, as of sockets, take none of the time of I/O. So no more than that counts.
		sum = max(0, min(sum, e.inFlight[place.Cgroup]))
		e.inFlight[place.Cgroup] -= sum
		e.divide(sum, e.own(place.Cgroup, blkio.Dev{}, Read, Direct))
	case IO:
		if e.t.Mixed || !e.io(place.Cgroup, sum) {
			e.add(place, sum, nil)
		}
	case Writeback:
		if own && e.divide(sum, e.own(place.By, place.Dev, WriteOut)) {
			return
		}
		e.add(place, sum, e.most(func(p Place) bool { return p.Cgroup == place.By && p.Op == WriteOut && e.isBelow(p.Dev, place.Dev) }))
	case Journal:
		owner := e.inJournal(place.Dev, sum)
		if owner == nil {
			e.add(place, sum, nil)
			return
		}
		place.Dev = owner.Dev // a sample does not tell it
		e.add(place, sum, e.most(func(p Place) bool { return p.Cgroup == owner.By && p.Op == WriteOut && e.isBelow(p.Dev, owner.Dev) }))
	case DirtyNode, DirtyCgroup:
		// Pages become clean as fast as the owner of the file writes them out.
		held := e.most(func(p Place) bool { return p.Cgroup == place.By && p.Op == WriteOut })
		if held != nil && (held.Cause != Limit || e.t.At[*held].Wall < e.t.Duration/2) {
			held = nil
		}
		if held != nil && own {
			e.add(*held, sum, nil)
			return
		}
		e.add(place, sum, held)
	default:
		e.add(place, sum, nil)
	}
}

// io adds time that threads of a cgroup waited for I/O. It returns false if none of the cgroups had any.
func (e *explanation) io(cgroup uint64, sum time.Duration) bool {
	// Reads and direct writes take at least as long as their threads wait for them. The rest of the time threads wait for a page
	// that is written out, as for its lock.
	if sync, out := e.own(cgroup, blkio.Dev{}, Read, Direct), e.own(cgroup, blkio.Dev{}, WriteOut); len(sync)+len(out) > 0 {
		if all := e.sum(sync); len(out) > 0 && all < sum {
			return e.divide(all, sync) && e.divide(sum-all, out) || e.divide(sum, out)
		}
		return e.divide(sum, sync)
	}
	// Another one of the cgroups reads or writes the same file.
	return e.divide(sum, e.own(0, blkio.Dev{}, Read, Direct)) || e.divide(sum, e.own(0, blkio.Dev{}, WriteOut))
}

// own returns the places of I/O of these kinds that is charged to one of the cgroups; 0: to any of them. A zero dev is any disk.
func (e *explanation) own(cgroup uint64, dev blkio.Dev, ops ...Op) (out []Place) {
	for _, p := range e.places {
		if e.cgroups[p.Cgroup] && (cgroup == 0 || p.Cgroup == cgroup) && slices.Contains(ops, p.Op) && e.isBelow(p.Dev, dev) && e.t.At[p].Sum > 0 {
			out = append(out, p)
		}
	}
	return out
}

func (e *explanation) sum(of []Place) (all time.Duration) {
	for _, p := range of {
		all += e.t.At[p].Sum
	}
	return all
}

// divide adds time that threads waited by where I/O spent its time. It returns false if there was no such I/O.
func (e *explanation) divide(sum time.Duration, own []Place) bool {
	all := e.sum(own)
	for _, p := range own {
		e.add(p, time.Duration(sum.Seconds()*e.t.At[p].Sum.Seconds()/all.Seconds()*float64(time.Second)), nil)
	}
	return all > 0
}

// isBelow reports whether I/O to dev can be at a disk. A zero dev is any. A device at which no request was counted stands on others,
// as a logical volume: its I/O is counted at those, and which they are is unknown.
func (e *explanation) isBelow(disk, dev blkio.Dev) bool {
	return dev == blkio.Dev{} || disk == dev || !e.disks[dev]
}

// most returns the place of I/O where most time was spent, nil if there is none.
func (e *explanation) most(of func(Place) bool) *Place {
	var found *Place
	for _, p := range e.places {
		if of(p) && (found == nil || e.t.At[p].Sum > e.t.At[*found].Sum) {
			found = &p
		}
	}
	return found
}

// rootCgroup is the ID of the root, where the kernel's threads are.
const rootCgroup = 1

// inJournal returns whose data a journal waited for, for most of the time that threads waited for it: its thread waits for the data of
// the files of a transaction, as their owner's writeback. A zero dev is any of the disks that the cgroups have used.
func (e *explanation) inJournal(dev blkio.Dev, sum time.Duration) (owner *Place) {
	owner = e.most(func(p Place) bool {
		isThere := p.Dev == dev
		if dev == (blkio.Dev{}) {
			isThere = e.used[p.Dev]
		}
		return p.Cause == Writeback && p.Cgroup == rootCgroup && isThere
	})
	if owner == nil || e.t.At[*owner].Sum < sum/2 {
		return nil
	}
	return owner
}

func (e *explanation) add(at Place, sum time.Duration, behind *Place) {
	share := Share{Cause: at.Cause, By: at.By, Dev: at.Dev}
	switch {
	case at.Cause == Limit && at.Op == Read:
		share.Op = Read
	case at.Cause == Limit:
		share.Op = WriteOut
	case e.cgroups[at.By]: // a limit of one of the cgroups is distinguished from that of an ancestor
		share.By = 0
	}
	if behind != nil {
		e.behind[share] = behind
	}
	e.shares[share] += sum
}

func (e *explanation) sorted() []Share {
	var all time.Duration
	for _, sum := range e.shares {
		all += sum
	}
	out := make([]Share, 0, len(e.shares))
	for share, sum := range e.shares {
		if sum == 0 {
			continue
		}
		share.Behind, share.Time, share.Part = e.behind[share], sum, sum.Seconds()/all.Seconds()
		out = append(out, share)
	}
	slices.SortFunc(out, func(a, b Share) int {
		return cmp.Or(cmp.Compare(b.Time, a.Time), Place{Cause: a.Cause, Op: a.Op, By: a.By, Dev: a.Dev}.compare(Place{Cause: b.Cause, Op: b.Op, By: b.By, Dev: b.Dev}))
	})
	return out
}

// Cause is what I/O, or a thread, waits for. The numbers are those of the program.
type Cause uint16

// The causes. [Limit], [Scheduler] and [Device] count the time of I/O, and the others that of threads.
const (
	Limit       Cause = iota // the io.max of the cgroup Place.By, which is an ancestor or the cgroup itself
	Cost                     // io.cost: a thread waits for its cgroup's turn
	DirtyNode                // dirty pages: the node has too many
	DirtyCgroup              // dirty pages: the cgroup has too many for its memory
	Journal                  // a commit of the journal of ext4, or of the log of XFS
	Writeback                // pages under writeback that are queued for the cgroup Place.By, the owner of the file
	Queue                    // a tag of the disk's queue
	Scheduler                // from the allocation of a request until the device has it
	Device                   // from there until it is completed
	IO                       // I/O that none of the others names: a read, a direct write, a bio of its own
	Async                    // completions of io_uring or Linux AIO: of I/O, or of what else the thread asked for
	numCauses
)

var causeNames = [numCauses]string{ // constant
	"limit", "share by io.cost", "dirty pages of the node", "dirty pages of the cgroup", "journal", "writeback", "queue", "scheduler", "device", "I/O", "completions",
}

// String returns the name of the cause.
func (c Cause) String() string { return causeNames[c] }

// Op is what I/O does. The numbers are those of the program.
type Op uint16

// The operations. That of a thread is None. Direct is a write that its thread waits for, and WriteOut another one, mostly of
// dirty pages. A discard or a flush counts as a WriteOut.
const (
	None Op = iota
	Read
	Direct
	WriteOut
	numOps
)

// Place is where time was spent.
type Place struct {
	Cause  Cause
	Op     Op
	Cgroup uint64    // ID of the cgroup that the I/O is charged to, or that the thread is in
	By     uint64    // ID of the cgroup that is waited for; 0: none, or unknown
	Dev    blkio.Dev // the whole disk; zero: unknown
}

// Time is the time that was spent at a place.
type Time struct {
	// Sum has the time of each bio, request or thread.
	Sum time.Duration
	// Wall is the time during which at least one bio was held. Only Limit has it.
	Wall  time.Duration
	Count uint64 // waits that ended
}

func (t Time) sub(earlier Time) Time {
	return Time{max(0, t.Sum-earlier.Sum), max(0, t.Wall-earlier.Wall), t.Count - earlier.Count}
}

func (t Time) add(o Time) Time { return Time{t.Sum + o.Sum, t.Wall + o.Wall, t.Count + o.Count} }

// Times is what was counted in some time.
type Times struct {
	Duration time.Duration
	At       map[Place]Time
	// Mixed is true if IO has the time of causes that the kernel hides: their threads wait in the same function.
	Mixed bool
	// Lost is the number of waits that were not counted: for lack of room, or because a program was interrupted by
	// itself. Other times are right, but low.
	Lost uint64
	// Full is true if there is no room for a further cgroup or cause. Those of cgroups that have ended take room until the
	// observer is closed.
	Full bool
}

// Since returns what was counted since an earlier reading of the same observer.
func (t Times) Since(earlier Times) Times {
	out := Times{Duration: t.Duration - earlier.Duration, At: make(map[Place]Time, len(t.At)), Mixed: t.Mixed, Lost: t.Lost - earlier.Lost, Full: t.Full}
	for place, time := range t.At {
		if d := time.sub(earlier.At[place]); d.Sum > 0 || d.Count > 0 {
			out.At[place] = d
		}
	}
	return out
}
