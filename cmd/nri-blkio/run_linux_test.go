package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
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
	waitRefused(t, hook, 1)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	waitRefused(t, hook, 2)
	if err := os.Symlink("..data/policy.yaml", file); err != nil {
		t.Fatal(err)
	}
	link(t, dir, "4", header+"mode: enforce\n")
	if p := receive(t, loaded); p.Mode != policy.ModeEnforce {
		t.Errorf("mode %s", p.Mode)
	}
	// Each is said once, not with every look at the file.
	time.Sleep(20 * time.Millisecond)
	// Version 3 may have been read a second time before version 4 was there.
	for text, most := range map[string]int{logPolicyRefused: 3, "Reloaded the node policy": 2} {
		if n := countLog(hook, text); n > most {
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

const logPolicyRefused = "Rejected the new node policy, keeping the old one"

// waitRefused waits until a refusal was logged n times.
func waitRefused(t *testing.T, hook *test.Hook, n int) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if countLog(hook, logPolicyRefused) >= n {
			return
		}
	}
	t.Fatalf("%q was not logged %d times within 10 s", logPolicyRefused, n)
}

// TestPartsReload: a policy, from the file or from the runtime, is for each part.
func TestPartsReload(t *testing.T) {
	var got []string
	part := func(name string) part {
		return part{reload: func(p *policy.Policy) { got = append(got, name+" "+string(p.Mode)) }}
	}
	parts{part("limits"), part("writeback")}.reload(policy.Default())
	if d := cmp.Diff([]string{"limits enforce", "writeback enforce"}, got); d != "" {
		t.Error(d)
	}
}

// TestValidatorNeedsNoNode: the validator opens neither cgroupfs nor the node's storage.
func TestValidatorNeedsNoNode(t *testing.T) {
	log, _ := test.NewNullLogger()
	a := &app{opts: options{hostRoot: "/absent", policy: "/absent"}}
	got, err := a.parts(t.Context(), &runOptions{only: onlyValidator}, log)
	if err != nil || len(got) != 1 {
		t.Errorf("%d parts, %v", len(got), err)
	}
}
