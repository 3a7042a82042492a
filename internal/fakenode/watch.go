package fakenode

import (
	"context"
	"sync"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
)

// Gates make calls hang, each at the gate of its place: a path of a host, or a cgroup.
type Gates struct {
	gate sync.Mutex // guards hung
	hung map[string]chan struct{}
}

// Hang makes calls at a place hang.
func (g *Gates) Hang(place string) {
	g.gate.Lock()
	defer g.gate.Unlock()
	if g.hung == nil {
		g.hung = map[string]chan struct{}{}
	}
	if g.hung[place] == nil {
		g.hung[place] = make(chan struct{})
	}
}

// Answer ends the calls that hang at a place.
func (g *Gates) Answer(place string) {
	g.gate.Lock()
	defer g.gate.Unlock()
	if gate := g.hung[place]; gate != nil {
		close(gate)
		delete(g.hung, place)
	}
}

// Wait returns true when a place answers, and false if the process has ended before.
func (g *Gates) Wait(place string, ended <-chan struct{}) bool {
	if gate := g.at(place); gate != nil {
		select {
		case <-gate:
		case <-ended:
		}
	}
	select {
	case <-ended:
		return false
	default:
		return true
	}
}

// at returns the gate of a place, nil if it answers.
func (g *Gates) at(place string) <-chan struct{} {
	g.gate.Lock()
	defer g.gate.Unlock()
	return g.hung[place]
}

// Watch plays a cgroupfs.EmptyWatch on a Kernel: it reports the end of the last process of each cgroup.
type Watch struct {
	k      *Kernel
	exited func(context.Context, *OpenCgroup)
	ended  chan string

	watched map[string]bool // guarded by Kernel.mu
}

// NewWatch replaces the watch of the kernel, as a restart of the plugin does. exited gets the cgroups that have
// become empty.
func (k *Kernel) NewWatch(exited func(context.Context, *OpenCgroup)) *Watch {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.watch = &Watch{k: k, exited: exited, ended: make(chan string, 1<<10), watched: map[string]bool{}}
	return k.watch
}

// Add watches a cgroup until it is empty.
func (w *Watch) Add(c cgroupfs.Cgroup) error {
	w.k.mu.Lock()
	defer w.k.mu.Unlock()
	if w.k.limits[c.Path()] == nil {
		return blkio.ErrGone
	}
	w.watched[c.Path()] = true
	populated, err := c.Populated()
	if err == nil && !populated {
		w.fire(c.Path())
	}
	return err
}

// fire reports a cgroup if it is watched. The caller holds Kernel.mu.
func (w *Watch) fire(cgroup string) {
	if w != nil && w.watched[cgroup] {
		delete(w.watched, cgroup)
		w.ended <- cgroup
	}
}

// Run reports the ends until ctx ends. It passes none to empty, which takes open files of a real kernel.
func (w *Watch) Run(ctx context.Context, _ func(error), _ func(*cgroupfs.OpenCgroup)) error {
	for {
		select {
		case cgroup := <-w.ended:
			w.exited(ctx, &OpenCgroup{w.k, cgroup})
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Close does nothing.
func (*Watch) Close() error { return nil }

// OpenCgroup plays a cgroupfs.OpenCgroup.
type OpenCgroup struct {
	k    *Kernel
	path string
}

// Path returns the path of the cgroup.
func (h *OpenCgroup) Path() string { return h.path }

// Lift writes lines to io.max.
func (h *OpenCgroup) Lift(lines []blkio.Line) error {
	h.k.mu.Lock()
	defer h.k.mu.Unlock()
	if h.k.limits[h.path] == nil {
		return blkio.ErrGone
	}
	for _, l := range lines {
		if err := h.k.setLimits(h.path, l.Text); err != nil {
			return err
		}
	}
	return nil
}

// Close does nothing.
func (*OpenCgroup) Close() {}
