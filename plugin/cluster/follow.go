package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/nri-blkio/nri-blkio/plugin/reminder"
)

const (
	// Requests for single objects, on average and at once. A node that starts with 250 pods and 1,000
	// claims sends about 1,000, a usual one about 20. With the limits of storage drivers a claim has two requests more.
	requestsPerSecond = 20
	requestsAtOnce    = 50
	// absentPause is the time after which a kind that the API server does not serve is asked for again.
	absentPause = 10 * time.Minute
)

// follower watches one object, or all pods of the node. It does what a reflector of client-go does, with half of its memory: a
// node can have a thousand of them, and a reflector keeps four goroutines, and a buffer of the size of
// the largest object that it has seen. A reflector of pods has a whole list in memory.
type follower struct {
	*Part
	ref     Ref
	object  *object // nil for the pods
	to      target
	version string // from which the next watch continues; "" if the state has to be read
}

// target receives what a follower reads.
type target interface {
	// keep returns what is kept of an object.
	keep(runtime.Object) any
	// setAll sets the state to what is kept of all objects, by NAMESPACE/NAME.
	setAll(map[string]any)
	// change sets what is kept of one object, or (nil) removes it.
	change(key string, value any)
}

func (p *Part) follow(ctx context.Context, o *object) {
	f := follower{Part: p, ref: o.ref, object: o, to: o}
	repeat(ctx, func(ctx context.Context) error {
		err := f.watchOnce(ctx)
		if apierrors.IsNotFound(err) {
			// The API server does not serve this kind: there can be no such object.
			f.noted(ctx, nil)
			o.set(nil)
			reminder.Sleep(ctx, absentPause)
			return nil
		}
		return err
	})
}

func (f *follower) watchOnce(ctx context.Context) error {
	if f.version == "" && f.listsFirst.Load() {
		if err := f.list(ctx); err != nil {
			return err
		}
	}
	events, err := f.open(ctx)
	switch {
	case err == nil:
	case f.version == "" && asksForList(err):
		f.listsFirst.Store(true) // this version cannot send the initial state with a watch
		return err
	case asksForList(err):
		f.version = ""
		return err
	default:
		return err
	}
	defer events.Close()
	return f.read(events)
}

// ready waits until a request may be sent. The one for the pods waits for no other, see contact.
func (f *follower) ready(ctx context.Context) error {
	if f.object == nil {
		return nil
	}
	if err := f.contact.wait(ctx); err != nil {
		return err
	}
	if f.ref.Kind == Namespaces {
		return f.limit.Wait(ctx)
	}
	return f.limit.wait(ctx, f.object.tenant)
}

func (f *follower) noted(ctx context.Context, err error) {
	switch {
	case f.object == nil:
		f.answered(ctx, err)
	case ctx.Err() == nil:
		f.object.failed(err)
		f.status.count(err)
	}
}

func (f *follower) list(ctx context.Context) error {
	if err := f.ready(ctx); err != nil {
		return err
	}
	values := map[string]any{}
	version, err := f.API.List(ctx, f.ref, func(o runtime.Object) {
		if object, err := meta.Accessor(o); err == nil {
			values[keyOf(object)] = f.to.keep(o)
		}
	})
	f.noted(ctx, err)
	if err != nil {
		return err
	}
	f.version = version
	f.to.setAll(values)
	return nil
}

// open begins a watch. The request is sent by another goroutine, because it needs a large stack, and
// this one waits for events for hours.
func (f *follower) open(ctx context.Context) (events Events, err error) {
	if err := f.ready(ctx); err != nil {
		return nil, err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		events, err = f.API.Watch(ctx, f.ref, f.version)
	}()
	<-done
	if asksForList(err) {
		f.noted(ctx, nil)
	} else {
		f.noted(ctx, err)
	}
	return events, err
}

// read reads a watch to its end. If it begins with the initial state, that is complete, and so the
// absence of an object is known, with a bookmark.
func (f *follower) read(events Events) error {
	initial := map[string]any{}
	isInitial := f.version == ""
	for {
		e, err := events.Next()
		if err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if e.Type == watch.Error {
			err := apierrors.FromObject(e.Object)
			if asksForList(err) {
				f.version = ""
			}
			return err
		}
		object, err := meta.Accessor(e.Object)
		if err != nil {
			return err
		}
		key := keyOf(object)
		switch {
		case e.Type == watch.Bookmark && isInitial && object.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true":
			f.to.setAll(initial)
			isInitial, initial = false, nil
		case e.Type == watch.Bookmark:
		case isInitial && e.Type == watch.Deleted:
			delete(initial, key)
		case isInitial:
			initial[key] = f.to.keep(e.Object)
		case e.Type == watch.Deleted:
			f.to.change(key, nil)
		default:
			f.to.change(key, f.to.keep(e.Object))
		}
		if !isInitial {
			f.version = object.GetResourceVersion()
		}
	}
}

func keyOf(o metav1.Object) string { return o.GetNamespace() + "/" + o.GetName() }

const (
	// answerTime bounds a list of one object, and the time until the API server accepts a watch.
	answerTime = 30 * time.Second
	// podsTime bounds the list of all pods. The API server ends a request after the same time.
	podsTime = time.Minute
	// watchTime is the least duration of a watch, and the most is twice that: each new watch is a
	// request. A lost connection ends all watches within a minute in any case.
	watchTime = time.Hour
	// Pauses after a request that failed, and after a watch that ended early.
	minPause, maxPause = time.Second, 30 * time.Second
)

// errLate is the error of a request that the API server has not answered in time.
var errLate = fmt.Errorf("no answer within %v", answerTime)

// asksForList reports whether the API server has answered a watch, and asks for a list: the state that
// the watch begins with is too old, or this version cannot send the initial state.
func asksForList(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)
}

// repeat calls fn again and again until the context ends. A call that fails or ends early is followed
// by a pause, which grows to a minute and more.
func repeat(ctx context.Context, fn func(context.Context) error) {
	for pause := time.Duration(0); ctx.Err() == nil; {
		start := time.Now()
		if err := fn(ctx); err == nil && time.Since(start) > minPause {
			pause = 0 // it ended as it should
			continue
		}
		pause = min(max(2*pause, minPause), maxPause)
		reminder.Sleep(ctx, pause+rand.N(pause))
	}
}

// limit bounds the requests for single objects. Each pod needs its namespace, which does not wait for others. The claims of one
// tenant's pods can be thousands, so of each tenant one request at a time waits for the limiter, which takes turns then.
type limit struct {
	*rate.Limiter

	mu    sync.Mutex       // guards the field below
	turns map[string]*turn // by namespace, of those with a waiting request
}

// turn is held by the one request of a tenant that waits for the limiter.
type turn struct {
	held    chan struct{} // has one slot
	waiting int           // requests, with the one that holds it
}

func newLimit() *limit {
	return &limit{Limiter: rate.NewLimiter(requestsPerSecond, requestsAtOnce), turns: map[string]*turn{}}
}

func (l *limit) wait(ctx context.Context, tenant string) error {
	t := l.join(tenant)
	defer l.leave(tenant)
	select {
	case t.held <- struct{}{}:
		defer func() { <-t.held }()
		return l.Wait(ctx)
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *limit) join(tenant string) *turn {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.turns[tenant]
	if t == nil {
		t = &turn{held: make(chan struct{}, 1)}
		l.turns[tenant] = t
	}
	t.waiting++
	return t
}

func (l *limit) leave(tenant string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t := l.turns[tenant]; t.waiting > 1 {
		t.waiting--
	} else {
		delete(l.turns, tenant)
	}
}
