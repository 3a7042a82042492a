package policy

import (
	"slices"
	"testing"

	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// TestCarried verifies that limits of the pod as a whole that an ended container has brought stay while pod-total asks for
// them, and that no other limit stays, unless the policy refuses what asks for it.
func TestCarried(t *testing.T) {
	const before = "* wbps=9Mi; rootfs riops=90; /logs wbps=5Mi; /data/wal wbps=7Mi rbps=8Mi"
	ended := db()
	live := Container{Name: "live", Rootfs: on(sda), Mounts: []Mount{mount("/other", on(sdb))}}
	for name, tt := range map[string]struct {
		policy, now string
		want        []string
	}{
		"same":                    {"", before, []string{"sda wbps=9437184 riops=90", "sdb wbps=5242880", "sdc rbps=8388608 wbps=7340032"}},
		"another amount":          {"", "* wbps=9Mi; rootfs riops=90; /logs wbps=5Mi; /data/wal wbps=6Mi", []string{"sda wbps=9437184 riops=90", "sdb wbps=5242880"}},
		"another target":          {"", "* wbps=9Mi; rootfs riops=90; /log wbps=5Mi", []string{"sda wbps=9437184 riops=90", "sdb wbps=9437184"}},
		"another place":           {"", "/logs wbps=5Mi; * wbps=9Mi; rootfs riops=90", []string{"sda wbps=9437184 riops=90", "sdb wbps=9437184"}},
		"a lower one by the star": {"", "* wbps=4Mi; rootfs riops=90; /logs wbps=5Mi", []string{"sda wbps=4194304 riops=90", "sdb wbps=4194304"}},
		"none":                    {"", "", nil},
		"ignored by the policy":   {"rules: [{name: all, annotations: ignore}]\n", before, nil},
		"refused by the policy":   {"floors: {bps: 6Mi}\n", before, []string{"sda wbps=9437184 riops=90", "sdb wbps=9437184", "sdc rbps=8388608 wbps=7340032"}},
		"rejected by the policy":  {"rules: [{name: all, annotations: reject}]\n", before, []string{"sda wbps=9437184 riops=90", "sdb wbps=5242880", "sdc rbps=8388608 wbps=7340032"}},
	} {
		t.Run(name, func(t *testing.T) {
			former, err := Default().ForPod(&PodFacts{}, annotation.Parse(map[string]string{keyTotal: before})).Total([]Container{ended, live})
			if err != nil {
				t.Fatal(err)
			}
			annotations := map[string]string{}
			if tt.now != "" {
				annotations[keyTotal] = tt.now
			}
			pod := parsed(t, tt.policy).ForPod(&PodFacts{}, annotation.Parse(annotations))
			now, _ := pod.Total([]Container{live})
			former.Settings = former.Settings.Carry()
			pod.Carry(&now, &former, "")
			if got := limits(now); !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// TestCarriedWithoutTarget verifies that a limit from a long record, which has no targets, stands while the policy refuses its entry.
func TestCarriedWithoutTarget(t *testing.T) {
	r := annotation.Parse(map[string]string{keyTotal: "/logs wbps=5Mi"})
	before, err := Default().ForPod(&PodFacts{}, r).Total([]Container{db()})
	if err != nil || len(before.Settings) != 1 {
		t.Fatalf("%v, %v", before.Settings, err)
	}
	before.Settings = before.Settings.Carry()
	before.Settings[0].Source.Target = ""
	pod := parsed(t, "floors: {bps: 6Mi}\n").ForPod(&PodFacts{}, r)
	now, _ := pod.Total(nil)
	if pod.Carry(&now, &before, ""); !slices.Equal(limits(now), limits(before)) {
		t.Errorf("%q, want %q", limits(now), limits(before))
	}
}
