package plugin

import (
	"context"
	"errors"
	"net"
	"strings"
	"time"

	"github.com/containerd/nri/pkg/stub"
	"github.com/sirupsen/logrus"

	"github.com/nri-blkio/nri-blkio/blkio/hostfs"
)

var (
	// errDisconnected ends a session whose runtime closed the connection.
	errDisconnected = errors.New("the runtime closed the connection")
	// errNotSynchronized ends a session that gets no events. A message of NRI holds 4 MiB,
	// and nri up to 0.12.5 puts at least four containers into one, of any size.
	errNotSynchronized = errors.New("synchronize: the runtime sent no list of containers: " +
		"their list does not fit NRI's messages (five containers with 1 MiB of environment variables each are enough), " +
		"takes longer than the runtime's plugin_request_timeout, or the runtime does not know this kind of plugin; " +
		"its log tells which, and docs/reference/quirks.md what helps")
)

// errListsNothing ends a pre-installed plugin on containerd 1. Without the list it could not know all that runs.
// Configure does not return it, because containerd 1 ends when a plugin that it starts is not configured.
var errListsNothing = errors.New("containerd 1 sends a pre-installed plugin no list of containers: " +
	"pre-installed, the plugin needs containerd 2.0 or later (use the DaemonSet or the systemd unit)")

// listsNothing reports whether a runtime sends a plugin that it starts itself no list of containers.
func listsNothing(runtime string) bool {
	version, isContainerd := strings.CutPrefix(runtime, "containerd ")
	return isContainerd && strings.HasPrefix(strings.TrimPrefix(version, "v"), "1.")
}

// listPatience is how long a registered plugin waits for the runtime's list of containers.
// nri before 0.12.0 leaves a plugin connected that it could not synchronize, and sends
// it no event (https://github.com/containerd/nri/pull/279).
const listPatience = 30 * time.Second

// link is one connection to the runtime.
type link struct {
	stub   stub.Stub
	ended  chan error    // holds the end of the connection
	synced chan struct{} // holds a token once the runtime has listed its containers
	socket socket
}

// socket is NRI's socket, as it was before the connection to it.
type socket struct {
	path  string
	owner hostfs.Version // zero if it is not known, and for the connection of a pre-installed plugin
}

// isReplaced reports whether another runtime has taken the socket since. A runtime removes it, and makes a new one.
func (s *socket) isReplaced() bool {
	now, err := hostfs.VersionOf(s.path)
	return err == nil && s.owner != (hostfs.Version{}) && now != s.owner
}

func newLink() link {
	return link{ended: make(chan error, 1), synced: make(chan struct{}, 1)}
}

// register connects to the runtime, registers handlers for its events, and returns once
// they are configured.
func (l *link) register(ctx context.Context, cfg RunConfig, name string, handlers any, log logrus.FieldLogger, opts ...stub.Option) error {
	opts = append(opts, stub.WithLogger(stubLogger{log}))
	if !cfg.Preinstalled {
		l.socket.path = cfg.Socket
		l.socket.owner, _ = hostfs.VersionOf(cfg.Socket) // without it the connection fails as well
		opts = append(opts, stub.WithPluginName(name), stub.WithPluginIdx(cfg.Index),
			stub.WithSocketPath(cfg.Socket), stub.WithDialer(cfg.dialer(ctx)))
	}
	st, err := stub.New(handlers, opts...)
	if err != nil {
		return err
	}
	l.stub = st

	started := make(chan error, 1)
	go func() {
		if err := st.Start(ctx); err != nil {
			started <- err
			return
		}
		started <- nil
		st.Wait()
		l.ended <- errDisconnected
	}()
	// Start waits for Configure without a deadline of its own, and holds a lock that its handling of a lost
	// connection needs. A runtime that dies in between leaves it there for ever (nri v0.12.5,
	// pkg/stub/stub.go). Then that goroutine is lost, and the dialer's connection is closed.
	select {
	case err := <-started:
		return err
	case <-time.After(2 * stub.DefaultRegistrationTimeout):
		return errors.New("register: timed out waiting for Configure")
	case <-ctx.Done():
		return ctx.Err()
	}
}

// wait returns why the connection ended, or nil when ctx ends. A token in reloaded has
// it ask outdated, which reports whether the registration has to be made anew. Once the runtime has listed its
// containers, an error of check, which may be nil, ends the connection.
func (l *link) wait(ctx context.Context, reloaded <-chan struct{}, outdated func() bool, check func() error) error {
	overdue, compare := time.NewTimer(listPatience), time.NewTicker(compareEvery)
	defer overdue.Stop()
	defer compare.Stop()
	isListed := false
	for {
		select {
		case <-l.synced:
			isListed = true
		case <-overdue.C:
			if !isListed {
				l.stub.Stop()
				return errNotSynchronized
			}
		case err := <-l.ended:
			if !isListed && len(l.synced) == 0 {
				return errNotSynchronized
			}
			return err
		case <-compare.C:
			if !isListed || check == nil {
				continue
			}
			if err := check(); err != nil {
				l.stub.Stop()
				return err
			}
		case <-reloaded:
			if outdated() {
				l.stub.Stop()
				return errReregister
			}
		case <-ctx.Done():
			l.stub.Stop()
			return nil
		}
	}
}

// dialer connects for as long as ctx lasts. A session that was given up must not
// stay registered: the runtime would wait for the answers of two.
func (c *RunConfig) dialer(ctx context.Context) func(string) (net.Conn, error) {
	return func(path string) (net.Conn, error) {
		conn, err := c.Dial(ctx, "unix", path)
		if err == nil {
			context.AfterFunc(ctx, func() { conn.Close() })
		}
		return conn, err
	}
}

// stubLogger writes the stub's messages to the plugin's log, one level lower, because they help only to debug
// NRI.
type stubLogger struct{ log logrus.FieldLogger }

func (l stubLogger) Debugf(_ context.Context, format string, args ...any) {
	l.log.Debugf("nri: "+format, args...)
}

func (l stubLogger) Infof(_ context.Context, format string, args ...any) {
	l.log.Debugf("nri: "+format, args...)
}

func (l stubLogger) Warnf(_ context.Context, format string, args ...any) {
	l.log.Warnf("nri: "+format, args...)
}

func (l stubLogger) Errorf(_ context.Context, format string, args ...any) {
	l.log.Errorf("nri: "+format, args...)
}
