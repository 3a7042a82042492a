package plugin

import (
	"context"

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
	fired    map[string]*modelHeld // what was reported, until its cgroup is removed
	reported map[string]bool       // what the plugin has been told of
}

// newWatch replaces the kernel's watch, as a restart of the plugin does.
func (k *modelKernel) newWatch() *modelWatch {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.watch = &modelWatch{k: k, ended: make(chan string, 1<<16), watched: map[string]bool{}, fired: map[string]*modelHeld{}, reported: map[string]bool{}}
	return k.watch
}

// Add is that of a cgroupfs.EmptyWatch.
func (w *modelWatch) Add(c cgroupfs.Cgroup) error {
	w.k.mu.Lock()
	defer w.k.mu.Unlock()
	if _, ok := w.k.limits[c.Path()]; !ok {
		return blkio.ErrGone
	}
	if w.k.watch == w { // else it is of a plugin that was restarted
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
	if w.watched[cgroup] {
		delete(w.watched, cgroup)
		w.ended <- cgroup
	}
}

// run tells the plugin until ctx ends.
func (w *modelWatch) run(ctx context.Context, p *Plugin) {
	for {
		select {
		case cgroup := <-w.ended:
			p.exited(ctx, w.hold(cgroup))
			w.report(cgroup)
		case <-ctx.Done():
			return
		}
	}
}

func (w *modelWatch) hold(cgroup string) *modelHeld {
	w.k.mu.Lock()
	defer w.k.mu.Unlock()
	held := &modelHeld{k: w.k, path: cgroup}
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

// isReported reports whether the plugin has been told of the end of a cgroup.
func (k *modelKernel) isReported(cgroup string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.watch.reported[cgroup]
}

// modelHeld plays a cgroupfs.Held.
type modelHeld struct {
	k    *modelKernel
	path string

	// Guarded by modelKernel.mu.

	lines  []blkio.DevLimits // that were lifted
	closed bool
}

func (h *modelHeld) Path() string { return h.path }

func (h *modelHeld) Lift(lines []blkio.DevLimits) error {
	h.k.mu.Lock()
	defer h.k.mu.Unlock()
	h.lines = lines
	if _, ok := h.k.limits[h.path]; !ok {
		return blkio.ErrGone
	}
	for _, l := range lines {
		if err := h.k.setLimits(h.path, l.String()); err != nil {
			return err
		}
	}
	return nil
}

func (h *modelHeld) Close() {
	h.k.mu.Lock()
	defer h.k.mu.Unlock()
	h.closed = true
}
