package plugin

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// pluginName is what the runtime knows us by; with the index it is the
// instance's name in its logs.
const pluginName = "nri-blkio"

// RunConfig says how to reach the runtime.
type RunConfig struct {
	// Socket is NRI's socket. The node-wide lock lives next to it.
	Socket string
	// Index orders the plugins, "00" to "99". Late is right: only then are
	// the mounts of other plugins seen.
	Index string
	// Preinstalled: the runtime started this process from /opt/nri/plugins
	// and gave it a connection. It starts a new one when it restarts itself,
	// so a lost connection ends the process.
	Preinstalled bool
}

// Run serves the node until ctx ends. Over a socket it reconnects for ever;
// limits stay in force while there is no connection and after the end.
func (p *Plugin) Run(ctx context.Context, cfg RunConfig) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	lockPath := filepath.Join(filepath.Dir(cfg.Socket), pluginName+".lock")
	if cfg.Preinstalled {
		// Registration has seconds, there is no time to stand by.
		lock, err := tryLock(lockPath)
		if err != nil {
			return err
		}
		defer lock.Close()
		p.unsynced.Store(true)
		defer p.work(ctx, cancel)()
		return p.serve(ctx, cfg)
	}
	lock, err := WaitLock(ctx, lockPath, p.log)
	if err != nil {
		return ignoreCanceled(ctx, err)
	}
	defer lock.Close()
	defer p.work(ctx, cancel)()
	return p.reconnect(ctx, cfg)
}

// work runs the parts that work beside the events. The function that it returns ends
// them and waits until they write no more: only then may another instance have the
// lock. A call that hangs in the kernel cannot be waited for.
func (p *Plugin) work(ctx context.Context, cancel context.CancelFunc) (end func()) {
	var parts sync.WaitGroup
	parts.Go(func() { p.watchExits(ctx) })
	parts.Go(func() { p.reconcile(ctx) })
	return func() {
		cancel()
		parts.Wait()
		p.passes.wait(passDeadline)
		p.calls.wait(passDeadline)
	}
}

// reconnect keeps a session up, with a growing pause between tries.
func (p *Plugin) reconnect(ctx context.Context, cfg RunConfig) error {
	fresh := wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 7, Cap: 5 * time.Second}
	backoff, said := fresh, ""
	for {
		began := time.Now()
		err := p.serve(ctx, cfg)
		if ctx.Err() != nil {
			return nil
		}
		if time.Since(began) > 10*time.Second {
			backoff, said = fresh, ""
		}
		pause := backoff.Step()
		// The same reason is told once: a runtime can be away for days.
		log := p.log.WithError(err).WithField("retry", pause.Round(time.Millisecond).String())
		if err.Error() != said {
			log.Warn("Not connected to the runtime, limits stay in force")
			said = err.Error()
		} else {
			log.Debug("Not connected to the runtime, limits stay in force")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// serve is one session, from registration until the connection ends.
func (p *Plugin) serve(ctx context.Context, cfg RunConfig) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, ended, err := p.connect(ctx, cfg)
	if err != nil {
		return ignoreCanceled(ctx, fmt.Errorf("connect to NRI: %w", err))
	}
	p.metrics.connected.Store(true)
	defer p.metrics.connected.Store(false)
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		s.stub.Stop()
		return nil
	}
}

// ignoreCanceled makes a stop that was asked for no error.
func ignoreCanceled(ctx context.Context, err error) error {
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		return nil
	}
	return err
}
