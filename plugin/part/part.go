// Package part runs the parts of "nri-blkio run" that share a process: a policy reaches each of them, their metrics
// are served together, and each publishes its state. A panic in one part keeps no other from its work.
package part

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/nri-blkio/nri-blkio/plugin/recovery"
	"github.com/nri-blkio/nri-blkio/policy"
)

// Part is one part of run.
type Part struct {
	Metrics []prometheus.Collector
	Reload  func(*policy.Policy)        // puts a new policy into force
	Run     func(context.Context) error // runs until the context ends
}

// Parts are the parts of one process.
type Parts []Part

// Guarded returns parts whose Reload recovers from panics, so that one part keeps no other from a policy.
func (ps Parts) Guarded(r *recovery.Recovery) Parts {
	var out Parts
	for _, p := range ps {
		reload := p.Reload
		p.Reload = func(pol *policy.Policy) {
			r.Step("put a policy into force", func() { reload(pol) })
		}
		out = append(out, p)
	}
	return out
}

// Reload passes a new policy to all parts.
func (ps Parts) Reload(p *policy.Policy) {
	for _, part := range ps {
		part.Reload(p)
	}
}

// Collectors returns the metrics of the parts, and of the process.
func (ps Parts) Collectors(r *recovery.Recovery) []prometheus.Collector {
	out := []prometheus.Collector{r}
	for _, part := range ps {
		for _, c := range part.Metrics {
			out = append(out, r.Collector(c))
		}
	}
	return out
}

// Run runs all parts, and what works beside them, until ctx ends, or until one fails. Then it ends the others, and returns the
// error.
func (ps Parts) Run(ctx context.Context, beside ...func(context.Context) error) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, run := range beside {
		group.Go(func() error { return run(ctx) })
	}
	for _, part := range ps {
		group.Go(func() error { return part.Run(ctx) })
	}
	return group.Wait()
}
