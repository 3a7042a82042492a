package handover

import (
	"context"
	"errors"
	"path"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
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

// tidyPatience is the time that a pod waits for its turn. The turn of another pod may not end, with a disk that
// does not answer.
const tidyPatience = time.Minute

// Tidier makes the kernel release the page cache and the inodes of ended containers. It works pod by pod,
// because that takes CPU time.
type Tidier struct {
	Log     logrus.FieldLogger
	Cgroups *cgroupfs.Hierarchy
	// Releases reports whether the kernel may be made to move the inodes of removed cgroups.
	Releases func() bool
	Turn     chan struct{} // holds a token while a pod is tidied up
	Recovery *recovery.Recovery
}

// Tidy releases the page cache and the inodes of a pod after a container of it was written out.
func (t *Tidier) Tidy(ctx context.Context, pod Pod) {
	select {
	case t.Turn <- struct{}{}:
		defer func() { <-t.Turn }()
	case <-ctx.Done():
		return
	case <-time.After(tidyPatience):
		t.Log.WithField("cgroup", pod.Cgroup()).Warnf("Releasing files of ended containers is delayed: another pod's release took more than %v", tidyPatience)
		return
	}
	t.Recovery.Step("drop the page cache of an ended pod", func() { t.dropCache(pod) })
	t.Recovery.Step("release files of ended containers", func() { t.releaseFiles(pod) })
}

// dropCache drops the page cache of a pod without a running container. Pages that stay charged to a removed
// cgroup would keep their files with it, although the next pod on the same volume writes them.
func (t *Tidier) dropCache(pod Pod) {
	if !pod.IsDrained() {
		return
	}
	err := t.Cgroups.Cgroup(pod.Cgroup()).DropCache()
	if err != nil && !errors.Is(err, blkio.ErrGone) && !errors.Is(err, blkio.ErrNotSupported) {
		t.Log.WithError(err).WithField("cgroup", pod.Cgroup()).Warn("Dropping the page cache of an ended pod failed: its files may stay with a removed cgroup")
	}
}

// releaseFiles has the kernel transfer the files of removed cgroups to living ones. The cgroup of a container
// that has been synced is removed or will be soon, and so may be that of its pod.
func (t *Tidier) releaseFiles(pod Pod) {
	if pod.Cgroup() == "" || !t.Releases() {
		return
	}
	// The root's directory is not writable without a capability.
	if err := t.Cgroups.Cgroup(path.Dir(pod.Cgroup())).ReleaseRemovedOwners(); err != nil {
		t.Log.WithError(err).Warn("Releasing files of ended containers failed")
	}
}
