package handover

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/recovery"
	"github.com/nri-blkio/nri-blkio/plugin/reminder"
)

const (
	// syncPatience is the time after which a sync counts as slow. A slow sync is logged, and other filesystems
	// of the disk do not wait for it any longer. It cannot be aborted, because a process that waits for a disk
	// in the kernel cannot be killed.
	syncPatience = time.Minute
	// maxDiskSyncs is the number of syncs of one disk that may run at the same time, including slow ones. Each
	// is a process.
	maxDiskSyncs = 4
	// maxWaiting is the number of hand-overs that may wait for the sync of one filesystem. Of these, at most
	// maxPodWaiting may belong to one pod.
	maxWaiting    = 1024
	maxPodWaiting = 16
	// A filesystem rests after a sync: restFactor times as long as the sync has taken, minRest to maxRest. All
	// hand-overs that begin meanwhile share the next sync.
	restFactor = 4
	minRest    = time.Second
	maxRest    = 30 * time.Second
)

var (
	errNoSync    = errors.New("syncs are disabled")
	errSyncsFull = errors.New("the sync queue is full")
	errPanicked  = errors.New("internal error, see the log")
)

// Syncer syncs filesystems. A sync writes out all of a filesystem, so hand-overs of the same filesystem share
// it, and each filesystem has at most one sync under way. A disk has one sync at a time, apart from slow ones,
// because several syncs do not make writeback faster.
type Syncer struct {
	Log        logrus.FieldLogger
	Sync       func(ctx context.Context, hostPath string) error // nil if syncs are disabled
	OK, Failed atomic.Int64                                     // counts of syncs
	Recovery   *recovery.Recovery

	mu sync.Mutex // guards the fields below
	// waiting has a key, see Volume.key, for each filesystem that is being synced or rests. The value has the
	// hand-overs that need the next sync, because the current one may have missed their data.
	waiting map[Volume][]waiter
	disks   map[blkio.Dev]*diskSyncs // one for each disk that was synced
}

// waiter is a hand-over that waits for a sync. That can take hours, so it keeps few data.
type waiter struct {
	Volume
	pod    Pod // the places of this pod are limited
	isOver func() bool
	done   func(error)
}

// diskSyncs holds a token for each sync of a disk that is under way: slots for all of them, turn for the one
// that is not slow.
type diskSyncs struct{ turn, slots chan struct{} }

// request queues a sync of a filesystem. It calls w.done after the sync, unless w.isOver.
func (s *Syncer) request(ctx context.Context, w waiter) {
	err := errNoSync
	if s.Sync != nil {
		err = s.enqueue(ctx, w)
	}
	if err != nil {
		w.done(err)
	}
}

func (s *Syncer) enqueue(ctx context.Context, w waiter) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	waiting, busy := s.waiting[w.key()]
	if isFull(waiting, w.pod) {
		waiting = slices.DeleteFunc(waiting, func(other waiter) bool { return other.isOver() })
		s.waiting[w.key()] = waiting
	}
	if isFull(waiting, w.pod) {
		return errSyncsFull
	}
	if s.waiting == nil {
		s.waiting, s.disks = map[Volume][]waiter{}, map[blkio.Dev]*diskSyncs{}
	}
	s.waiting[w.key()] = append(waiting, w)
	if !busy {
		go s.run(ctx, w.key())
	}
	return nil
}

func isFull(waiting []waiter, pod Pod) bool {
	if len(waiting) >= maxWaiting {
		return true
	}
	same := 0
	for _, w := range waiting {
		if w.pod == pod {
			same++
		}
	}
	return same >= maxPodWaiting
}

// Pending returns the number of syncs that are under way, and the number of hand-overs that wait for one.
func (s *Syncer) Pending() (syncs, waiting int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.disks {
		syncs += len(d.slots)
	}
	for _, w := range s.waiting { // a filesystem without a hand-over rests
		waiting += len(w)
	}
	return syncs, waiting
}

func (s *Syncer) run(ctx context.Context, key Volume) {
	for all := s.take(key); len(all) > 0; all = s.take(key) {
		last := all[len(all)-1] // the mountpoint of the last one is the most likely to exist still
		var took time.Duration
		err := errPanicked
		if !s.Recovery.Step("sync a filesystem", func() { took, err = s.syncOnce(ctx, last.Path, s.syncsOf(last.Disk)) }) {
			s.Failed.Add(1)
		}
		for _, w := range all {
			s.Recovery.Step("note the sync of a filesystem", func() { w.done(err) })
		}
		reminder.Sleep(ctx, min(max(restFactor*took, minRest), maxRest))
	}
}

func (s *Syncer) take(key Volume) []waiter {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.waiting[key]
	if len(all) > 0 {
		s.waiting[key] = nil
	} else {
		delete(s.waiting, key)
	}
	return all
}

func (s *Syncer) syncsOf(dev blkio.Dev) *diskSyncs {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.disks[dev] == nil {
		s.disks[dev] = &diskSyncs{make(chan struct{}, 1), make(chan struct{}, maxDiskSyncs)}
	}
	return s.disks[dev]
}

// syncOnce syncs a filesystem. It returns the time that the sync took, without the wait for the disk's turn.
func (s *Syncer) syncOnce(ctx context.Context, path string, disk *diskSyncs) (time.Duration, error) {
	for _, tokens := range []chan struct{}{disk.slots, disk.turn} {
		select {
		case tokens <- struct{}{}:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
	defer func() { <-disk.slots }()
	endTurn := sync.OnceFunc(func() { <-disk.turn })
	defer endTurn()
	began := time.Now()
	patience := time.AfterFunc(syncPatience, func() {
		s.Log.WithField("path", path).Warnf("Sync of an ended container's filesystem takes more than %v, still waiting", syncPatience)
		endTurn()
	})
	defer patience.Stop()
	err := s.Sync(ctx, path)
	took := time.Since(began)
	s.logResult(ctx, path, took, err)
	return took, err
}

func (s *Syncer) logResult(ctx context.Context, path string, took time.Duration, err error) {
	log := s.Log.WithFields(logrus.Fields{"path": path, "took": took.Round(time.Millisecond).String()})
	switch {
	case err == nil:
		s.OK.Add(1)
		log.Debug("Synced")
	case ctx.Err() == nil:
		s.Failed.Add(1)
		log.WithError(err).Warn("Sync of an ended container's filesystem failed")
	}
}
