package repair

import (
	"errors"
	"slices"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/blkio/writeback"
)

// read adds the writes since the last call to the ledger, and returns their number.
func (r *Repairer) read(now time.Time) int {
	if len(r.watch.filesystems) == 0 {
		return 0
	}
	// The alarm rings once for each cgroup until it is set again: some cgroups write to
	// files of others all the time.
	err := r.watch.observer.SetAlarm()
	r.problems.complain("alarm", "Alarms of written files are unavailable: files move later", err)
	r.pace.hasAlarm = err == nil
	found, lost, err := r.watch.observer.Read()
	r.problems.complain("read", "Observing writes failed", err)
	if before := r.metrics.lost.Swap(lost + r.ledger.full); lost+r.ledger.full > before {
		r.problems.complain("lost", "Too many written files: some are not counted", errTooMany)
	}
	r.domains.forgetPlaces()
	for i := range found {
		if s, ok := r.sampleOf(&found[i]); ok {
			r.ledger.add(now, &s)
			r.count(&s)
			r.passes.notify(s.inode)
		}
	}
	return len(found)
}

// onAlarm starts a pass for a file as soon as a cgroup that does not own it writes to it. A writer that syncs
// has dirty pages, which are votes, for a moment only. read counts the bytes later, except those of a new
// writer. onAlarm returns the time until the next read.
func (r *Repairer) onAlarm(now time.Time, d *writeback.Dirtied) time.Duration {
	if r.passes.notify(d.Inode) {
		return tick
	}
	r.domains.forgetPlaces()
	s, ok := r.sampleOf(d)
	if !ok {
		return writesTick
	}
	s.coming = minBytes
	if f := r.ledger.files[s.inode]; f == nil || !slices.ContainsFunc(f.shares, func(of share) bool { return of.domain == s.writer.domain }) {
		s.bytes = minBytes
	}
	r.ledger.add(now, &s)
	f := r.ledger.files[s.inode]
	if f == nil {
		return writesTick // no limit is concerned
	}
	r.act(now, r.ledger.decideOn(now, f))
	return tick
}

var errTooMany = errors.New("some written files were not counted, see the metric nri_blkio_writeback_lost_bytes_total")

func (r *Repairer) sampleOf(d *writeback.Dirtied) (sample, bool) {
	fs := r.watch.filesystems[d.Dev]
	if fs == nil || d.Root == writeback.BtrfsRootTree {
		return sample{}, false
	}
	writer, owner, charged := d.Writer, d.Owner, d.Charged
	if charged == 0 {
		charged = writer // unknown
	}
	if owner == 0 {
		owner = charged // the kernel is about to move the file there
	}
	// A kernel thread writes for the cgroup that it charges (loop devices). The writes of a
	// removed cgroup are usually charged to a living one.
	if writer == writeback.RootCgroup || r.domains.find(writer).gone && !r.domains.find(charged).gone {
		writer = charged
	}
	// A pod is charged for the pages that its removed containers have left in the page cache (Linux 7.1). The
	// writer is unknown then, because no process runs in a pod's own cgroup.
	if cgroupfs.HoldsPods(r.domains.find(writer).path) {
		return sample{}, false
	}
	for _, id := range []uint64{writer, owner, charged} {
		if r.domains.find(id).unknown {
			r.problems.complain("cgroup", "Some cgroup IDs are unknown", errUnknownCgroup)
			return sample{}, false
		}
	}
	return sample{
		inode: d.Inode, fs: fs, account: r.domains.account(writer), bytes: d.Bytes, span: span{d.First, d.Last},
		writer:  member{r.domains.of(writer, fs), writer},
		owner:   member{r.domains.of(owner, fs), owner},
		charged: r.domains.of(charged, fs),
	}, true
}

var errUnknownCgroup = errors.New("files that they write keep their owner")

func (r *Repairer) count(s *sample) {
	if !r.ledger.concerns(s.writer.domain, s.owner.domain) {
		return
	}
	if s.writer.domain == s.owner.domain {
		r.metrics.right.Add(s.bytes)
	} else {
		r.metrics.wrong.Add(s.bytes)
	}
}
