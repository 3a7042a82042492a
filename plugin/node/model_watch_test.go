package node

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
)

// modelWatch plays a cgroupfs.EmptyWatch: it reports the end of the last process of a cgroup,
// one cgroup at a time.
type modelWatch struct {
	k     *modelKernel
	ended chan string

	// Guarded by modelKernel.mu.

	watched  map[string]bool
	fired    map[string]*modelOpenCgroup // the cgroups that were reported, until they are removed
	reported map[string]bool             // the cgroups that the plugin got a report of
	late     int                         // number of reports so far
}

// newWatch replaces the kernel's watch, as a restart of the plugin does.
func (k *modelKernel) newWatch() *modelWatch {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.watch = &modelWatch{k: k, ended: make(chan string, 1<<16), watched: map[string]bool{}, fired: map[string]*modelOpenCgroup{}, reported: map[string]bool{}}
	return k.watch
}

// Add adds a cgroup, as cgroupfs.EmptyWatch does.
func (w *modelWatch) Add(c cgroupfs.Cgroup) error {
	w.k.mu.Lock()
	defer w.k.mu.Unlock()
	if _, ok := w.k.limits[c.Path()]; !ok {
		return blkio.ErrGone
	}
	if w.k.watch == w { // otherwise it belongs to a plugin that was restarted
		w.watched[c.Path()] = true
		if populated, err := c.Populated(); err != nil {
			return err
		} else if !populated {
			w.fire(c.Path())
		}
	}
	return nil
}

// fire reports a cgroup if it is watched. The caller holds modelKernel.mu.
func (w *modelWatch) fire(cgroup string) {
	if _, ok := w.k.limits[cgroup]; !ok {
		delete(w.fired, cgroup)
	}
	if !w.watched[cgroup] {
		return
	}
	delete(w.watched, cgroup)
	if w.late++; w.late%4 > 0 {
		w.ended <- cgroup
		return
	}
	time.AfterFunc(modelLate, func() { w.ended <- cgroup })
}

// modelLate is the delay of the watch for some cgroups. StopContainer comes before it.
const modelLate = 200 * time.Millisecond

// run reports to a plugin until the watch is stopped. ctx is that of the plugin.
func (w *modelWatch) run(ctx context.Context, n *Node, stopped chan struct{}) {
	for {
		select {
		case cgroup := <-w.ended:
			n.exits.ends.Exited(ctx, w.hold(cgroup))
			w.report(cgroup)
		case <-stopped:
			return
		}
	}
}

// watchExits connects a plugin's exits to the watch, and returns a function that ends that. Exits that the
// watch has not reported by then are lost.
func (r *modelRuntime) watchExits(ctx context.Context, n *Node) (stop func()) {
	watch := r.k.newWatch()
	exitHandler{n}.Watching(watch)
	stopped := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() { watch.run(ctx, n, stopped) })
	return func() {
		close(stopped)
		running.Wait()
		exitHandler{n}.Lost()
	}
}

// failWatch is an exit watch that fails, and the next one.
func (r *modelRuntime) failWatch(rng *rand.Rand) {
	r.mu.Lock()
	stop, ctx, n := r.watch, r.ctx, r.plugin
	r.mu.Unlock()
	stop()
	r.note("the exit watch fails")
	pause(rng)
	next := r.watchExits(ctx, n)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watch = next
}

func (w *modelWatch) hold(cgroup string) *modelOpenCgroup {
	w.k.mu.Lock()
	defer w.k.mu.Unlock()
	held := &modelOpenCgroup{k: w.k, path: cgroup}
	if _, ok := w.k.limits[cgroup]; ok {
		w.fired[cgroup] = held
	}
	return held
}

func (w *modelWatch) report(cgroup string) {
	w.k.mu.Lock()
	defer w.k.mu.Unlock()
	w.reported[cgroup] = true
}

// isReported reports whether the plugin got a report of the end of a cgroup.
func (k *modelKernel) isReported(cgroup string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.watch.reported[cgroup]
}

// modelOpenCgroup plays a cgroupfs.OpenCgroup.
type modelOpenCgroup struct {
	k    *modelKernel
	path string

	// Guarded by modelKernel.mu.

	lines  []blkio.Line // that were lifted
	closed bool
}

func (h *modelOpenCgroup) Path() string { return h.path }

func (h *modelOpenCgroup) Lift(lines []blkio.Line) error {
	h.k.mu.Lock()
	defer h.k.mu.Unlock()
	h.lines = lines
	if _, ok := h.k.limits[h.path]; !ok {
		return blkio.ErrGone
	}
	for _, l := range lines {
		if err := h.k.setLimits(h.path, l.Text); err != nil {
			return err
		}
	}
	return nil
}

func (h *modelOpenCgroup) Close() {
	h.k.mu.Lock()
	defer h.k.mu.Unlock()
	h.closed = true
}
