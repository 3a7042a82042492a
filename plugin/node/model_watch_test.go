package node

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/nri-blkio/nri-blkio/internal/fakenode"
)

// modelLate is the delay of the watch for some cgroups. StopContainer comes before it.
const modelLate = 200 * time.Millisecond

// watchExits connects a plugin's exits to the watch of the kernel, and returns a function that ends that. Exits that the
// watch has not reported by then are lost.
func (r *modelRuntime) watchExits(ctx context.Context, n *Node) (stop func()) {
	watch := r.k.NewWatch(func(_ context.Context, held *fakenode.OpenCgroup) { n.exits.ends.Exited(ctx, held) })
	exitHandler{n}.Watching(watch)
	until, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = watch.Run(until, nil, nil) })
	return func() {
		cancel()
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
