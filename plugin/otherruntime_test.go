package plugin

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	"github.com/sirupsen/logrus"
	"github.com/sirupsen/logrus/hooks/test"

	"github.com/nri-blkio/nri-blkio/plugin/health"
	"github.com/nri-blkio/nri-blkio/plugin/node"
)

// TestOtherRuntime verifies which comparisons show that the runtime is not the kubelet's, and that none does at once.
func TestOtherRuntime(t *testing.T) {
	type comparison struct {
		node.Listing
		isReplaced bool
	}
	none, all := node.Listing{}, node.Listing{Listed: 2}
	missing := node.Listing{Unlisted: []string{"a", "b"}}
	most := node.Listing{Listed: 2, Unlisted: []string{"a"}}
	moved := node.Listing{Listed: 2, Unlisted: []string{"a", "new"}}
	for name, tt := range map[string]struct {
		before, then comparison // before once, then for longer than the patience
		want         int        // 0: it is the kubelet's
	}{
		"no pods":                               {then: comparison{none, false}},
		"all":                                   {then: comparison{all, true}},
		"none":                                  {then: comparison{missing, false}, want: 2},
		"a pod was created during the list":     {then: comparison{most, false}},
		"the same with a new owner":             {before: comparison{most, false}, then: comparison{most, true}},
		"the kubelet uses the new owner":        {before: comparison{most, false}, then: comparison{moved, true}, want: 1},
		"a new pod, but not of a new owner":     {before: comparison{most, false}, then: comparison{moved, false}},
		"missing for a moment":                  {before: comparison{missing, false}, then: comparison{all, false}},
		"the first pods of the node are listed": {before: comparison{none, false}, then: comparison{all, false}},
	} {
		t.Run(name, func(t *testing.T) {
			var o otherRuntime
			now := time.Now()
			if o.compare(tt.before.Listing, tt.before.isReplaced, now) {
				t.Error("found at once")
			}
			for range comparePatience/compareEvery + 1 {
				if o.found != nil {
					t.Errorf("found after %v", now)
				}
				now = now.Add(compareEvery)
				o.compare(tt.then.Listing, tt.then.isReplaced, now)
			}
			got := 0
			if o.found != nil {
				got = o.found.unlisted
			}
			if got != tt.want {
				t.Errorf("%d pods are missing, want %d", got, tt.want)
			}
			if o.compare(all, false, now) || o.found != nil {
				t.Error("it stays found")
			}
		})
	}
}

// runPod makes the cgroups of a pod with a sandbox and a container that run.
func runPod(t *testing.T, dir, cgroup string) {
	t.Helper()
	for _, name := range []string{"cri-containerd-sb1.scope", "cri-containerd-id-a.scope"} {
		at := filepath.Join(dir, cgroup, name)
		if err := os.MkdirAll(at, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(at, "cgroup.events"), []byte("populated 1\nfrozen 0\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// newPluginIn returns a plugin of a node with its files in dir, and its log.
func newPluginIn(t *testing.T, dir string) (*Plugin, *test.Hook) {
	t.Helper()
	log, hook := test.NewNullLogger()
	cfg, err := configOf(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cfg.Cgroups.Close() })
	cfg.Log = log
	p, err := New(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	p.connection.active()
	return p, hook
}

// warnings counts the lines of a log that name the other runtime.
func warnings(hook *test.Hook) (count int) {
	for _, e := range hook.AllEntries() {
		var other *otherRuntimeError
		if err, ok := e.Data["error"].(error); ok && errors.As(err, &other) && e.Level == logrus.WarnLevel {
			count++
		}
	}
	return count
}

// TestOtherRuntimeReports verifies what a pre-installed plugin does, and one at a socket: it ends its session once, for another
// list, and with each new owner of the socket. An event of the missing pod ends the state.
func TestOtherRuntimeReports(t *testing.T) {
	for name, preinstalled := range map[string]bool{"socket": false, "pre-installed": true} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				p, hook := newPluginIn(t, dir)
				path := filepath.Join(dir, "nri.sock")
				if err := os.WriteFile(path, nil, 0o600); err != nil {
					t.Fatal(err)
				}
				s := &session{p: p, log: p.log, runtime: "containerd v2.9.9", preinstalled: preinstalled}
				s.socket.path = path
				if err := s.checkRuntime(); err != nil {
					t.Error(err)
				}
				p.connection.connected(s.runtime)
				runPod(t, dir, podCgroup)
				check := func() (err error) {
					for range 10 {
						time.Sleep(compareEvery)
						if err = s.checkRuntime(); err != nil {
							p.connection.lost(err)
							return err
						}
					}
					return nil
				}
				var other *otherRuntimeError
				if err := check(); errors.As(err, &other) == preinstalled {
					t.Errorf("the session ends with %v", err)
				}
				r := p.Health()
				if r.State != health.Disconnected || !strings.Contains(r.Reason, `has not listed 1 of the running pods, such as "1"`) || r.Runtime != s.runtime {
					t.Errorf("reports %+v", r)
				}
				if err := check(); err != nil {
					t.Errorf("the second session ends with %v", err)
				}
				if warned := warnings(hook); preinstalled && warned != 1 || !preinstalled && warned != 0 { // reconnect logs it
					t.Errorf("%d lines of the log", warned)
				}
				p.events.Enter(sandboxOf(sandbox(nil)), containerOf(ctr("a")), node.Running)
				if err := check(); err != nil {
					t.Error(err)
				}
				if r := p.Health(); r.State != health.Connected || r.Reason != "" {
					t.Errorf("reports %+v", r)
				}
			})
		})
	}
}

// TestTwoRuntimesAtOneSocket verifies that a plugin that the wrong one of two runtimes registers reports that within 30 s, once
// in its log, and that it is connected again once the kubelet's runtime has the socket.
func TestTwoRuntimesAtOneSocket(t *testing.T) {
	dir := t.TempDir()
	p, hook := newPluginIn(t, dir)
	runPod(t, dir, podCgroup)
	c := ctr("a")
	c.State = api.ContainerState_CONTAINER_RUNNING
	sb := sandbox(map[string]string{limitsKey + "containers": "rootfs wbps=1Mi"})
	pods := &listed{pods: []*api.PodSandbox{sb}, ctrs: []*api.Container{c}}
	kubelets := newRuntime(t, 10*time.Second, pods)
	at := adaptation.WithSocketPath(kubelets.socket)
	var conn atomic.Pointer[net.Conn]
	kubelets.serve(t, func(ctx context.Context, cfg RunConfig) error {
		dial := cfg.Dial
		cfg.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := dial(ctx, network, address)
			conn.Store(&c)
			return c, err
		}
		return p.Run(ctx, cfg)
	})
	eventually(t, "connected", func() bool { return p.connection.is(health.Connected) && kubelets.synced.Load() == 1 })

	newRuntime(t, 10*time.Second, &listed{}, at)
	if !p.connection.is(health.Connected) {
		t.Error("the plugin has left the kubelet's runtime")
	}
	(*conn.Load()).Close() // as the kubelet's runtime does that ends
	isOther := func() bool { return strings.Contains(p.Health().Reason, "not the kubelet's") }
	eventually(t, "reports the other runtime", isOther)
	time.Sleep(compareEvery)
	if !isOther() || p.Health().State != health.Disconnected {
		t.Errorf("reports %+v", p.Health())
	}
	if warned := warnings(hook); warned != 1 {
		t.Errorf("%d lines in the log", warned)
	}

	newRuntime(t, 10*time.Second, pods, at)
	eventually(t, "connected to the kubelet's runtime", func() bool { return p.connection.is(health.Connected) })
}

// TestNotCompared verifies that a comparison that fails is reported and logged, once while it fails, whichever pod it fails for.
func TestNotCompared(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		p, hook := newPluginIn(t, dir)
		s := &session{p: p, log: p.log, runtime: "containerd v2.9.9"}
		p.connection.connected(s.runtime)
		runPod(t, dir, podCgroup)
		file := filepath.Join(dir, podCgroup, "cri-containerd-sb1.scope", "cgroup.events")
		if err := errors.Join(os.Remove(file), os.Mkdir(file, 0o700)); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if err := s.checkRuntime(); err != nil {
				t.Error(err)
			}
			time.Sleep(compareEvery)
		}
		if r := p.Health(); r.State != health.Connected || !strings.HasPrefix(r.Reason, "the runtime's list is not compared with the kubelet's pods: ") {
			t.Errorf("reports %+v", r)
		}
		logged := 0
		for _, e := range hook.AllEntries() {
			if e.Level == logrus.WarnLevel && strings.HasPrefix(e.Message, "Comparing the runtime's list") {
				logged++
			}
		}
		if logged != 1 {
			t.Errorf("%d lines of the log", logged)
		}
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte("populated 0\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := s.checkRuntime(); err != nil {
			t.Error(err)
		}
		if r := p.Health(); r.State != health.Connected || r.Reason != "" {
			t.Errorf("reports %+v", r)
		}
	})
}
