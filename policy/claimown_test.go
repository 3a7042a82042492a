package policy

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// classed returns the volume with the class fast of its claim that has these rates of wbps and riops, "" for none.
func (v Volume) classed(wbps, riops string) Volume {
	v.Class = &ClaimClass{Name: "fast", Rates: map[string]string{"wbps": wbps, "riops": riops}}
	maps.DeleteFunc(v.Class.Rates, func(_, text string) bool { return text == "" })
	return v
}

// sized returns the volume with a size of its claim in GiB.
func (v Volume) sized(gib int64) Volume {
	v.Size = gib << 30
	return v
}

// driven returns the volume with a rate of wbps that the storage driver wrote.
func (v Volume) driven(wbps string) Volume {
	v.Attachment = &ClaimAttachment{Driver: "csi.example.com", Rates: map[string]string{"qos.linbit.com/wbps": wbps}}
	return v
}

// TestClaimOwnLimits verifies that for each key the annotation of a claim beats its class, and that beats the storage driver, and that a rate grows
// with the size of the claim.
func TestClaimOwnLimits(t *testing.T) {
	wal := claimOf("wal", "db:/data/wal")
	for name, tt := range map[string]struct {
		volume Volume
		want   []string
	}{
		"the class first": {wal.classed("2Mi", "").driven("3145728"), []string{"sdc wbps=2Mi from claim wal, class fast"}},
		"all three": {wal.limited("rbps=4Mi").classed("", "80").driven("3145728"), []string{
			"sdc rbps=4Mi from claim wal", "sdc wbps=3Mi from claim wal, driver csi.example.com", "sdc riops=80 from claim wal, class fast",
		}},
		"grown": {wal.limited("wbps=1Mi+1Mi/Gi..5Mi").classed("", "5/Gi").sized(3), []string{
			"sdc wbps=4Mi from claim wal", "sdc riops=15 from claim wal, class fast",
		}},
	} {
		d, err := decideClaims(t, "", nil, NewVolumes([]Volume{tt.volume}))
		if diff := cmp.Diff(tt.want, sources(d)); err != nil || len(d.Claims) > 0 || diff != "" {
			t.Errorf("%s: %v, %v, -want +got:\n%s", name, err, d.Claims, diff)
		}
	}
}
