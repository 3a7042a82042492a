package policyfile

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/sirupsen/logrus/hooks/test"

	"github.com/nri-blkio/nri-blkio/plugin/recovery"
	"github.com/nri-blkio/nri-blkio/policy"
)

const header = "apiVersion: blkio.noderesource.dev/v1alpha1\nkind: NodePolicy\n"

// file is a policy file whose content a test sets. Each content is read at least twice before
// the next one.
type file struct {
	mu    sync.Mutex // guards the fields below
	text  string
	err   error
	reads int
	twice chan struct{} // closed after the second read
}

func (f *file) read(string) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.reads++; f.reads == 2 {
		close(f.twice)
	}
	return []byte(f.text), f.err
}

// set changes the content, and returns when it was read twice. So the first read was processed.
func (f *file) set(t *testing.T, text string, err error) {
	t.Helper()
	f.mu.Lock()
	f.text, f.err, f.reads, f.twice = text, err, 0, make(chan struct{})
	twice := f.twice
	f.mu.Unlock()
	select {
	case <-twice:
	case <-time.After(time.Minute):
		t.Fatal("the file was not read twice in a minute")
	}
}

// TestWatch verifies that each new content is taken or rejected once, however often it is read.
func TestWatch(t *testing.T) {
	f := file{text: header, twice: make(chan struct{})}
	log, hook := test.NewNullLogger()
	w := NewWatch(Config{File: "policy.yaml", Every: time.Millisecond, Read: f.read, Parse: policy.ParseFile, Log: log})
	var modes []policy.Mode
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.Run(ctx, func(p *policy.Policy) { modes = append(modes, p.Mode) })
	}()
	f.set(t, header, nil) // the same
	rejected := func(want string) {
		t.Helper()
		f.set(t, f.text, f.err) // until the watch has stored the result of the reads before
		if got := w.Rejection(); !strings.HasPrefix(got, want) || (got == "") != (want == "") {
			t.Errorf("rejected: %q, want %q", got, want)
		}
	}
	f.set(t, header+"mode: observe\n", nil)
	rejected("")
	f.set(t, header+"mode: obey\n", nil)
	rejected("parse policy: line 3: mode: ")
	f.set(t, "", errors.New("it is gone"))
	rejected("it is gone")
	f.set(t, header+"mode: enforce\n", nil)
	rejected("")
	cancel()
	<-done
	if d := cmp.Diff([]policy.Mode{policy.ModeObserve, policy.ModeEnforce}, modes); d != "" {
		t.Errorf("modes, -want +got:\n%s", d)
	}
	var logged []string
	for _, e := range hook.AllEntries() {
		text := e.Message
		if err, ok := e.Data["error"].(error); ok {
			first, _, _ := strings.Cut(err.Error(), ":")
			text += ": " + first
		}
		logged = append(logged, text)
	}
	want := []string{
		"Reloaded the node policy", "Rejected the new node policy, keeping the old one: parse policy",
		"Rejected the new node policy, keeping the old one: it is gone", "Reloaded the node policy",
	}
	if d := cmp.Diff(want, logged); d != "" {
		t.Errorf("log, -want +got:\n%s", d)
	}
}

// TestWatchDefault verifies that the interval is a default, and the content at the start is no change.
func TestWatchDefault(t *testing.T) {
	f := file{err: errors.New("absent"), twice: make(chan struct{})}
	w := NewWatch(Config{Read: f.read})
	if w.Every != Interval || !w.last.equal(content{err: "absent"}) {
		t.Errorf("%+v", w)
	}
	for name, other := range map[string]content{"content": {data: []byte("x")}, "error": {err: "denied"}} {
		if w.last.equal(other) {
			t.Errorf("another %s is no change", name)
		}
	}
}

// TestWatchPanics verifies that a policy at which the parser panics is rejected, and that the next policy is
// applied.
func TestWatchPanics(t *testing.T) {
	f := file{text: header, twice: make(chan struct{})}
	log, hook := test.NewNullLogger()
	parse := func(data []byte) (*policy.Policy, error) {
		if strings.Contains(string(data), "observe") {
			panic("no such mode")
		}
		return policy.ParseFile(data)
	}
	w := NewWatch(Config{File: "policy.yaml", Every: time.Millisecond, Read: f.read, Parse: parse, Log: log, Recovery: recovery.New(log)})
	reloads := 0
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.Run(ctx, func(*policy.Policy) { reloads++ })
	}()
	f.set(t, header+"mode: observe\n", nil)
	f.set(t, header+"mode: enforce\n", nil)
	cancel()
	<-done
	lines := hook.AllEntries()
	if reloads != 1 || len(lines) != 2 || lines[0].Message != "Rejected the new node policy, keeping the old one" {
		t.Errorf("%d reloads, logged %v", reloads, lines)
	}
}
