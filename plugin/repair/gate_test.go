package repair

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	logtest "github.com/sirupsen/logrus/hooks/test"

	"github.com/nri-blkio/nri-blkio/blkio/kernel"
	"github.com/nri-blkio/nri-blkio/policy"
)

// TestGate verifies that files are moved on a corrected kernel, and on others only if the policy asks for it.
// The report names the bug, its correction and the override.
func TestGate(t *testing.T) {
	affected := kernel.Release{Uname: "6.18.38-talos"}.Writeback()
	fixed := kernel.Release{Uname: "6.18.39-talos"}.Writeback()
	for _, tt := range []struct {
		name   string
		kernel kernel.Verdict
		mode   policy.Mode
		repair policy.Repair
		want   string
		reason []string
	}{
		{"fixed", fixed, policy.ModeEnforce, policy.RepairAuto, ModeRepair, nil},
		{"fixed, off", fixed, policy.ModeEnforce, policy.RepairOff, ModeObserve, nil},
		{"fixed, observed", fixed, policy.ModeObserve, policy.RepairAuto, ModeObserve, nil},
		{
			"affected", affected, policy.ModeEnforce, policy.RepairAuto, ModeGated,
			[]string{"CVE-2026-64378", "fixed in 6.18.39", "writeback.repair: true"},
		},
		{"affected, overridden", affected, policy.ModeEnforce, policy.RepairOn, ModeRepair, nil},
		{"affected, off", affected, policy.ModeEnforce, policy.RepairOff, ModeObserve, nil},
		{"affected, observed", affected, policy.ModeObserve, policy.RepairAuto, ModeObserve, nil},
		{
			"unknown", kernel.Release{Uname: "6.8.0-45-generic"}.Writeback(), policy.ModeEnforce, policy.RepairAuto, ModeGated,
			[]string{"may have", "6.8.0-45-generic", "CVE-2026-64378", "writeback.repair: true"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := policy.Default()
			p.Mode, p.Writeback.Repair = tt.mode, tt.repair
			g := &gate{kernel: tt.kernel}
			g.policy.Store(p)
			mode, reason := g.mode()
			if g.opens() != (tt.want == ModeRepair) {
				t.Errorf("the mode is %s, and files are moved: %v", mode, g.opens())
			}
			if mode != tt.want || (reason == "") != (tt.reason == nil) {
				t.Errorf("got %s, %q, want %s", mode, reason, tt.want)
			}
			for _, part := range tt.reason {
				if !strings.Contains(reason, part) {
					t.Errorf("the reason %q lacks %q", reason, part)
				}
			}
		})
	}
}

// TestPolicyRejected verifies that the report has the reason why the policy file was rejected, for as long as it is.
func TestPolicyRejected(t *testing.T) {
	log, _ := logtest.NewNullLogger()
	file, reason := filepath.Join(t.TempDir(), "report"), "line 3"
	r := newRepairer(Config{
		Log: log, Policy: policy.Default(), Cgroups: testTree(t, nil), Report: file, PolicyRejected: func() string { return reason },
	}, &fakeObserver{}, newModelCache())
	for _, reason = range []string{"line 3", ""} {
		r.publish(time.Now())
		if got, err := ReadReport(file); err != nil || got.PolicyRejected != reason {
			t.Errorf("%+v, %v, want %q", got, err, reason)
		}
	}
}
