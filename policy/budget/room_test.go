package budget

import (
	"slices"
	"testing"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
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
			pod := parsed(t, budget).ForPod(&policy.PodFacts{Namespace: "a"}, annotation.Parse(annotations))
			c := policy.Container{Name: "db", Rootfs: on(sda)}
			d, _ := pod.Container(c)
			total, _ := pod.Total([]policy.Container{c})
			claim := Claim{Pod: pod, Desired: &d, Total: total.Settings, Own: tt.granted.own(), Others: tt.granted.others}
			var want policy.Settings
			if tt.want != 0 {
				want = policy.Settings{{Value: blkio.Value{Address: wbpsOfSda, Amount: tt.want}, Source: fromBudget, Basis: policy.Room}}
			}
			if got := claim.Room(); !slices.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
	free := Claim{Pod: policy.Default().ForPod(&policy.PodFacts{}, nil), Desired: &policy.Desired{}}
	if got := free.Room(); got != nil {
		t.Errorf("without a budget: %v", got)
	}
}
