package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/nri-blkio/nri-blkio/blkio/hostfs"
	"github.com/nri-blkio/nri-blkio/plugin/reminder"
	"github.com/nri-blkio/nri-blkio/policy"
)

// pluginName is the name by which the runtime knows the plugin. With the index it is the name of the instance
// in the runtime's logs.
const pluginName = "nri-blkio"

// DefaultSocket is the runtimes' default for NRI's socket.
const DefaultSocket = "/var/run/nri/nri.sock"

// RunConfig has the address of the runtime, and the plugin's registration with it.
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
	// Distribute hands the policy that the runtime sends a pre-installed plugin to all
	// parts of this process, this plugin among them; nil: to this plugin alone.
	Distribute func(*policy.Policy)
	// Dial connects to Socket; it is net.Dialer.DialContext.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Run serves the node until ctx ends. Over a socket it reconnects for ever;
// limits stay in force while there is no connection and after the end.
func (p *Plugin) Run(ctx context.Context, cfg RunConfig) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := makeSocketDir(cfg.Socket); err != nil {
		return err
	}
	lockPath := filepath.Join(filepath.Dir(cfg.Socket), pluginName+".lock")
	if cfg.Preinstalled {
		lock, err := lockInTime(ctx, lockPath, p.log)
		if err != nil {
			return err
		}
		defer lock.Close()
		p.connection.active()
		defer p.work(ctx, cancel)()
		return p.serve(ctx, cfg)
	}
	lock, err := WaitLock(ctx, lockPath, p.log)
	if err != nil {
		return ignoreCanceled(ctx, err)
	}
	defer lock.Close()
	p.connection.active()
	defer p.work(ctx, cancel)()
	return reconnect(ctx, p.log, "Not connected to the runtime; limits stay in force", func() error {
		err := p.recovery.Guarded(func() error { return p.serve(ctx, cfg) })
		p.settle()
		p.connection.lost(err)
		return err
	})
}

// registrationPatience is the time after which the work beside the registration begins without it, as in an instance on
// standby.
const registrationPatience = 5 * time.Second

// AwaitRegistration waits until the runtime has registered the plugin, until the first try has failed, for some seconds, or
// until ctx ends. Containers start without limits before the registration, so all that it does not need comes after it.
func (p *Plugin) AwaitRegistration(ctx context.Context) {
	select {
	case <-p.settled:
	case <-time.After(registrationPatience):
	case <-ctx.Done():
	}
}

// work has the node's state work beside the events, after the registration. The function that it returns ends
// that, and returns when it has ended: only then may another instance have the lock.
func (p *Plugin) work(ctx context.Context, cancel context.CancelFunc) (end func()) {
	var work sync.WaitGroup
	after := func(run func(context.Context)) {
		work.Go(func() {
			p.AwaitRegistration(ctx)
			run(ctx)
		})
	}
	after(p.node.Run)
	if p.weights != nil {
		after(p.weights.Run)
	}
	if p.bursts != nil {
		after(p.bursts.Run)
	}
	return func() {
		cancel()
		work.Wait()
	}
}

// makeSocketDir makes the directory of the default socket, with the mode that the
// runtime gives it: on a fresh node the plugin may be first. Another directory must
// be there, since a mistyped one would be waited for forever.
func makeSocketDir(socket string) error {
	dir := filepath.Dir(socket)
	if socket == DefaultSocket {
		return hostfs.MakeDir(dir)
	}
	if err := hostfs.FindDir(dir); err != nil {
		return fmt.Errorf("find the directory of the socket: %w", err)
	}
	return nil
}

// reconnect keeps a session up until ctx ends, with a growing pause between tries. It
// logs message when one ends, and again while the reason lasts.
func reconnect(ctx context.Context, logger logrus.FieldLogger, message string, serve func() error) error {
	fresh := wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 7, Cap: 5 * time.Second}
	backoff := fresh
	var problem reminder.Reminder
	for {
		began := time.Now()
		err := serve()
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, errReregister) || errors.Is(err, errReplaced) {
			logger.Infof("Registering again: %v", err)
			continue
		}
		if time.Since(began) > 10*time.Second {
			backoff, problem = fresh, reminder.Reminder{}
		}
		pause := backoff.Step()
		log := logger.WithError(err).WithField("retry", pause.Round(time.Millisecond).String())
		level := logrus.DebugLevel
		if problem.Due(time.Now(), err) { // a runtime can be away for days
			level = logrus.WarnLevel
		}
		log.Log(level, message)
		if reminder.Sleep(ctx, pause); ctx.Err() != nil {
			return nil
		}
	}
}

// serve is one session, from registration until the connection ends.
func (p *Plugin) serve(ctx context.Context, cfg RunConfig) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := p.connect(ctx, cfg)
	if err != nil {
		return ignoreCanceled(ctx, fmt.Errorf("connect to NRI: %w", err))
	}
	if cfg.Preinstalled && listsNothing(s.runtime) {
		s.stub.Stop()
		return errListsNothing
	}
	if found := p.connection.other.found; found != nil {
		p.connection.notKubelets(found, s.runtime)
	} else {
		p.connection.connected(s.runtime)
	}
	defer p.connection.lost(errDisconnected)
	outdated := func() bool { return failsRequests(p.events.Policy()) != s.failure.GetFailRequest() }
	return s.wait(ctx, p.reloaded, outdated, s.checkRuntime)
}

// ignoreCanceled makes a stop that was asked for no error.
func ignoreCanceled(ctx context.Context, err error) error {
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		return nil
	}
	return err
}

// lockPatience is how long a pre-installed plugin waits for its predecessor to end. The
// runtime waits 5 s for the plugin's registration, which begins afterwards, and starts
// it only once (docs/reference/quirks.md).
const lockPatience = 3 * time.Second

// lockPoll is how soon a standby notices that the active instance has ended.
const lockPoll = 500 * time.Millisecond

// WaitLock stands by until no other process has the lock of this file. The lock ends
// with the process, or as the file is closed.
func WaitLock(ctx context.Context, path string, log logrus.FieldLogger) (io.Closer, error) {
	isLogged := false
	for {
		f, err := hostfs.TryLock(path)
		if !errors.Is(err, hostfs.ErrLocked) {
			return f, err
		}
		if !isLogged {
			log.WithField("lock", path).Warn("Standing by: another instance serves this node")
			isLogged = true
		}
		if reminder.Sleep(ctx, lockPoll); ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
}

// lockInTime is WaitLock with an end: hostfs.ErrLocked after lockPatience.
func lockInTime(ctx context.Context, path string, log logrus.FieldLogger) (io.Closer, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, lockPatience, hostfs.ErrLocked)
	defer cancel()
	f, err := WaitLock(ctx, path, log)
	if err != nil && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return f, err
}
