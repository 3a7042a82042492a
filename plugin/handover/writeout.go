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
	// Written notes whether all data of an ended container is on its disk.
	Written(id string, yes bool)
	// Cgroup returns the path of its cgroup, "" if it is not known.
	Cgroup() string
	// IsDrained reports whether no container runs in the cgroup, and no data is left to write.
	IsDrained() bool
}

// Leftovers describes the data that an ended container may not have written to its disks: the
// container, its pod, and the disks that it could write to.
type Leftovers struct {
	ID      string // ID of the container
	Pod     Pod
	Limited map[blkio.Dev]bool // disks with a limit on writes, of the container or of the pod
	Disks   *inventory.Container
	Log     logrus.FieldLogger
}

// Writeout writes out the data of containers that end.
type Writeout struct {
	Storage Storage
	Calls   *bounded.Calls // bounds the calls of Find
	Syncs   Syncer
	// Tidy is called once a hand-over has ended, and may take long. It is Tidier.Tidy.
	Tidy     func(ctx context.Context, pod Pod)
	Recovery *recovery.Recovery
}

// HandOver starts to write out the data that a container left. It returns once it has found the filesystems.
func (w *Writeout) HandOver(ctx context.Context, left *Leftovers) {
	w.Write(ctx, left.Pod, left.ID, w.Find(ctx, left))
}

// Write starts to sync a container's filesystems. The container is written out once all syncs have succeeded,
// if u has all filesystems that it could write to.
func (w *Writeout) Write(ctx context.Context, pod Pod, id string, u Unsynced) {
	e := &handingOver{tidy: w.Tidy, pod: pod, id: id, more: u.More}
	e.left.Store(int64(len(u.Volumes)))
	if len(u.Volumes) == 0 {
		e.end(ctx, !e.more)
		return
	}
	// A sync waits for the data of all writers of the filesystem. This container does not have to wait for a
	// slow writer of another pod, because the kernel counts the data that this pod has left to write.
	time.AfterFunc(syncPatience, func() {
		w.Recovery.Step("end a slow hand-over", func() { e.end(ctx, false) })
	})
	for _, v := range u.Volumes {
		w.Syncs.request(ctx, waiter{v, pod, e.over.Load, func(err error) { e.synced(ctx, err) }})
	}
}

// handingOver is the hand-over of one ended container. A sync can take hours, and tenants decide the size of a
// pod's annotations and the number of its mounts. So handingOver references neither the container nor the facts
// about its pod.
type handingOver struct {
	tidy func(ctx context.Context, pod Pod)
	pod  Pod
	id   string // of the container

	left, failed atomic.Int64 // number of syncs
	more         bool
	over         atomic.Bool
}

func (e *handingOver) synced(ctx context.Context, err error) {
	if err != nil {
		e.failed.Add(1)
	}
	if e.left.Add(-1) == 0 {
		e.end(ctx, !e.more && e.failed.Load() == 0)
	}
}

// end notes the result of the hand-over, once.
func (e *handingOver) end(ctx context.Context, written bool) {
	if e.over.Swap(true) {
		return
	}
	e.pod.Written(e.id, written)
	go e.tidy(ctx, e.pod) // other hand-overs that wait for the sync must not wait for this one
}
