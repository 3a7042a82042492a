package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"

	"github.com/nri-blkio/nri-blkio/blkio/kernel"
	"github.com/nri-blkio/nri-blkio/policy"
)

// TestReleaseGate verifies that no cgroup is removed to move the inodes of ended containers, on a kernel that
// is not known to have the corrections, unless the policy asks for it.
func TestReleaseGate(t *testing.T) {
	affected := kernel.Release{Uname: "6.18.38-talos"}.Writeback()
	fixed := kernel.Release{Uname: "6.18.39-talos"}.Writeback()
	for _, tt := range []struct {
		name     string
		kernel   kernel.Verdict
		repair   policy.Repair
		released bool
	}{
		{"fixed", fixed, policy.RepairAuto, true},
		{"fixed, repair is off", fixed, policy.RepairOff, true}, // hand-over needs it, too
		{"affected", affected, policy.RepairAuto, false},
		{"affected, repair is off", affected, policy.RepairOff, false},
		{"affected, overridden", affected, policy.RepairOn, true},
		{"unknown", kernel.Verdict{}, policy.RepairAuto, false},
		{"unknown, overridden", kernel.Verdict{}, policy.RepairOn, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h, dir := tree(t, podCgroup)
			log, logged := logtest.NewNullLogger()
			n := newNode(t, h)
			n.log, n.exits.tidier.Log, n.kernel = log, log, tt.kernel
			pol := policy.Default()
			pol.Writeback.Repair = tt.repair
			n.Reload(pol)
			said := len(logged.AllEntries()) == 1 && logged.LastEntry().Level == logrus.InfoLevel &&
				strings.Contains(logged.LastEntry().Message, "writeback.repair: true")
			if said == tt.released || said && logged.LastEntry().Data["kernel"] != tt.kernel.String() {
				t.Errorf("logged %+v", logged.AllEntries())
			}
			logged.Reset()
			// A cgroup that cannot be removed shows that the plugin tried to.
			stuck := filepath.Join(dir, filepath.Dir(podCgroup), "nri-blkio-release", "x")
			if err := os.MkdirAll(stuck, 0o755); err != nil {
				t.Fatal(err)
			}
			n.exits.tidier.Tidy(t.Context(), endedPod{n, newGroup(podCgroup, podCgroup).groupIdentity})
			if got := len(logged.AllEntries()) > 0; got != tt.released {
				t.Errorf("a release was tried: %v, want %v", got, tt.released)
			}
		})
	}
}
