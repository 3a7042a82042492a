package plugin

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"
)

// syncDeadline is when a sync is given up. It may go on in the kernel.
const syncDeadline = time.Minute

var errNoSync = errors.New("this program does not sync")

// syncer writes filesystems out, each one at a time: its writeback does not get
// faster by several syncs, and each may hang.
type syncer struct {
	log        logrus.FieldLogger
	do         func(ctx context.Context, hostPath string) error // nil: none is done
	ok, failed atomic.Int64

	mu sync.Mutex
	// waiting has a key for each filesystem with a sync under way, and who
	// came since: what they have written it may have missed.
	waiting map[string][]func(error)
}

// soon has a filesystem written out, and calls done afterwards.
func (s *syncer) soon(ctx context.Context, path string, done func(error)) {
	if s.do == nil {
		done(errNoSync)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if waiting, busy := s.waiting[path]; busy {
		s.waiting[path] = append(waiting, done)
		return
	}
	if s.waiting == nil {
		s.waiting = map[string][]func(error){}
	}
	s.waiting[path] = nil
	go s.run(ctx, path, []func(error){done})
}

func (s *syncer) run(ctx context.Context, path string, all []func(error)) {
	for len(all) > 0 {
		err := s.once(ctx, path)
		for _, done := range all {
			done(err)
		}
		s.mu.Lock()
		if all = s.waiting[path]; len(all) > 0 {
			s.waiting[path] = nil
		} else {
			delete(s.waiting, path)
		}
		s.mu.Unlock()
	}
}

func (s *syncer) once(ctx context.Context, path string) error {
	began := time.Now()
	limited, cancel := context.WithTimeoutCause(ctx, syncDeadline, fmt.Errorf("not done within %v", syncDeadline))
	defer cancel()
	err := s.do(limited, path)
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
