package plugin

import (
	"context"
	"errors"
	"fmt"

	"github.com/sirupsen/logrus"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/plugin/enforce"
	"github.com/nri-blkio/nri-blkio/policy"
)

// enforcer returns what puts plans into force.
func (p *Plugin) enforcer() *enforce.Enforcer {
	return &enforce.Enforcer{Cgroups: p.cgroups, Gone: func(d blkio.Dev) bool { return p.storage.Device(d).Missing }}
}

// apply brings the cgroups of a group into line. With only set, of the
// containers only that one is looked at: the start of a container must not
// wait for its neighbours. It waits for another writer until ctx ends.
func (p *Plugin) apply(ctx context.Context, g *group, only string) error {
	if !p.take(g, ctx.Done()) {
		return fmt.Errorf("wait for a write to the pod's cgroups: %w", ctx.Err())
	}
	defer p.release(g)
	return p.write(g, only)
}

// write applies the pod's settings; the caller holds the pod's token.
func (p *Plugin) write(g *group, only string) error {
	targets := p.planFor(g)
	var errs []error
	p.enforcer().Apply(targets, only, func(r *enforce.Result) {
		p.tell(r)
		switch c := p.find(g, r.Target.Container); {
		case c != nil:
			errs = append(errs, p.written(c, r, targets.Pod.Want, only != ""))
		case r.Target.Container == "":
			errs = append(errs, r.Err)
		}
	})
	return errors.Join(errs...)
}

// find returns a container of a group by its ID, and nil if it has left.
func (p *Plugin) find(g *group, id string) *container {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, pod := range g.pods {
		if c := pod.containers[id]; c != nil {
			return c
		}
	}
	return nil
}

// written draws the conclusions from a write to the cgroup of a container.
func (p *Plugin) written(c *container, r *enforce.Result, pod policy.Settings, starting bool) error {
	err, gone := r.Err, errors.Is(r.Err, blkio.ErrGone)
	if r.Looked {
		p.identify(c, r.Cgroup)
	}
	if gone {
		err = nil
	} else {
		p.findProcess(c)
	}
	if r.Looked {
		p.hold(c, r.Cgroup, r.Want, pod)
	}
	if starting {
		return err // see isUnplaced
	}
	return errors.Join(err, p.checkPlaced(c, r, gone))
}

// tell logs and counts what was written.
func (p *Plugin) tell(r *enforce.Result) {
	if r.Unreadable != nil {
		p.log.WithError(r.Unreadable).WithField("cgroup", r.Target.Cgroup).Warn("Replacing an unreadable record")
	}
	if len(r.Written) == 0 {
		return
	}
	pod := r.Target.Record.Namespace + "/" + r.Target.Record.Pod
	for _, l := range r.Written {
		fields := logrus.Fields{"pod": pod, "cgroup": r.Target.Cgroup, l.File: l.Text}
		if name := r.Target.Record.Container; name != "" {
			fields["container"] = name
		}
		message := "Wrote limit"
		if l.File == blkio.IOMax {
			p.metrics.written.Add(1)
		} else {
			message = "Wrote weight"
		}
		p.log.WithFields(fields).Info(message)
	}
}
