package policy

import (
	"slices"
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// TestRoom verifies that the limits of Room keep a budget of 200 MiB/s, and that there are none where it has room.
func TestRoom(t *testing.T) {
	const budget = "budgets: [{namespaces: [a], limits: ['* wbps=200Mi']}]\n"
	for name, tt := range map[string]struct {
		each, total string
		granted     grantedBefore
		want        blkio.Amount // 0 for none
	}{
		"room":                       {"* wbps=60Mi", "", grantedBefore{Others: 140 * mi}, 0},
		"less room":                  {"* wbps=60Mi", "", grantedBefore{Others: 150 * mi}, 50 * mi},
		"other containers":           {"* wbps=60Mi", "", grantedBefore{Others: 100 * mi, Own: 60 * mi}, 40 * mi},
		"no room":                    {"* wbps=60Mi", "", grantedBefore{Others: 200 * mi}, 64 << 10},
		"over the budget":            {"* wbps=60Mi", "", grantedBefore{Others: 300 * mi, Own: 7 * mi}, 64 << 10},
		"an unlimited pod":           {"* wbps=60Mi", "", grantedBefore{Others: blkio.Max}, 64 << 10},
		"no limit":                   {"", "", grantedBefore{Others: 150 * mi}, 50 * mi},
		"pod-total":                  {"", "* wbps=50Mi", grantedBefore{Others: 150 * mi}, 0},
		"above pod-total":            {"* wbps=90Mi", "* wbps=50Mi", grantedBefore{Others: 150 * mi}, 0},
		"pod-total without room":     {"", "* wbps=60Mi", grantedBefore{Others: 150 * mi}, 50 * mi},
		"pod-total so far":           {"", "* wbps=60Mi", grantedBefore{Others: 150 * mi, Own: blkio.Max, Bound: 50 * mi}, 0},
		"pod-total so far and a sum": {"* wbps=30Mi", "* wbps=60Mi", grantedBefore{Others: 170 * mi, Own: 20 * mi, Bound: 40 * mi}, 10 * mi},
	} {
		t.Run(name, func(t *testing.T) {
			annotations := map[string]string{}
			for key, value := range map[string]string{keyEach: tt.each, keyTotal: tt.total} {
				if value != "" {
					annotations[key] = value
				}
			}
			pod := parsed(t, budget).ForPod(&PodFacts{Namespace: "a"}, annotation.Parse(annotations))
			c := Container{Name: "db", Rootfs: on(sda)}
			d, _ := pod.Container(c)
			total, _ := pod.Total([]Container{c})
			claim := Claim{Pod: pod, Desired: &d, Total: total.Settings, Own: tt.granted.own(), Others: tt.granted.others}
			var want Settings
			if tt.want != 0 {
				want = Settings{{set(sda, blkio.Wbps, tt.want).Value, fromBudget, Room}}
			}
			if got := claim.Room(); !slices.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
	free := Claim{Pod: Default().ForPod(&PodFacts{}, nil), Desired: &Desired{}}
	if got := free.Room(); got != nil {
		t.Errorf("without a budget: %v", got)
	}
}

// TestTotalOfLate verifies that the mounts of a late container add limits of the pod as a whole, and change none.
func TestTotalOfLate(t *testing.T) {
	pod := Default().ForPod(&PodFacts{}, annotation.Parse(map[string]string{keyTotal: "* wbps=1Mi; /big wbps=9Mi; /mem wbps=3Mi; /logs wbps=2Mi"}))
	plain := Container{Name: "plain", Rootfs: on(sda)}
	late := Container{Name: "late", Rootfs: on(sda), Stage: Late, Mounts: []Mount{mount("/big", on(sda)), mount("/logs", on(sdb)), mount("/mem", tmpfs())}}
	got, err := pod.Total([]Container{late, plain})
	if want := []string{"sda wbps=1048576", "sdb wbps=2097152"}; err != nil || !slices.Equal(limits(got), want) {
		t.Errorf("got %q, %v, want %q", limits(got), err, want)
	}
	alone, err := pod.Total([]Container{late})
	if want := []string{"sda wbps=9437184", "sdb wbps=2097152"}; err != nil || !slices.Equal(limits(alone), want) {
		t.Errorf("alone: got %q, %v, want %q", limits(alone), err, want)
	}
}
