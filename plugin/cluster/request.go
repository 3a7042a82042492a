package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/nri-blkio/nri-blkio/plugin/reminder"
)

const (
	// answerTime bounds a list, and the time until the API server accepts a watch.
	answerTime = 30 * time.Second
	// watchTime is the least duration of a watch, and the most is twice that: each new watch is a
	// request. A lost connection ends all watches within a minute in any case.
	watchTime = time.Hour
	// Pauses after a request that failed, and after a watch that ended early.
	minPause, maxPause = time.Second, 30 * time.Second
)

// errLate is the error of a request that the API server has not answered in time.
var errLate = fmt.Errorf("no answer within %v", answerTime)

// requests sends the requests for the pods of the node.
type requests struct {
	source cache.ListerWatcherWithContext
	result func(error) // is told the result of each request, nil for a success
}

func (r *requests) list(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	list, err := r.source.ListWithContext(ctx, o)
	r.result(err)
	return list, err
}

func (r *requests) watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	ctx, cancel := context.WithCancel(ctx)
	late := time.AfterFunc(answerTime, cancel)
	w, err := r.source.WatchWithContext(ctx, o)
	switch isInTime := late.Stop(); {
	case err == nil && isEmpty(w):
		w.Stop()
		err = errors.New("the connection ended before an answer")
	case err != nil && !isInTime:
		err = errLate
	}
	if asksForList(err) {
		r.result(nil)
	} else {
		r.result(err)
	}
	if err != nil {
		cancel()
		return nil, err
	}
	return &watching{w, cancel}, nil
}

// isEmpty reports whether a watch is the one without events that client-go returns, instead of an
// error, if a connection ends or times out before the answer.
func isEmpty(w watch.Interface) bool {
	return reflect.TypeOf(w) == reflect.TypeOf(watch.NewEmptyWatch())
}

// asksForList reports whether the API server has answered a watch, and asks for a list: the state that
// the watch begins with is too old, or this version cannot send the initial state.
func asksForList(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)
}

// watching is a watch with its own context, which ends with it.
type watching struct {
	watch.Interface
	cancel context.CancelFunc
}

// Stop ends the watch.
func (w *watching) Stop() {
	w.Interface.Stop()
	w.cancel()
}

// watchPods watches the pods of the node until the context ends. A request that fails is sent again
// after a pause that grows to a minute.
func (p *Part) watchPods(ctx context.Context) {
	send := requests{source: p.API.Pods(), result: func(err error) { p.answered(ctx, err) }}
	lw := &cache.ListWatch{ListWithContextFunc: send.list, WatchFuncWithContext: send.watch}
	// Without a logger the reflector logs to klog, which is state of the process. The results of
	// requests are reported in another way.
	ctx = klog.NewContext(ctx, logr.Discard())
	logger := logr.Discard()
	r := cache.NewReflectorWithOptions(lw, &corev1.Pod{}, p.pods, cache.ReflectorOptions{
		Name: string(Pods), TypeDescription: string(Pods), Logger: &logger, MinWatchTimeout: watchTime,
	})
	// Not Reflector.Run, which makes all reflectors of the process that fail wait for one another.
	repeat(ctx, r.ListAndWatchWithContext)
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
