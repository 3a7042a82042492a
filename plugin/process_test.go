package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	validator "github.com/containerd/nri/plugins/default-validator/builtin"
	"github.com/sirupsen/logrus"
)

// pluginSocket makes this test binary a plugin at that socket.
const pluginSocket = "NRI_BLKIO_TEST_SOCKET"

func TestMain(m *testing.M) {
	if socket := os.Getenv(pluginSocket); socket != "" {
		if err := servePlugin(socket); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// servePlugin is a plugin on a node without cgroups. SIGUSR1 has all handlers hang,
// until SIGUSR2.
func servePlugin(socket string) error {
	dir, err := os.MkdirTemp(filepath.Dir(socket), "cgroups") // the test removes it: most of these processes are killed
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	cfg, err := configOf(dir)
	if err != nil {
		return err
	}
	defer cfg.Cgroups.Close()
	p, err := New(cfg, nil)
	if err != nil {
		return err
	}
	lock := hang(p)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGUSR1, syscall.SIGUSR2)
	go func() {
		for s := range signals {
			if s == syscall.SIGUSR1 {
				lock.Lock()
			} else {
				lock.Unlock()
			}
		}
	}()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // its end is the test's
		stop()
	}()
	return p.Run(ctx, RunConfig{Socket: socket, Index: "90", Dial: new(net.Dialer).DialContext})
}

// pluginProcess is a plugin that can be killed, stopped and hung.
type pluginProcess struct {
	*testing.T
	r   *nriRuntime
	cmd *exec.Cmd
}

// start runs the process and waits until it is synchronized.
func (p *pluginProcess) start() {
	p.Helper()
	synced := p.r.synced.Load()
	p.launch()
	p.r.awaitSynced(p.T, synced+1)
}

func (p *pluginProcess) launch() {
	p.Helper()
	p.cmd = exec.Command(os.Args[0])
	p.cmd.Env = append(os.Environ(), pluginSocket+"="+p.r.socket)
	if _, err := p.cmd.StdinPipe(); err != nil { // closed with this process
		p.Fatal(err)
	}
	p.cmd.Stderr = os.Stderr
	if err := p.cmd.Start(); err != nil {
		p.Fatal(err)
	}
}

func (p *pluginProcess) signal(s syscall.Signal) {
	p.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.Error(err)
	}
}

func (p *pluginProcess) kill() {
	p.Helper()
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.Error(err)
	}
	_ = p.cmd.Wait() // it was killed
}

// TestFailClosed verifies the node with both plugins required. No container of an annotated pod is created
// without its limits while the plugin is killed, stopped or hangs, and other pods' containers are created.
// test/e2e does the same on a node.
func TestFailClosed(t *testing.T) {
	const tries = 200
	r := newRuntime(t, 2*time.Second, &listed{}, adaptation.WithDefaultValidator(&validator.DefaultValidatorConfig{Enable: true}))
	log := logrus.New()
	log.SetOutput(io.Discard)
	v := NewValidator(log, nil)
	r.serve(t, v.Run)
	r.awaitSynced(t, 1)
	p := &pluginProcess{T: t, r: r}
	p.start()
	t.Cleanup(func() { p.kill() })

	limited := sandbox(map[string]string{
		limitsKey + "containers":            "rootfs wbps=1Mi",
		"required-plugins.noderesource.dev": "[nri-blkio, nri-blkio-validator]",
	})
	plain := sandbox(nil)
	plain.Id = "plain"
	create := func() error {
		adjust, err := r.create(t.Context(), limited, ctr("a"))
		if err == nil && adjust.GetLinux().GetResources().GetUnified()["io.max"] == "" {
			t.Fatal("created without its limits")
		}
		return err
	}
	recovers := func() { t.Helper(); eventually(t, "created again", func() bool { return create() == nil }) }
	recovers()
	for _, fault := range []struct {
		name       string
		begin, end func()
	}{
		{"killed", p.kill, p.start},
		{"stopped", func() { p.signal(syscall.SIGSTOP) }, func() { p.signal(syscall.SIGCONT) }},
		{"hung", func() { p.signal(syscall.SIGUSR1) }, func() { p.signal(syscall.SIGUSR2) }},
	} {
		fault.begin()
		eventually(t, fault.name, func() bool { return create() != nil })
		for range tries {
			if err := create(); err == nil {
				t.Errorf("%s: created", fault.name)
			} else if !strings.Contains(err.Error(), "nri-blkio") {
				t.Errorf("%s: %v", fault.name, err)
			}
			if _, err := r.create(t.Context(), plain, ctr("b")); err != nil {
				t.Errorf("%s: a pod without annotations: %v", fault.name, err)
			}
		}
		fault.end()
		recovers()
	}

	refused := killedAnytime(p, tries, create, recovers)
	t.Logf("killed at any moment: %d of %d creates refused, the others limited", refused, tries)
}

// killedAnytime kills the process at any moment, also during a create. It returns how many creates
// were refused.
func killedAnytime(p *pluginProcess, tries int, create func() error, recovers func()) (refused int) {
	for range tries / 10 {
		death := time.AfterFunc(rand.N(5*time.Millisecond), func() { _ = p.cmd.Process.Kill() }) // it may have been killed already
		for range 10 {
			if create() != nil {
				refused++
			}
		}
		death.Stop()
		p.kill()
		p.start()
		recovers()
	}
	return refused
}
