package main

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/sirupsen/logrus/hooks/test"
	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/plugin/health"
	"github.com/nri-blkio/nri-blkio/plugin/repair"
	"github.com/nri-blkio/nri-blkio/policy"
)

// steps notes in which order things happen.
type steps struct {
	mu    sync.Mutex // guards names
	names []string
}

func (s *steps) note(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.names = append(s.names, name)
}

// await waits until n steps are noted, and returns them.
func (s *steps) await(t *testing.T, n int) []string {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if names := s.noted(); len(names) >= n {
			return names
		}
	}
	t.Fatalf("only %q in time", s.noted())
	return nil
}

func (s *steps) noted() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.names)
}

// startRuntime starts a runtime without containers, and notes when it has registered a plugin. It returns its socket.
func startRuntime(t *testing.T, s *steps) (socket string) {
	t.Helper()
	dir := t.TempDir()
	socket = filepath.Join(dir, "nri.sock")
	started := false
	list := func(ctx context.Context, synchronize adaptation.SyncCB) error {
		_, err := synchronize(ctx, nil, nil)
		if err == nil && started {
			s.note("registered")
		}
		return err
	}
	update := func(context.Context, []*adaptation.ContainerUpdate) ([]*adaptation.ContainerUpdate, error) {
		return nil, errors.New("unsolicited update")
	}
	r, err := adaptation.New("containerd", "v2.9.9", list, update, adaptation.WithSocketPath(socket),
		adaptation.WithPluginPath(filepath.Join(dir, "plugins")), adaptation.WithPluginConfigPath(filepath.Join(dir, "conf.d")))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	started = true
	t.Cleanup(r.Stop)
	return socket
}

// hangingFile replaces a file by one whose reads hang until the writer, which never writes, is closed.
func hangingFile(t *testing.T, name string) (writer *os.File) {
	t.Helper()
	if err := errors.Join(os.Remove(name), unix.Mkfifo(name, 0o600)); err != nil {
		t.Fatal(err)
	}
	writer, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { writer.Close() })
	return writer
}

// silentApp is the program on a node where everything hangs but the registration: the mount table cannot be read, the
// runtime's own socket does not answer, and neither the listener of metrics nor the BPF programs are ever ready.
func silentApp(t *testing.T, host string, s *steps) *app {
	t.Helper()
	hangingFile(t, filepath.Join(host, "proc/1/mountinfo"))
	containerd := filepath.Join(host, "run/containerd/containerd.sock")
	if err := os.MkdirAll(filepath.Dir(containerd), 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", containerd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		if _, err := l.Accept(); err == nil { // the connection stays open
			s.note("asked")
		}
	}()

	ended := t.Context().Done()
	a := fakeApp()
	a.stdout, a.stderr = io.Discard, io.Discard
	a.getenv = func(string) string { return "" }
	a.newRepairer = func(repair.Config) (*repair.Repairer, error) {
		s.note("load BPF")
		<-ended
		return nil, context.Canceled
	}
	a.listen = func(ctx context.Context, _, _ string) (net.Listener, error) {
		s.note("listen")
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return a
}

// TestRegistersFirst verifies that the runtime registers the plugin before anything that is not needed for that, also if
// none of it ever ends, and that the program can be stopped meanwhile.
func TestRegistersFirst(t *testing.T) {
	host := t.TempDir()
	if err := fakeHost(host); err != nil {
		t.Fatal(err)
	}
	var s steps
	socket := startRuntime(t, &s)
	a := silentApp(t, host, &s)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		ended <- a.run(ctx, []string{
			"run", "--host-root", host, "--socket", socket, "--state-dir", filepath.Join(host, "state"), "--metrics-address", "127.0.0.1:0",
		})
	}()
	got := s.await(t, 4)
	slices.Sort(got[2:])                                                            // they run beside each other
	got = slices.DeleteFunc(got, func(name string) bool { return name == "asked" }) // with the registration, or after it
	if d := cmp.Diff([]string{"registered", "listen", "load BPF"}, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("does not end")
	}
}

// TestErrorsBesideRegistration verifies that an error of the configuration ends the program also if it is found after the
// registration, with the exit status of an error at the start.
func TestErrorsBesideRegistration(t *testing.T) {
	used, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer used.Close()
	for _, tt := range []struct {
		name, mounts, address string
		message               string
		want                  exitStatus
	}{
		{"unreadable mount table", "", "127.0.0.1:0", "refresh the mount table: it is empty", exitUndetermined},
		{"address in use", mountinfo, used.Addr().String(), "--metrics-address: listen tcp", exitUndetermined},
		{"address without a port", mountinfo, "127.0.0.1", "--metrics-address: address 127.0.0.1: missing port", exitUsage},
		{"impossible port", mountinfo, "127.0.0.1:99999", "--metrics-address: ", exitUsage},
	} {
		t.Run(tt.name, func(t *testing.T) {
			host := t.TempDir()
			if err := fakeHost(host); err != nil {
				t.Fatal(err)
			}
			var s steps
			socket := startRuntime(t, &s)
			if table := filepath.Join(host, "proc/1/mountinfo"); tt.mounts != "" {
				if err := os.WriteFile(table, []byte(tt.mounts), 0o600); err != nil {
					t.Fatal(err)
				}
			} else { // An end of the connection before that is a data race in the runtime (nri v0.12.5, plugin.name and RegisterPlugin).
				writer := hangingFile(t, table)
				go func() {
					defer writer.Close()
					s.await(t, 1)
				}()
			}
			a := fakeApp()
			a.stdout, a.stderr, a.getenv = io.Discard, io.Discard, func(string) string { return "" }
			a.newRepairer = func(repair.Config) (*repair.Repairer, error) { return nil, errors.New("not on this kernel") }
			err := a.run(t.Context(), []string{
				"run", "--host-root", host, "--socket", socket, "--state-dir", filepath.Join(host, "state"), "--metrics-address", tt.address,
			})
			if err == nil || statusOf(err) != tt.want || !strings.HasPrefix(err.Error(), tt.message) {
				t.Errorf("status %d, %v", statusOf(err), err)
			}
		})
	}
}

// TestWritebackAlone verifies that a process without the limits part loads the BPF programs before it counts as started, and
// that a kernel without support does not end it. Its metrics appear with the programs.
func TestWritebackAlone(t *testing.T) {
	host := t.TempDir()
	if err := fakeHost(host); err != nil {
		t.Fatal(err)
	}
	for name, failure := range map[string]error{"loaded": nil, "not supported": errors.New("no BTF")} {
		t.Run(name, func(t *testing.T) {
			var s steps
			a := fakeApp()
			a.opts = options{hostRoot: host, stateDir: t.TempDir()}
			a.newRepairer = func(repair.Config) (*repair.Repairer, error) {
				s.note("load BPF")
				return &repair.Repairer{}, failure
			}
			log, hook := test.NewNullLogger()
			r := runner{app: a, runOptions: runOptions{only: health.Writeback}, log: log, awaitRegistration: func(context.Context) {}}
			parts, err := r.parts(t.Context())
			if d := cmp.Diff([]string{"load BPF"}, s.noted()); err != nil || d != "" {
				t.Fatalf("%v %s", err, d)
			}
			if failure == nil {
				w := &writebackPart{policy: policy.Default()}
				before := testutil.CollectAndCount(w)
				w.set(&repair.Repairer{})
				if after := testutil.CollectAndCount(w); before != 0 || after == 0 {
					t.Errorf("%d metrics before the programs are loaded, %d after", before, after)
				}
				return
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			go func() {
				for hook.LastEntry() == nil && ctx.Err() == nil {
					time.Sleep(time.Millisecond)
				}
				time.Sleep(100 * time.Millisecond) // in which it must not end
				cancel()
			}()
			if err := parts.Run(ctx); err != nil || ctx.Err() == nil {
				t.Errorf("ended before its context: %v", err)
			}
			if e := hook.LastEntry(); e == nil || !strings.HasPrefix(e.Message, "Writeback repair is unavailable") {
				t.Errorf("logged %v", e)
			}
		})
	}
}
