package inspect

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio/hostfs"
	"github.com/nri-blkio/nri-blkio/plugin/check"
	"github.com/nri-blkio/nri-blkio/plugin/health"
	"github.com/nri-blkio/nri-blkio/policy"
)

// TestRunningPolicy verifies that check uses the running plugin's file and mode, and otherwise reports why it does
// not.
func TestRunningPolicy(t *testing.T) {
	for _, tt := range []struct {
		name   string
		report *health.Report // nil for none
		failed error          // of load
		loaded []string       // file and mode
		want   check.PolicySource
	}{
		{name: "no plugin", want: check.PolicySource{Name: "built-in (no plugin runs on this node)"}},
		{
			name: "of the runtime", report: &health.Report{PolicyOfRuntime: true},
			want: check.PolicySource{Name: "built-in", Unknown: "the running plugin has that of the runtime's configuration; the built-in one was used"},
		},
		{
			name: "a file", report: &health.Report{Policy: "/etc/policy.yaml", Mode: "observe"}, loaded: []string{"/etc/policy.yaml", "observe"},
			want: check.PolicySource{Name: "/etc/policy.yaml (of the running plugin), mode observe"},
		},
		{
			name: "rules with modes", report: &health.Report{Policy: "/etc/policy.yaml", Mode: "enforce", RuleModes: true}, loaded: []string{"/etc/policy.yaml", ""},
			want: check.PolicySource{Name: "/etc/policy.yaml (of the running plugin), mode enforce"},
		},
		{
			name: "without a file", report: &health.Report{Mode: "enforce"}, loaded: []string{"", "enforce"},
			want: check.PolicySource{Name: "built-in (of the running plugin), mode enforce"},
		},
		{
			name: "a file of its pod", report: &health.Report{Policy: "/p.yaml"}, failed: errors.New("no such file"), loaded: []string{"/p.yaml", ""},
			want: check.PolicySource{Name: "built-in", Unknown: "that of the running plugin cannot be read here: no such file; the built-in one was used"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			if tt.report != nil {
				tt.report.At = time.Now()
				if err := hostfs.WriteJSON(health.File(dir, health.Limits), tt.report); err != nil {
					t.Fatal(err)
				}
			}
			var loaded []string
			p, source := RunningPolicy(dir, func(file, mode string) (*policy.Policy, error) {
				loaded = []string{file, mode}
				return policy.Default().WithMode(policy.ModeObserve), tt.failed
			})
			if d := cmp.Diff(tt.loaded, loaded); d != "" {
				t.Errorf("loaded, -want +got:\n%s", d)
			}
			if d := cmp.Diff(tt.want, source); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
			if used := tt.loaded != nil && tt.failed == nil; used != (p.Mode == policy.ModeObserve) {
				t.Errorf("mode %s", p.Mode)
			}
		})
	}
}

// TestUnreadableRunningPolicy verifies that a report that cannot be parsed leaves the policy unknown.
func TestUnreadableRunningPolicy(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "limits.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	p, source := RunningPolicy(dir, nil)
	if p == nil || source.Name != check.BuiltIn || !strings.HasSuffix(source.Unknown, "; the built-in one was used") {
		t.Errorf("%+v", source)
	}
}
