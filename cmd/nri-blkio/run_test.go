package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/sirupsen/logrus"
	"github.com/sirupsen/logrus/hooks/test"

	"github.com/nri-blkio/nri-blkio/policy"
)

const header = "apiVersion: blkio.noderesource.dev/v1alpha1\nkind: NodePolicy\n"

// link points file to a new version the way the kubelet does for a ConfigMap:
// the file is a symlink through ..data, and ..data is replaced by a rename.
func link(t *testing.T, dir, version, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(dir, version), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, version, "policy.yaml"), []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	tmp := filepath.Join(dir, "..data_tmp")
	if err := os.Symlink(version, tmp); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(tmp, filepath.Join(dir, "..data")); err != nil {
		t.Fatal(err)
	}
}

// What we tell people to start from must be what it says it is: the default.
func TestDeployedPolicies(t *testing.T) {
	for _, file := range []string{"policy.yaml", "kubernetes/policy.yaml"} {
		o := options{policy: filepath.Join("../../deploy", file)}
		got, err := o.loadPolicy()
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(policy.Default(), got); d != "" {
			t.Errorf("%s differs from the default (-want +got):\n%s", file, d)
		}
	}
}

func TestWatchPolicy(t *testing.T) {
	dir := t.TempDir()
	link(t, dir, "1", header)
	file := filepath.Join(dir, "policy.yaml")
	if err := os.Symlink("..data/policy.yaml", file); err != nil {
		t.Fatal(err)
	}
	log, hook := test.NewNullLogger()
	loaded := make(chan *policy.Policy, 8)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	old, oldErr := readPolicy(file)
	go func() {
		defer close(done)
		w := policyWatch{file: file, every: time.Millisecond, parse: policy.ParseFile, reload: func(p *policy.Policy) { loaded <- p }, log: log}
		w.run(ctx, old, oldErr)
	}()
	defer func() { cancel(); <-done }()

	link(t, dir, "2", header+"mode: observe\n")
	if p := receive(t, loaded); p.Mode != policy.ModeObserve {
		t.Errorf("mode %s", p.Mode)
	}
	link(t, dir, "3", header+"mode: obey\n")
	waitLog(t, hook, "The new policy is refused, the old one stays in force")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	waitLog(t, hook, "The policy cannot be read, the old one stays in force")
	if err := os.Symlink("..data/policy.yaml", file); err != nil {
		t.Fatal(err)
	}
	link(t, dir, "4", header+"mode: enforce\n")
	if p := receive(t, loaded); p.Mode != policy.ModeEnforce {
		t.Errorf("mode %s", p.Mode)
	}
	// Each is said once, not with every look at the file.
	time.Sleep(20 * time.Millisecond)
	for _, text := range []string{"The policy cannot be read", "The new policy is in force"} {
		if n := countLog(hook, text); n > 2 {
			t.Errorf("%q was logged %d times", text, n)
		}
	}
}

func receive(t *testing.T, ch <-chan *policy.Policy) *policy.Policy {
	t.Helper()
	select {
	case p := <-ch:
		return p
	case <-time.After(10 * time.Second):
		t.Fatal("no new policy within 10 s")
		return nil
	}
}

func countLog(hook *test.Hook, text string) int {
	n := 0
	for _, e := range hook.AllEntries() {
		if strings.Contains(e.Message, text) {
			n++
		}
	}
	return n
}

func waitLog(t *testing.T, hook *test.Hook, text string) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		for _, e := range hook.AllEntries() {
			if e.Message == text && e.Level == logrus.ErrorLevel {
				return
			}
		}
	}
	t.Fatalf("%q was not logged within 10 s", text)
}
