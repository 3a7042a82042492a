package plugin

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
)

// A pod without annotations that no rule gives a class is not known. When a new policy has a class
// for it, the runtime has to list what runs. It does so for a plugin that registers. The session
// stays as it is: without it, containers would be created unlimited. So a second plugin registers,
// gets the list, and leaves. The runtime sends no event while it lists.

// listerName is the plugin name of the second registration.
const listerName = pluginName + "-list"

// lister is a connection for the list of what runs.
type lister struct {
	link
	p *Plugin
}

// The lister needs one event to be a plugin: that which it can get least often.
var (
	_ stub.SynchronizeInterface = (*lister)(nil)
	_ stub.RemovePodInterface   = (*lister)(nil)
)

// Synchronize receives the pods and containers that run on the node.
func (l *lister) Synchronize(_ context.Context, pods []*api.PodSandbox, ctrs []*api.Container) ([]*api.ContainerUpdate, error) {
	sandboxes, containers := described(pods, ctrs)
	l.p.events.Adopt(sandboxes, containers)
	l.told()
	return nil, nil
}

// RemovePodSandbox does nothing: the session gets the event as well.
func (l *lister) RemovePodSandbox(context.Context, *api.PodSandbox) error { return nil }

// listing has the runtime list what runs whenever a policy may concern pods that are not known. The
// function that it returns ends that.
func (p *Plugin) listing(ctx context.Context, cancel context.CancelFunc, cfg RunConfig) (end func()) {
	var work sync.WaitGroup
	work.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-p.unlisted:
			}
			if err := p.list(ctx, cfg); err != nil && ctx.Err() == nil {
				p.log.WithError(err).Warn("Listing the pods of a new policy failed, retrying")
				time.AfterFunc(listPause, func() { wakeUp(p.unlisted) })
			}
		}
	})
	return func() {
		cancel()
		work.Wait()
	}
}

const (
	// listPause is the time from a failed list to the next try.
	listPause = 5 * time.Second
	// listLinger is how long the lister stays after the list, for its answer.
	listLinger = time.Second
)

// list has the runtime list what runs, once.
func (p *Plugin) list(ctx context.Context, cfg RunConfig) error {
	ctx, cancel := context.WithTimeout(ctx, listPatience)
	defer cancel()
	l := &lister{link: newLink(), p: p}
	if err := l.register(ctx, cfg, listerName, l, p.log); err != nil {
		return err
	}
	defer l.stub.Stop()
	select {
	case <-l.synced:
	case err := <-l.ended:
		return err
	case <-ctx.Done():
		return errors.New("the runtime sent no list of containers")
	}
	// The stub sends the answer after Synchronize has returned. If it is stopped before, the runtime
	// logs an error.
	select {
	case err := <-l.ended:
		p.log.WithError(err).Debug("The runtime has closed the connection for the list")
	case <-ctx.Done():
	case <-time.After(listLinger):
	}
	return nil
}
