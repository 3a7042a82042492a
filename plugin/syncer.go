package plugin

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// syncPatience is when a sync that is under way still is worth a line. It cannot be
// given up: who waits for a disk in the kernel cannot be killed.
const syncPatience = time.Minute

var errNoSync = errors.New("this program does not sync")

// syncer writes filesystems out, one of each disk at a time: writeback does not get
// faster by several syncs, and each may hang.
type syncer struct {
	log        logrus.FieldLogger
	do         func(ctx context.Context, hostPath string) error // nil: none is done
	ok, failed atomic.Int64

	mu sync.Mutex
	// waiting has a key for each mountpoint with a sync under way, and who
	// came since: what they have written it may have missed.
	waiting map[volume][]func(error)
	disks   map[blkio.Dev]chan struct{} // a token for each disk; there are few
}

// soon has a filesystem written out, and calls done afterwards.
func (s *syncer) soon(ctx context.Context, v volume, done func(error)) {
	if s.do == nil {
		done(errNoSync)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if waiting, busy := s.waiting[v]; busy {
		s.waiting[v] = append(waiting, done)
		return
	}
	if s.waiting == nil {
		s.waiting, s.disks = map[volume][]func(error){}, map[blkio.Dev]chan struct{}{}
	}
	s.waiting[v] = nil
	if s.disks[v.disk] == nil {
		s.disks[v.disk] = make(chan struct{}, 1)
	}
	go s.run(ctx, v, s.disks[v.disk], []func(error){done})
}

func (s *syncer) run(ctx context.Context, v volume, disk chan struct{}, all []func(error)) {
	for len(all) > 0 {
		disk <- struct{}{}
		err := s.once(ctx, v.path)
		<-disk
		for _, done := range all {
			done(err)
		}
		s.mu.Lock()
		if all = s.waiting[v]; len(all) > 0 {
			s.waiting[v] = nil
		} else {
			delete(s.waiting, v)
		}
		s.mu.Unlock()
	}
}

func (s *syncer) once(ctx context.Context, path string) error {
	began := time.Now()
	patience := time.AfterFunc(syncPatience, func() {
		s.log.WithField("path", path).Warnf("The data of a container that has ended is not all on its disk after %v, waiting on", syncPatience)
	})
	err := s.do(ctx, path)
	patience.Stop()
	log := s.log.WithFields(logrus.Fields{"path": path, "took": time.Since(began).Round(time.Millisecond).String()})
	switch {
	case err == nil:
		s.ok.Add(1)
		log.Debug("Synced")
	case ctx.Err() == nil:
		s.failed.Add(1)
		log.WithError(err).Warn("The data of a container that has ended is not all on its disk")
	}
	return err
}
