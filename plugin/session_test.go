package plugin

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	"github.com/sirupsen/logrus/hooks/test"
	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/blkio/hostfs"
	"github.com/nri-blkio/nri-blkio/plugin/health"
	"github.com/nri-blkio/nri-blkio/plugin/node"
	"github.com/nri-blkio/nri-blkio/plugin/node/cause"
	"github.com/nri-blkio/nri-blkio/policy"
)

// nriRuntime is a runtime's side of NRI, as containerd embeds it.
type nriRuntime struct {
	*adaptation.Adaptation
	socket string
	synced atomic.Int32 // synchronizations of plugins that ended well
}

// listed is the list of a runtime for a plugin that registers.
type listed struct {
	pods []*api.PodSandbox
	ctrs []*api.Container
}

// newRuntime starts containerd 2.9.9, which waits for timeout for an answer of a plugin.
func newRuntime(t *testing.T, timeout time.Duration, n *listed, opts ...adaptation.Option) *nriRuntime {
	t.Helper()
	return newContainerd(t, "v2.9.9", timeout, n, opts...)
}

func newContainerd(t *testing.T, version string, timeout time.Duration, n *listed, opts ...adaptation.Option) *nriRuntime {
	t.Helper()
	dir := t.TempDir()
	adaptation.SetPluginRequestTimeout(timeout)
	t.Cleanup(func() { adaptation.SetPluginRequestTimeout(adaptation.DefaultPluginRequestTimeout) })
	r := &nriRuntime{socket: filepath.Join(dir, "nri.sock")}
	list := func(ctx context.Context, synchronize adaptation.SyncCB) error {
		_, err := synchronize(ctx, n.pods, n.ctrs)
		if err == nil {
			r.synced.Add(1)
		}
		return err
	}
	update := func(context.Context, []*adaptation.ContainerUpdate) ([]*adaptation.ContainerUpdate, error) {
		return nil, errors.New("unsolicited update")
	}
	var err error
	opts = append([]adaptation.Option{
		adaptation.WithSocketPath(r.socket), adaptation.WithPluginPath(filepath.Join(dir, "plugins")),
		adaptation.WithPluginConfigPath(filepath.Join(dir, "conf.d")),
	}, opts...)
	r.Adaptation, err = adaptation.New("containerd", version, list, update, opts...)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Stop)
	r.synced.Store(0) // Start has synchronized no plugin
	return r
}

// serve runs a plugin until the test ends or stop is called.
func (r *nriRuntime) serve(t *testing.T, run func(context.Context, RunConfig) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, RunConfig{Socket: r.socket, Index: "90", Dial: new(net.Dialer).DialContext}) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// create makes the runtime create a container, and returns the adjustments of the plugins.
func (r *nriRuntime) create(ctx context.Context, sb *api.PodSandbox, c *api.Container) (*api.ContainerAdjustment, error) {
	out, err := r.CreateContainer(ctx, &api.CreateContainerRequest{Pod: sb, Container: c})
	return out.GetAdjust(), err
}

// stop reports to the plugins that a container of a pod without annotations has stopped.
func (r *nriRuntime) stop(ctx context.Context) error {
	plain := &api.PodSandbox{Id: "plain", Name: "plain", Namespace: "ns", Uid: "u"}
	_, err := r.StopContainer(ctx, &api.StopContainerRequest{Pod: plain, Container: &api.Container{Id: "x", PodSandboxId: "plain"}})
	return err
}

// eventually waits until ready returns true.
func eventually(t *testing.T, what string, ready func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ready(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			stacks := make([]byte, 1<<20)
			t.Fatalf("not in time: %s\n%s", what, stacks[:runtime.Stack(stacks, true)])
		}
	}
}

// TestHungPlugin verifies that a plugin that hangs delays no other pod of the node, unless the policy asks for
// it. Then it fails the one request that meets it.
func TestHungPlugin(t *testing.T) {
	reject := *policy.Default()
	reject.OnError.Internal = policy.Reject
	observe := reject
	observe.Mode = policy.ModeObserve
	for _, tt := range []struct {
		name   string
		before *policy.Policy // in force when the plugin registers
		after  *policy.Policy // loaded afterwards, if not nil
		fails  bool
	}{
		{name: "ignore", before: policy.Default()},
		{name: "reject", before: &reject, fails: true},
		{name: "observe", before: &observe},
		{name: "reject, later", before: policy.Default(), after: &reject, fails: true},
		{name: "reject, no more", before: &reject, after: policy.Default()},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newPlugin(t, nil)
			lock := hang(p)
			p.Reload(tt.before)
			r := newRuntime(t, time.Second, &listed{})
			r.serve(t, p.Run)
			eventually(t, "registered", func() bool { return r.synced.Load() == 1 && p.connection.is(health.Connected) })
			if tt.after != nil {
				p.Reload(tt.after)
				eventually(t, "registered again", func() bool { return r.synced.Load() == 2 && p.connection.is(health.Connected) })
			}
			eventually(t, "an answer", func() bool { return r.stop(t.Context()) == nil })

			lock.Lock() // every handler hangs now
			first, second := r.stop(t.Context()), r.stop(t.Context())
			synced := r.synced.Load()
			lock.Unlock()
			if failed := first != nil; failed != tt.fails {
				t.Errorf("stop of another pod's container: %v", first)
			}
			if second != nil {
				t.Errorf("the next stop: %v", second)
			}
			eventually(t, "registered after the hang", func() bool { return r.synced.Load() > synced })
		})
	}
}

// panicking is a state that panics at each event.
type panicking struct{ events }

func (panicking) Synchronize([]*node.Sandbox, []*node.Container) { panic("no state") }
func (panicking) Updated(string)                                 { panic("no state") }
func (panicking) Stopped(string, string)                         { panic("no state") }
func (panicking) Removed(string, string)                         { panic("no state") }
func (panicking) RemovedPod(string)                              { panic("no state") }

func (panicking) Create(context.Context, *node.Sandbox, *node.Container, bool) (policy.Settings, bool, error) {
	panic("no state")
}

func (panicking) Start(context.Context, *node.Sandbox, *node.Container, bool) error {
	panic("no state")
}

// TestPanicInHandler verifies that a panic in a handler does not end the process.
func TestPanicInHandler(t *testing.T) {
	sb := sandbox(map[string]string{limitsKey + "containers": "rootfs wbps=1Mi"})
	for event, call := range map[string]func(*session) error{
		"Configure": func(s *session) error {
			_, err := s.Configure(t.Context(), header, "containerd", "v2")
			return err
		},
		"Synchronize": func(s *session) error {
			_, err := s.Synchronize(t.Context(), nil, nil)
			return err
		},
		"CreateContainer": func(s *session) error {
			_, _, err := s.CreateContainer(t.Context(), sb, ctr("a"))
			return err
		},
		"StartContainer":      func(s *session) error { return s.StartContainer(t.Context(), sb, ctr("a")) },
		"PostUpdateContainer": func(s *session) error { return s.PostUpdateContainer(t.Context(), sb, ctr("a")) },
		"StopContainer": func(s *session) error {
			_, err := s.StopContainer(t.Context(), sb, ctr("a"))
			return err
		},
		"RemoveContainer":  func(s *session) error { return s.RemoveContainer(t.Context(), sb, ctr("a")) },
		"RemovePodSandbox": func(s *session) error { return s.RemovePodSandbox(t.Context(), sb) },
	} {
		t.Run(event, func(t *testing.T) {
			p := newPlugin(t, nil)
			log, hook := test.NewNullLogger()
			p.events = panicking{p.events}
			s := &session{p: p, log: log, link: newLink(), deadline: time.Minute}
			s.distribute = func(*policy.Policy) { panic("no parts") }
			if err := call(s); err != nil {
				t.Error(err) // internal: ignore
			}
			if e := hook.LastEntry(); e == nil || e.Data["event"] != event || !strings.Contains(e.Message, "panic") {
				t.Errorf("log: %+v", e)
			}
			if event != "CreateContainer" && event != "StartContainer" {
				return
			}
			reject := *policy.Default()
			reject.OnError.Internal = policy.Reject
			p.Reload(&reject)
			if err := call(s); !errors.Is(err, cause.ErrInternal) {
				t.Errorf("internal: reject: %v", err)
			}
		})
	}
}

// unmatched is a state that also panics when it matches the rules for a failure.
type unmatched struct{ panicking }

func (unmatched) Refusal(*node.Sandbox) error { panic("no rules") }

// TestPanicAgain verifies that the policy without its rules decides if the decision on a panic panics again.
func TestPanicAgain(t *testing.T) {
	p := newPlugin(t, nil)
	log, hook := test.NewNullLogger()
	p.events = unmatched{panicking{p.events}}
	s := &session{p: p, log: log, link: newLink(), deadline: time.Minute}
	for _, tt := range []struct {
		mode   policy.Mode
		action policy.Action
		want   error
	}{
		{policy.ModeEnforce, policy.Ignore, nil},
		{policy.ModeEnforce, policy.Reject, cause.ErrInternal},
		{policy.ModeObserve, policy.Reject, nil},
	} {
		pol := *policy.Default()
		pol.Mode, pol.OnError.Internal = tt.mode, tt.action
		p.Reload(&pol)
		sb := sandbox(map[string]string{limitsKey + "containers": "rootfs wbps=1Mi"})
		_, _, created := s.CreateContainer(t.Context(), sb, ctr("a"))
		if started := s.StartContainer(t.Context(), sb, ctr("a")); !errors.Is(created, tt.want) || !errors.Is(started, tt.want) {
			t.Errorf("%s, internal: %s: %v, %v", tt.mode, tt.action, created, started)
		}
		if e := hook.LastEntry(); e == nil || e.Data["event"] != "StartContainer" || !strings.Contains(e.Message, "rule of the pod") {
			t.Errorf("log: %+v", e)
		}
	}
}

// withTimeout is a stub with a timeout only.
type withTimeout struct{ stub.Stub }

func (withTimeout) RequestTimeout() time.Duration { return 0 }

const header = "apiVersion: blkio.noderesource.dev/v1alpha1\nkind: NodePolicy\n"

// TestConfigureDistributes verifies that a policy of the runtime reaches all parts of the process.
func TestConfigureDistributes(t *testing.T) {
	p := newPlugin(t, nil)
	s := &session{p: p, log: p.log, link: link{stub: withTimeout{}}, deadline: time.Minute}
	var got *policy.Policy
	s.distribute = func(pol *policy.Policy) {
		got = pol
		p.Reload(pol)
	}
	if _, err := s.Configure(t.Context(), header+"writeback: {repair: false}\nonError: {internal: reject}\n", "containerd", "v2"); err != nil {
		t.Fatal(err)
	}
	if got == nil || got.Writeback.Repair != policy.RepairOff {
		t.Errorf("distributed %+v", got)
	}
	if !s.failure.GetFailRequest() || s.failure.GetKeepConnected() {
		t.Errorf("registered with %v", &s.failure)
	}
}

// TestPreinstalled verifies that a plugin that the runtime starts itself works on containerd 2, and ends with an error
// on containerd 1.
func TestPreinstalled(t *testing.T) {
	for version, want := range map[string]error{"1.7.24~ds1": errListsNothing, "v1.7.27": errListsNothing, "v2.0.0": nil} {
		t.Run(version, func(t *testing.T) {
			r := newContainerd(t, version, 10*time.Second, &listed{})
			// As the runtime hands it to the process. The stub closes the descriptor, so nothing else here may own it:
			// a second close would be that of another connection, which then never learns of its end.
			fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			if err := unix.Connect(fd, &unix.SockaddrUnix{Name: r.socket}); err != nil {
				t.Fatal(err)
			}
			t.Setenv(api.PluginNameEnvVar, "nri-blkio")
			t.Setenv(api.PluginIdxEnvVar, "90")
			t.Setenv(api.PluginSocketEnvVar, strconv.Itoa(fd))
			p := newPlugin(t, nil)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan error, 1)
			go func() { ended <- p.Run(ctx, RunConfig{Socket: r.socket, Preinstalled: true}) }()
			if want == nil {
				eventually(t, "connected", func() bool { return p.connection.is(health.Connected) })
				cancel()
			}
			if err := <-ended; !errors.Is(err, want) {
				t.Errorf("got %v, want %v", err, want)
			}
		})
	}
}

// TestLockInTime verifies that a predecessor that ends while the runtime still waits is no reason for a
// pre-installed plugin to end.
func TestLockInTime(t *testing.T) {
	for name, hold := range map[string]time.Duration{"ends soon": lockPatience / 2, "goes on": time.Hour} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "lock")
			synctest.Test(t, func(t *testing.T) {
				f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
				if err != nil {
					t.Fatal(err)
				}
				if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
					t.Fatal(err)
				}
				time.AfterFunc(hold, func() { f.Close() })
				log, _ := test.NewNullLogger()
				lock, err := lockInTime(t.Context(), path, log)
				if hold > lockPatience {
					if !errors.Is(err, hostfs.ErrLocked) {
						t.Errorf("got %v", err)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				lock.Close()
			})
		})
	}
}

// TestPlainPod verifies that an event of a pod without annotations reaches no state, however that is.
func TestPlainPod(t *testing.T) {
	p := newPlugin(t, nil)
	p.events = panicking{p.events}
	log, hook := test.NewNullLogger()
	s := &session{p: p, log: log, deadline: time.Minute}
	if adjust, _, err := s.CreateContainer(t.Context(), sandbox(nil), ctr("a")); adjust != nil || err != nil {
		t.Errorf("create: %v, %v", adjust, err)
	}
	if err := s.StartContainer(t.Context(), sandbox(nil), ctr("a")); err != nil {
		t.Errorf("start: %v", err)
	}
	if n := len(hook.AllEntries()); n > 0 {
		t.Errorf("%d lines, the last: %v", n, hook.LastEntry())
	}
}

// TestSandboxID verifies that an event of a container has no pod after its sandbox was removed.
func TestSandboxID(t *testing.T) {
	if got := sandboxID(nil, ctr("a")); got != "sb1" {
		t.Errorf("without a pod: %q", got)
	}
	if got := sandboxID(&api.PodSandbox{Id: "sb2"}, ctr("a")); got != "sb2" {
		t.Errorf("with a pod: %q", got)
	}
}
