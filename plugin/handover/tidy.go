package handover

import (
	"context"
	"errors"
	"path"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
)

// tidyPatience is what one pod's turn is waited for: with a disk that does not
// answer, one may not end.
const tidyPatience = time.Minute

// Tidier has the kernel let go of what the dead keep, pod by pod: it takes CPU time.
type Tidier struct {
	Log     logrus.FieldLogger
	Cgroups *cgroupfs.Hierarchy
	// Releases reports whether the kernel may be made to move the inodes of removed cgroups.
	Releases func() bool
	Turn     chan struct{} // holds a token while a pod is tidied up
}

// Tidy tidies up a pod of which a container has been written out.
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
	t.dropCache(pod)
	t.releaseFiles(pod)
}

// dropCache has the page cache of a pod forgotten in which nothing runs any more:
// pages that stay charged to the dead would keep their files from ever being
// anybody else's, such as the next pod's on the same volume.
func (t *Tidier) dropCache(pod Pod) {
	if !pod.IsDrained() {
		return
	}
	err := t.Cgroups.Cgroup(pod.Cgroup()).DropCache()
	if err != nil && !errors.Is(err, blkio.ErrGone) && !errors.Is(err, blkio.ErrNotSupported) {
		t.Log.WithError(err).WithField("cgroup", pod.Cgroup()).Warn("Dropping the page cache of an ended pod failed: its files may stay with a removed cgroup")
	}
}

// releaseFiles has files of dead cgroups given to living ones: that of a container
// that has been synced is removed or about to be, and so may that of its pod.
func (t *Tidier) releaseFiles(pod Pod) {
	if pod.Cgroup() == "" || !t.Releases() {
		return
	}
	// The root's directory is not writable without a capability.
	if err := t.Cgroups.Cgroup(path.Dir(pod.Cgroup())).ReleaseRemovedOwners(); err != nil {
		t.Log.WithError(err).Warn("Releasing files of ended containers failed")
	}
}
