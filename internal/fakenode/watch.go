package fakenode

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

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

// AnswerAll ends all calls that hang.
func (g *Gates) AnswerAll() {
	g.gate.Lock()
	defer g.gate.Unlock()
	for _, gate := range g.hung {
		close(gate)
	}
	clear(g.hung)
}

// Hangs reports whether calls at a place hang.
func (g *Gates) Hangs(place string) bool { return g.at(place) != nil }

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
	failed chan error

	// Guarded by Kernel.mu.

	watched  map[string]bool
	held     map[string]*OpenCgroup // those that were reported, until they are removed
	reported map[string]bool        // the cgroups whose report the plugin has had
	fired    int                    // number of reports so far
}

// NewWatch replaces the watch of the kernel, as a restart of the plugin does. exited gets the cgroups that have
// become empty.
func (k *Kernel) NewWatch(exited func(context.Context, *OpenCgroup)) *Watch {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.watch = &Watch{k: k, exited: exited, ended: make(chan string, 1<<16), failed: make(chan error, 1), watched: map[string]bool{}, held: map[string]*OpenCgroup{}, reported: map[string]bool{}}
	return k.watch
}

// Add watches a cgroup until it is empty.
func (w *Watch) Add(c cgroupfs.Cgroup) error {
	w.k.mu.Lock()
	defer w.k.mu.Unlock()
	if w.k.limits[c.Path()] == nil {
		return blkio.ErrGone
	}
	if w.k.watch != w { // it belongs to a process that has ended
		return nil
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
	if w == nil {
		return
	}
	if w.k.limits[cgroup] == nil {
		delete(w.held, cgroup)
	}
	if !w.watched[cgroup] {
		return
	}
	delete(w.watched, cgroup)
	if w.fired++; w.k.Late == 0 || w.fired%4 > 0 {
		w.ended <- cgroup
		return
	}
	time.AfterFunc(w.k.Late, func() { w.ended <- cgroup })
}

// hold opens a cgroup whose end is reported.
func (w *Watch) hold(cgroup string) *OpenCgroup {
	w.k.mu.Lock()
	defer w.k.mu.Unlock()
	h := &OpenCgroup{k: w.k, path: cgroup}
	if w.k.limits[cgroup] != nil {
		w.held[cgroup] = h
	}
	return h
}

func (w *Watch) report(cgroup string) {
	w.k.mu.Lock()
	defer w.k.mu.Unlock()
	w.reported[cgroup] = true
}

// IsReported reports whether the plugin has had a report of the end of a cgroup.
func (k *Kernel) IsReported(cgroup string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.watch.reported[cgroup]
}

// PutBack returns a limit that a cgroup has again after the plugin has lifted it and closed the cgroup, "" if there is none.
func (k *Kernel) PutBack(cgroup string) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	h := k.watch.held[cgroup]
	if h == nil || !h.closed {
		return ""
	}
	for _, l := range h.lifted {
		for key, rate := range k.limits[cgroup][l.Dev] {
			if slices.Contains(strings.Fields(l.Text), blkio.Key(key).String()+"=max") && rate != blkio.Unset && rate != blkio.Max {
				return l.Dev.String() + " " + k.limits[cgroup][l.Dev].String()
			}
		}
	}
	return ""
}

// Run reports the ends until ctx ends. It passes none to empty, which takes open files of a real kernel.
func (w *Watch) Run(ctx context.Context, _ func(error), _ func(*cgroupfs.OpenCgroup)) error {
	for {
		select {
		case cgroup := <-w.ended:
			w.exited(ctx, w.hold(cgroup))
			w.report(cgroup)
		case err := <-w.failed:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// FailWatch ends the watch of the kernel with an error.
func (k *Kernel) FailWatch(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.watch.failed <- err
}

// Close does nothing.
func (*Watch) Close() error { return nil }

// OpenCgroup plays a cgroupfs.OpenCgroup.
type OpenCgroup struct {
	k    *Kernel
	path string

	// Guarded by Kernel.mu.

	lifted []blkio.Line
	closed bool
}

// Path returns the path of the cgroup.
func (h *OpenCgroup) Path() string { return h.path }

// Lift writes lines to io.max.
func (h *OpenCgroup) Lift(lines []blkio.Line) error {
	h.k.mu.Lock()
	defer h.k.mu.Unlock()
	h.lifted = lines
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

// Close closes the cgroup.
func (h *OpenCgroup) Close() {
	h.k.mu.Lock()
	defer h.k.mu.Unlock()
	h.closed = true
}
