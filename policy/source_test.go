package policy

import (
	"encoding/json"
	"testing"

	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

func TestSource(t *testing.T) {
	for _, tt := range []struct {
		source     Source
		text, json string
	}{
		{Source{}, "", `{"annotation":"","entry":0,"target":""}`},
		{
			from(keyDB, 2, "/data"), "limits/container.db #2",
			`{"annotation":"limits.blkio.noderesource.dev/container.db","entry":2,"target":"/data"}`,
		},
		{from(keyEach, 1, "*"), "limits/containers #1", `{"annotation":"limits.blkio.noderesource.dev/containers","entry":1,"target":"*"}`},
		{
			Source{Kind: FromClass, Name: "bronze", IsStar: true, Target: "*"},
			"class bronze",
			`{"annotation":"class bronze","entry":0,"target":"*"}`,
		},
		{
			Source{Kind: FromRule, Name: "batch/bronze", Target: "/data"},
			"rule batch, class bronze",
			`{"annotation":"rule batch, class bronze","entry":0,"target":"/data"}`,
		},
		{Source{Kind: FromClaim, Name: "data"}, "claim data", `{"annotation":"claim data","entry":0,"target":""}`},
		{Source{Kind: FromClaim, Name: "data.0/fast"}, "claim data.0, class fast", `{"annotation":"claim data.0, class fast","entry":0,"target":""}`},
		{Source{Kind: FromDriver, Name: "data/csi.example.com"}, "claim data, driver csi.example.com", `{"annotation":"claim data, driver csi.example.com","entry":0,"target":""}`},
		{
			Source{Kind: FromBackstop},
			"backstop: the sum of the containers' limits",
			`{"annotation":"backstop: the sum of the containers' limits","entry":0,"target":""}`,
		},
	} {
		if got := tt.source.String(); got != tt.text {
			t.Errorf("%+v is %q, want %q", tt.source, got, tt.text)
		}
		data, err := json.Marshal(tt.source)
		if err != nil || string(data) != tt.json {
			t.Errorf("%s, %v, want %s", data, err, tt.json)
		}
	}
}

func TestSourceKind(t *testing.T) {
	for k := range FromBackstop + 1 {
		if got, ok := ParseSourceKind(k.String()); !ok || got != k {
			t.Errorf("%q is %d, %v, want %d", k.String(), got, ok, k)
		}
	}
	if k, ok := ParseSourceKind("gossip"); ok {
		t.Errorf("gossip is %d", k)
	}
}

// TestConcerns verifies that an error of an annotation as a whole is one of each of its entries.
func TestConcerns(t *testing.T) {
	entry := from(keyDB, 2, "backstop: the sum of the containers' limits")
	for _, tt := range []struct {
		err    annotation.Error
		source Source
		want   bool
	}{
		{annotation.Error{Identity: annotation.Identity{From: annotation.Origin{Annotation: keyDB}, Entry: 2}}, entry, true},
		{annotation.Error{Identity: annotation.Identity{From: annotation.Origin{Annotation: keyDB}}}, entry, true},
		{annotation.Error{Identity: annotation.Identity{From: annotation.Origin{Annotation: keyDB}, Entry: 1}}, entry, false},
		{annotation.Error{Identity: annotation.Identity{From: annotation.Origin{Annotation: keyEach}, Entry: 2}}, entry, false},
		{annotation.Error{Identity: annotation.Identity{From: annotation.Origin{Annotation: keyDB}, Entry: 2}}, Source{Kind: FromClaim, Name: keyDB, Entry: 2}, false},
	} {
		if got := concerns(&tt.err, tt.source); got != tt.want {
			t.Errorf("%v of %+v: %v, want %v", tt.err, tt.source, got, tt.want)
		}
	}
}
