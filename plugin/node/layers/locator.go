package layers

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nri-blkio/nri-blkio/plugin/bounded"
	"github.com/nri-blkio/nri-blkio/plugin/inventory"
)

// Locator has the locations of writable layers. It asks the runtime for them.
type Locator struct {
	// Read reads the locations for the runtime of this name and version. The layers that come with an error are used as well. If it is
	// nil, the first locations stay in use.
	Read func(ctx context.Context, runtime, version string) (inventory.Layers, error)
	// Calls has the questions, which may hang.
	Calls *bounded.Calls
	// Moved is called after the locations have changed.
	Moved func(now *Locations)

	mu        sync.Mutex // held by those that replace current
	current   atomic.Pointer[Locations]
	questions chan question         // at most one, which the runtime has not answered
	problem   atomic.Pointer[error] // of the last question of AskAgain, which is nil without one
}

// New returns a Locator with the first locations.
func New(first inventory.Layers) *Locator {
	l := &Locator{questions: make(chan question, 1)}
	l.problem.Store(new(error))
	l.current.Store(&Locations{Layers: first})
	return l
}

// question is a question to a runtime that has not reported the locations of its layers.
type question struct {
	runtime, version string
	registration     int
}

const (
	// firstWait bounds the question for which the registration waits. The session gives up on it after a
	// quarter of the runtime's own deadline.
	firstWait  = 400 * time.Millisecond
	laterWait  = 3 * time.Second // bounds the later questions
	firstPause = time.Second     // between two questions, which doubles
	// MaxPause is the longest pause between two questions.
	MaxPause = 30 * time.Second
)

// Current returns the locations that are in use.
func (l *Locator) Current() *Locations { return l.current.Load() }

// Problem returns the error of the last question that was repeated, or nil.
func (l *Locator) Problem() error { return *l.problem.Load() }

// Elsewhere returns an error with the handlers whose layers are not where the runtime is said to have them, or nil.
func (l *Locator) Elsewhere() error { return l.Current().elsewhere() }

// Compare compares the location of the layers of a handler with the root mount of a process that has executed nothing yet, once for
// each handler. The runtime behind a socket or a configuration file can be another one than that of the container. Later a tenant's
// process can have another root.
func (l *Locator) Compare(ctx context.Context, find *inventory.Finder, handler string, pid int, cgroup string) error {
	before := l.Current()
	if _, done := before.compared[handler]; done || find.ProcessMounts == nil {
		return nil
	}
	seen, disks, err := find.SeenLayer(ctx, pid, cgroup)
	if err != nil {
		return err
	}
	located := before.Of(handler)
	if len(disks) == 0 || located.Reason != "" && seen.Reason != "" || slices.Equal(disks, located.Backing(ctx, find.Storage).Disks) {
		seen = inventory.Layer{}
	}
	l.replace(before.registration, func(now *Locations) bool {
		if _, done := now.compared[handler]; done {
			return false
		}
		if now.compared = maps.Clone(now.compared); now.compared == nil {
			now.compared = map[string]inventory.Layer{}
		}
		now.compared[handler] = seen
		return true
	})
	return nil
}

// AskAtRegistration asks for the layers when the runtime registers the plugin. It waits for the answer until ctx ends,
// because the first container comes with it. A runtime that starts may answer only after the registration, so
// AskAgain repeats a question without an answer.
func (l *Locator) AskAtRegistration(ctx context.Context, runtime, version string) {
	if l.Read == nil {
		return
	}
	q := question{runtime, version, l.nextRegistration()}
	if l.ask(ctx, q, firstWait) == nil {
		return
	}
	select {
	case <-l.questions: // the question to an earlier runtime
	default:
	}
	l.questions <- q
}

// nextRegistration keeps the known layers for the registration that begins.
func (l *Locator) nextRegistration() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	next := *l.Current()
	next.registration++
	next.compared = nil
	l.current.Store(&next)
	return next.registration
}

// ask asks once, for at most d. The layers that come with an error are used until there is a better answer, and
// a late answer is used as well.
func (l *Locator) ask(ctx context.Context, q question, d time.Duration) error {
	// The bound is twice d: the configuration files are read after the runtime has not answered in time.
	return l.Calls.For(ctx, "layers", 2*d, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, d)
		defer cancel()
		fresh, err := l.Read(ctx, q.runtime, q.version)
		if !fresh.Equal(inventory.Layers{}) {
			l.replace(q.registration, func(now *Locations) bool {
				now.Layers = fresh
				return true
			})
		}
		return err
	})
}

// replace replaces the locations by a changed copy, unless the runtime has registered the plugin meanwhile, or change returns false.
func (l *Locator) replace(registration int, change func(*Locations) bool) {
	if now, isChanged := l.tryReplace(registration, change); isChanged {
		l.Moved(now)
	}
}

func (l *Locator) tryReplace(registration int, change func(*Locations) bool) (_ *Locations, isChanged bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := *l.Current()
	if now.registration != registration || !change(&now) {
		return nil, false
	}
	l.current.Store(&now)
	return &now, true
}

// AskAgain repeats the question that a runtime has not answered, until ctx ends.
func (l *Locator) AskAgain(ctx context.Context) {
	var q question
	var again <-chan time.Time
	var pause time.Duration
	for {
		select {
		case <-ctx.Done():
			return
		case q = <-l.questions:
			pause = firstPause
		case <-again:
			err := l.ask(ctx, q, laterWait)
			if l.problem.Store(&err); err == nil {
				again = nil
				continue
			}
			pause = min(2*pause, MaxPause)
		}
		again = time.After(pause)
	}
}
