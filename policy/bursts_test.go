package policy

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// TestBursts verifies which bursts the policy allows, and that bounds hold for the limit below.
func TestBursts(t *testing.T) {
	const bursts, bound = "bursts: ['* wbps=80Mi riops=max']\n", "bounds: {max: ['* wbps=30Mi']}\n"
	for _, tt := range []struct{ policy, value, err string }{
		{"", "rootfs wbps=20Mi", ""},
		{"", "rootfs wbps=20Mi wbps.burst=21Mi/60s", "wbps.burst=21Mi/60s is not allowed: bursts of the node policy has no wbps (remove wbps.burst)"},
		{bursts, "rootfs rbps=20Mi rbps.burst=21Mi/60s", "rbps.burst=21Mi/60s is not allowed: bursts of the node policy has no rbps (remove rbps.burst)"},
		{bursts + bound, "rootfs wbps=20Mi wbps.burst=100Mi/60s riops=9 riops.burst=1M/1s", ""},
		{bursts + bound, "rootfs wbps=20Mi wbps.burst=101Mi/60s", "wbps.burst=101Mi/60s is above the bound (write at most 80Mi more than wbps, by bursts of the node policy)"},
		{bursts + bound, "rootfs wbps=31Mi wbps.burst=100Mi/60s", "wbps=31Mi is above the bound (write at most 30Mi, bounds.max of the node policy)"},
	} {
		p := parsed(t, tt.policy)
		d, err := p.ForPod(nil, annotation.Parse(map[string]string{keyEach: tt.value})).Container(db())
		if got := ""; err != nil {
			if got = err.Error(); tt.err == "" || !strings.HasSuffix(got, ": "+tt.err) {
				t.Errorf("%s %s: %s, want %s", tt.policy, tt.value, got, tt.err)
			}
			continue
		}
		s, _ := d.Settings.Get(blkio.Address{Key: blkio.Wbps, Dev: sda.Dev})
		if hasBurst := strings.Contains(tt.value, "wbps.burst"); tt.err != "" || (s.Burst == blkio.Burst{Rate: 100 << 20, Seconds: 60}) != hasBurst {
			t.Errorf("%s %s: %+v, want the error %s", tt.policy, tt.value, s, tt.err)
		}
	}
}

// TestBurstConflict verifies that two bursts for one limit are a conflict.
func TestBurstConflict(t *testing.T) {
	p := parsed(t, "bursts: ['* wbps=max']")
	c := db()
	c.Mounts = []Mount{{Destination: "/a", Backing: &c.Rootfs}, {Destination: "/b", Backing: &c.Rootfs}}
	for burst, isConflict := range map[string]bool{"wbps.burst=9Mi/5s": false, "wbps.burst=9Mi/6s": true, "": true} {
		value := "/a wbps=2Mi wbps.burst=9Mi/5s; /b wbps=2Mi " + burst
		_, err := p.ForPod(nil, annotation.Parse(map[string]string{keyEach: value})).Container(c)
		if (err != nil) != isConflict || isConflict && !strings.Contains(err.Error(), "2Mi with a burst of 9Mi/5s") {
			t.Errorf("%s: %v", value, err)
		}
	}
}

// TestBurstsOfPolicy verifies bursts in the fields of a policy.
func TestBurstsOfPolicy(t *testing.T) {
	for text, want := range map[string]string{
		"bursts: ['* wbps=80Mi']\nclasses: {a: {limits: ['* wbps=2Mi wbps.burst=9Mi/5s']}}": "",
		"classes: {a: {limits: ['* wbps=2Mi wbps.burst=9Mi/5s']}}":                          `classes.a.limits[0]: Invalid value: "* wbps=2Mi wbps.burst=9Mi/5s": wbps.burst=9Mi/5s is not allowed: bursts of the node policy has no wbps (remove wbps.burst)`,
		"bursts: ['rootfs wbps=80Mi']":                                                      `bursts[0]: Invalid value: "rootfs wbps=80Mi": invalid target: a bound holds for each disk (write *)`,
		"bounds: {max: ['* wbps=2Mi wbps.burst=9Mi/5s']}":                                   `bounds.max[0]: Invalid value: "* wbps=2Mi wbps.burst=9Mi/5s": a burst stands in a class or an annotation (remove wbps.burst)`,
		"budgets: [{namespaces: [a], limits: ['* wbps=2Mi wbps.burst=9Mi/5s']}]":            `budgets[0].limits[0]: Invalid value: "* wbps=2Mi wbps.burst=9Mi/5s": a burst stands in a class or an annotation (remove wbps.burst)`,
	} {
		_, err := ParseFile([]byte(fileHead + text))
		got := ""
		if err != nil {
			got = strings.TrimPrefix(err.Error(), "parse policy: line 3: ")
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", text, diff)
		}
	}
}
