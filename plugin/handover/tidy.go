package handover

import (
	"context"
	"errors"
	"path"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/plugin/recovery"
)

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
