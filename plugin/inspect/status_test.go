package inspect

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/hostfs"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
	"github.com/nri-blkio/nri-blkio/internal/fakenode"
	"github.com/nri-blkio/nri-blkio/plugin/health"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/plugin/repair"
	"github.com/nri-blkio/nri-blkio/policy"
)

// statusHost is a node with one pod that has a limit on sdc, and no mount table.
func statusHost(t *testing.T) *Host {
	t.Helper()
	root := t.TempDir()
	fakenode.WriteFiles(t, root, map[string]string{
		"cg/cgroup.controllers": "io\n", "cg/kubepods/pod1/io.max": "8:32 rbps=max wbps=1048576 riops=max wiops=max\n",
	})
	tree := fakenode.OpenCgroups(t, filepath.Join(root, "cg"))
	sdc := blkio.Dev{Major: 8, Minor: 32}
	if err := record.Write(tree.Cgroup("kubepods/pod1"), &record.Record{
		Kind: record.KindPod, Namespace: "prod", Pod: "db-0", UID: "1", Warnings: []string{"a warning"},
		Settings: policy.Settings{limitOf(blkio.Wbps, sdc, 1<<20)}, Disks: map[blkio.Dev]string{sdc: "sdc"},
	}); err != nil {
		t.Fatal(err)
	}
	return &Host{
		Cgroups: tree, Sysfs: storage.NewSysfs(fakenode.Sysfs()), Root: hostfs.Root(root),
		StateDir:   writeState(t, &health.Report{Part: health.Limits, At: time.Now(), State: health.Connected}),
		StorageErr: errors.New("no mount table"),
	}
}

// TestStatus verifies that readable facts are reported with the errors of the others.
func TestStatus(t *testing.T) {
	h := statusHost(t)
	s, err := h.Status(t.Context(), Filter{})
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Values) != 1 || s.Values[0].State != ValueOK || !s.Enforces() || s.HasFindings(true) {
		t.Errorf("values %+v, parts %+v", s.Values, s.Parts)
	}
	if len(s.Notes) != 1 || s.Files != nil || s.OrphansNote != "no mount table" || s.Orphans == nil {
		t.Errorf("%+v", s)
	}
	if s, err = h.Status(t.Context(), Filter{Namespace: "prod", Name: "other"}); err != nil || len(s.Values) > 0 || len(s.Notes) > 0 {
		t.Errorf("of another pod: %+v, %v", s, err)
	}

	fakenode.WriteFiles(t, h.StateDir, map[string]string{"writeback.json": "{"})
	s, err = h.Status(t.Context(), Filter{})
	if err == nil || !strings.Contains(err.Error(), "writeback.json") || len(s.Values) != 1 {
		t.Errorf("with an unreadable report: %v, values %+v", err, s.Values)
	}
}

// TestStatusOrphans verifies that with the storage of the node the report has orphans, of the selected pod.
func TestStatusOrphans(t *testing.T) {
	f := orphanNode(t, "systemd")
	h := Host{
		Cgroups: f.tree, Storage: f.storage, Sysfs: storage.NewSysfs(fakenode.Sysfs()), Root: f.host,
		StateDir: t.TempDir(), KubeletRoot: kubeletRoot,
	}
	for filter, want := range map[Filter]int{{}: 4, {Namespace: "prod", Name: "db-0"}: 2, {Namespace: "prod", Name: "other"}: 0} {
		s, err := h.Status(t.Context(), filter)
		if err != nil || len(s.Orphans) != want || s.Orphans == nil || s.OrphansNote != "" {
			t.Errorf("%v: %d orphans, want %d, note %q, %v", filter, len(s.Orphans), want, s.OrphansNote, err)
		}
	}
	loop(t, filepath.Join(string(f.host), "cg/cgroup.events"))
	if s, err := h.Status(t.Context(), Filter{}); err != nil || s.Orphans == nil || !strings.HasPrefix(s.OrphansNote, "look for orphaned volumes: ") {
		t.Errorf("without cgroups: %v, note %q, %v", s.Orphans, s.OrphansNote, err)
	}
}

func TestHasFindings(t *testing.T) {
	connected := []Part{{Part: health.Limits, State: health.Connected}}
	standby := []Part{{Part: health.Limits, State: health.Standby}, {Part: health.Validator, State: health.Connected}}
	rejected := []Part{connected[0], {Part: health.Writeback, State: repair.ModeRepair, PolicyRejected: "line 3"}}
	value := func(states ...string) (out []Value) {
		for _, s := range states {
			out = append(out, Value{State: s})
		}
		return out
	}
	for _, tt := range []struct {
		name             string
		parts            []Part
		values           []Value
		shares           []health.Share
		findings, strict bool
	}{
		{name: "nothing requested", parts: connected},
		{name: "in force", parts: connected, values: value(ValueOK, ValueOK)},
		{name: "chosen by an operator", parts: connected, values: value(ValueOK, ValueCleared, ValueObserved), strict: true},
		{name: "drift", parts: connected, values: value(ValueOK, ValueDrift), findings: true, strict: true},
		{name: "missing", parts: connected, values: value(ValueMissing), findings: true, strict: true},
		{name: "error", parts: connected, values: value(ValueError), findings: true, strict: true},
		{name: "standby", parts: standby, values: value(ValueOK), findings: true, strict: true},
		{name: "standby, nothing requested", parts: standby, strict: true},
		{name: "no part", strict: true},
		{name: "a rejected policy", parts: rejected, findings: true, strict: true},
		{name: "a weight", parts: connected, shares: []health.Share{{Weight: 50, Share: 0.5}}},
		{name: "a weight without effect", parts: connected, shares: []health.Share{{Weight: 50}, {Reason: "x"}}, findings: true, strict: true},
		{name: "a weight without effect by the policy", parts: connected, shares: []health.Share{{Reason: "x", Chosen: true}}, strict: true},
	} {
		s := Status{Parts: tt.parts, Values: tt.values, Reported: Reported{Weights: &health.Weights{Shares: tt.shares}}}
		if got := s.HasFindings(false); got != tt.findings {
			t.Errorf("%s: findings: %t", tt.name, got)
		}
		if got := s.HasFindings(true); got != tt.strict {
			t.Errorf("%s: strict findings: %t", tt.name, got)
		}
	}
}

// TestStatusBudgets verifies that the report has the sums of all namespaces, or only those of classes and of the namespace of the
// selected pod.
func TestStatusBudgets(t *testing.T) {
	h := statusHost(t)
	a, b := health.BudgetSum{Namespace: "a", Granted: "1Mi"}, health.BudgetSum{Namespace: "b", Over: true}
	class := health.BudgetSum{Class: "fast", Granted: "30%"}
	h.StateDir = writeState(t, &health.Report{Part: health.Limits, At: time.Now(), State: health.Connected, Budgets: &health.Budgets{Sums: []health.BudgetSum{b, a, class}}})
	for filter, want := range map[Filter][]health.BudgetSum{{}: {b, a, class}, {Namespace: "a", Name: "x"}: {a, class}, {Namespace: "c", Name: "x"}: {class}} {
		s, err := h.Status(t.Context(), filter)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, s.Budgets.Sums); diff != "" {
			t.Errorf("%v: -want +got:\n%s", filter, diff)
		}
		if s.HasFindings(true) {
			t.Errorf("%v: a budget is a finding", filter)
		}
	}
	h.StateDir = t.TempDir()
	if s, err := h.Status(t.Context(), Filter{}); err != nil || s.Budgets != nil {
		t.Errorf("without the limits part: %+v, %v", s.Budgets, err)
	}
}
