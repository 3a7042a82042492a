package plan

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy"
)

// TestMark verifies which values of a spec are this program's by the mark of its container.
func TestMark(t *testing.T) {
	rate, weight := setting(blkio.Wbps, 5), setting(blkio.Weight, 50)
	both := rate.Join(weight)
	for _, tt := range []struct {
		name string
		mark string
		spec policy.Settings
		want OCISpec
	}{
		{"all of it", Mark("id", both), both, OCISpec{Own: both}},
		{"one file, and another program the other one", Mark("id", rate), both, OCISpec{Own: rate, Others: weight}},
		{"decided, and nothing was to be set", Mark("id", nil), both, OCISpec{Others: both}},
		{"no mark", "", both, OCISpec{Others: both}},
		{"another container, whose mark a tenant can know", Mark("other", both), both, OCISpec{Others: both}},
		{"other values", Mark("id", setting(blkio.Wbps, 6)), rate, OCISpec{Others: rate}},
		{"a value more", Mark("id", rate), rate.Join(setting(blkio.Rbps, 5)), OCISpec{Others: rate.Join(setting(blkio.Rbps, 5))}},
		{"nothing", Mark("id", nil), nil, OCISpec{}},
		{"memory.high is set once", Mark("id", setting(blkio.MemoryHigh, 1<<30)), nil, OCISpec{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if len(tt.mark) > 64 {
				t.Errorf("the mark has %d bytes", len(tt.mark))
			}
			got := ReadSpec("id", tt.mark, Unified(tt.spec))
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(tt.spec, got.Values()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestStale verifies which values of a spec are replaced or removed.
func TestStale(t *testing.T) {
	to := func(k blkio.Key, from, to blkio.Amount) []blkio.Replacement {
		return []blkio.Replacement{{Address: setting(k, 1)[0].Address, From: from, To: to}}
	}
	five, weight := setting(blkio.Wbps, 5), setting(blkio.Weight, 50)
	for _, tt := range []struct {
		name    string
		spec    OCISpec
		desired policy.Settings
		keep    bool
		want    []blkio.Replacement
	}{
		{name: "nothing", desired: five},
		{name: "the same", spec: OCISpec{Own: five}, desired: five},
		{name: "raised", spec: OCISpec{Own: five}, desired: setting(blkio.Wbps, 7), want: to(blkio.Wbps, 5, 7)},
		{name: "lowered", spec: OCISpec{Own: five}, desired: setting(blkio.Wbps, 3)},
		{name: "not desired", spec: OCISpec{Own: five}, want: to(blkio.Wbps, 5, blkio.Max)},
		{name: "not desired as far as is known", spec: OCISpec{Own: five}, keep: true},
		{name: "another weight", spec: OCISpec{Own: weight}, desired: setting(blkio.Weight, 70)},
		{name: "no weight", spec: OCISpec{Own: weight}, want: to(blkio.Weight, 50, 100)},
		{name: "lower value of another program", spec: OCISpec{Others: five}, desired: setting(blkio.Wbps, 7), want: to(blkio.Wbps, 5, 7)},
		{name: "value of another program", spec: OCISpec{Others: five.Join(weight)}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, tt.spec.stale(tt.desired, tt.keep)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestStaleOfMode verifies that all values that this program put into the spec go where settings are only observed, and that
// they stay while not all disks are known.
func TestStaleOfMode(t *testing.T) {
	for _, tt := range []struct {
		mode    policy.Mode
		partial bool
		stale   int
	}{
		{policy.ModeEnforce, false, 1},
		{policy.ModeEnforce, true, 0},
		{policy.ModeObserve, false, 2},
		{policy.ModeObserve, true, 2},
	} {
		pol := policy.Default()
		pol.Mode = tt.mode
		v := viewOf(t, pol, map[string]string{limits + "containers": "rootfs wbps=1Mi"}, "a")
		v.Running[0].Partial = tt.partial
		v.Running[0].Spec = OCISpec{Own: setting(blkio.Wbps, 1<<20).Join(setting(blkio.Weight, 50))}
		if got := New(v).Containers[0].Stale; len(got) != tt.stale {
			t.Errorf("%s, partial %v: %v", tt.mode, tt.partial, got)
		}
	}
}
