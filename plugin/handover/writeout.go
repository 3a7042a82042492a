package handover

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/bounded"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
	"github.com/nri-blkio/nri-blkio/plugin/recovery"
)

// Pod is the pod of containers that have ended. Values for the same pod are equal.
type Pod interface {
	// Written notes whether all that a container had to write is on its disk.
	Written(id string, yes bool)
	// Cgroup returns the path of its cgroup, "" if it is not known.
	Cgroup() string
	// IsDrained reports whether nothing runs in the cgroup, and nothing is left to write.
	IsDrained() bool
}

// Left is a container that has ended, and what it could write to.
type Left struct {
	ID      string // of the container
	Pod     Pod
	Limited map[blkio.Dev]bool // disks with a limit on writes, its own or the pod's
	Disks   *inventory.Container
	Log     logrus.FieldLogger
}

// Writeout has written to disk what containers leave that end.
type Writeout struct {
	Storage Storage
	Looks   *bounded.Calls
	Syncs   Syncer
	// Tidy is called once a hand-over has ended, and may take long; see Tidier.
	Tidy     func(ctx context.Context, pod Pod)
	Recovery *recovery.Recovery
}

// HandOver has written to disk what a container left, and returns once it knows what that is.
func (w *Writeout) HandOver(ctx context.Context, left *Left) {
	w.Write(ctx, left.Pod, left.ID, w.Find(ctx, left))
}

// Write has a container's filesystems synced. Once they all are it has nothing left to
// write, if they are all that it could write to.
func (w *Writeout) Write(ctx context.Context, pod Pod, id string, u Unsynced) {
	e := &ending{tidy: w.Tidy, pod: pod, id: id, more: u.More}
	e.left.Store(int64(len(u.Volumes)))
	if len(u.Volumes) == 0 {
		e.end(ctx, !e.more)
		return
	}
	// A sync waits for the data of all writers of the filesystem. This container does not
	// have to wait for a slow one of another pod: the kernel counts what this pod has left
	// to write.
	time.AfterFunc(syncPatience, func() {
		w.Recovery.Step("end a slow hand-over", func() { e.end(ctx, false) })
	})
	for _, v := range u.Volumes {
		w.Syncs.soon(ctx, waiter{v, pod, e.over.Load, func(err error) { e.synced(ctx, err) }})
	}
}

// ending is the hand-over of one container that has ended. A sync can take hours, and
// tenants decide how large a pod's annotations and how many its mounts are, so ending
// keeps neither the container nor what its pod has.
type ending struct {
	tidy func(ctx context.Context, pod Pod)
	pod  Pod
	id   string // of the container

	left, failed atomic.Int64 // of the syncs
	more         bool
	over         atomic.Bool
}

func (e *ending) synced(ctx context.Context, err error) {
	if err != nil {
		e.failed.Add(1)
	}
	if e.left.Add(-1) == 0 {
		e.end(ctx, !e.more && e.failed.Load() == 0)
	}
}

// end notes how the hand-over has ended, once.
func (e *ending) end(ctx context.Context, written bool) {
	if e.over.Swap(true) {
		return
	}
	e.pod.Written(e.id, written)
	go e.tidy(ctx, e.pod) // other hand-overs that wait for the sync must not wait for this
}
