package plugin

import (
	"context"
	"time"
)

// passDeadline bounds the work on one pod. A write to a dying disk can hang
// in the kernel; the other pods must not wait for it.
const passDeadline = 5 * time.Second

// reconcile keeps cgroups and desires equal until ctx ends: the pods that an
// event touched at once, all of them every resync.
func (p *Plugin) reconcile(ctx context.Context) {
	tick := time.NewTicker(p.resync)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
			for _, pod := range p.takeDirty() {
				p.reconcilePod(ctx, pod)
			}
		case <-tick.C:
			p.reconcileAll(ctx)
		}
	}
}

// reconcileAll looks at every pod: limits edited behind our back, a disk that
// left and came back, a weight that systemd put back.
func (p *Plugin) reconcileAll(ctx context.Context) {
	p.weight.look()
	for _, pod := range p.takeAll() {
		p.warnUnmatched(pod)
		p.reconcilePod(ctx, pod)
	}
}

func (p *Plugin) takeDirty() []*pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]*pod, 0, len(p.dirty))
	for id := range p.dirty {
		if pod := p.pods[id]; pod != nil {
			out = append(out, pod)
		}
	}
	clear(p.dirty)
	return out
}

func (p *Plugin) takeAll() []*pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]*pod, 0, len(p.pods))
	for _, pod := range p.pods {
		out = append(out, pod)
	}
	clear(p.dirty)
	return out
}

// reconcilePod never fails: what does not work is logged, recorded on the
// cgroup and tried again with the next pass.
func (p *Plugin) reconcilePod(ctx context.Context, pod *pod) {
	err := bounded(ctx, passDeadline, func(ctx context.Context) error {
		return p.apply(ctx, pod, nil)
	})
	if err != nil && ctx.Err() == nil {
		p.log.WithError(err).WithField("pod", pod.namespace+"/"+pod.name).Error("Limits are not all in force, trying again")
	}
}

// warnUnmatched tells of targets that no container of a running pod has. It
// waits for the first full pass, since containers come one by one.
func (p *Plugin) warnUnmatched(pod *pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if pod.warned || len(pod.granted()) == 0 {
		return
	}
	pod.warned, pod.plan = true, nil
	for _, w := range pod.request.Unmatched(pod.seen()) {
		p.log.WithField("pod", pod.namespace+"/"+pod.name).Warn(w)
	}
}
