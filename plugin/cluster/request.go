package cluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/nri-blkio/nri-blkio/plugin/reminder"
)

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

// watchPods watches the pods of the node until the context ends. A request that fails is sent again
// after a pause that grows to a minute.
func (p *Part) watchPods(ctx context.Context) {
	f := follower{Part: p, ref: Ref{Kind: Pods}, to: p.pods}
	repeat(ctx, f.watchOnce)
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
