package poddoc

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/nri-blkio/nri-blkio/plugin/podfacts"
	"github.com/nri-blkio/nri-blkio/policy"
)

// TestBound verifies that a part that is too large is omitted, with the cause, and the others stay.
func TestBound(t *testing.T) {
	large := strings.Repeat("x", 40<<10)
	for name, tt := range map[string]struct {
		change func(*Document)
		want   map[string]string // omitted of the document
	}{
		"none":             {func(*Document) {}, nil},
		"annotations":      {func(d *Document) { d.Annotations["limits."+"blkio.noderesource.dev/pod-total"] = large }, map[string]string{podfacts.PartAnnotations: "41133 bytes (maximum 28672)"}},
		"many annotations": {func(d *Document) { d.Annotations = many(65) }, map[string]string{podfacts.PartAnnotations: "65 of them (maximum 64)"}},
		"labels of a pod":  {func(d *Document) { d.Labels = labels() }, map[string]string{podfacts.PartLabels: "14602 bytes (maximum 8192)"}},
		"labels":           {func(d *Document) { d.NamespaceLabels = labels() }, map[string]string{podfacts.PartNamespaceLabels: "14602 bytes (maximum 8192)"}},
		"many volumes":     {func(d *Document) { d.Volumes = claims(129) }, map[string]string{podfacts.PartVolumes: "129 of them (maximum 128)"}},
		"large volumes":    {func(d *Document) { d.Volumes = claims(100) }, map[string]string{podfacts.PartVolumes: "36102 bytes (maximum 27648)"}},
		"all": {
			func(d *Document) {
				d.Annotations, d.Labels, d.NamespaceLabels, d.Volumes = many(65), labels(), labels(), claims(129)
			},
			map[string]string{
				podfacts.PartAnnotations: "65 of them (maximum 64)", podfacts.PartLabels: "14602 bytes (maximum 8192)", podfacts.PartNamespaceLabels: "14602 bytes (maximum 8192)", podfacts.PartVolumes: "129 of them (maximum 128)",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := sample()
			tt.change(d)
			d.Bound()
			equal(t, tt.want, d.Omitted)
			there := map[string]bool{podfacts.PartAnnotations: d.Annotations != nil, podfacts.PartLabels: d.Labels != nil, podfacts.PartNamespaceLabels: d.NamespaceLabels != nil, podfacts.PartVolumes: d.Volumes != nil}
			for part, is := range there {
				if _, omitted := tt.want[part]; is == omitted {
					t.Errorf("%s is there: %t", part, is)
				}
			}
			if got, err := Format().Decode(encoded(t, d)); err != nil {
				t.Error(err)
			} else {
				equal(t, d, got)
			}
		})
	}
}

func labels() map[string]string {
	out := map[string]string{}
	for i := range 200 {
		out[fmt.Sprintf("l%04d", i)] = strings.Repeat("v", 62)
	}
	return out
}

// claims returns volumes whose names are not sorted.
func claims(n int) []policy.Volume {
	var out []policy.Volume
	for i := range n {
		name := fmt.Sprintf("v%03d", i)
		out = append(out, policy.Volume{Name: name, Claim: name, Places: []policy.Place{{Container: "c", Path: "/" + strings.Repeat("d", 290)}}})
	}
	slices.Reverse(out)
	return out
}

// TestBoundVolume verifies that what is too large in a volume is omitted there, and mounts are those of the
// runtime.
func TestBoundVolume(t *testing.T) {
	long := strings.Repeat("w", MaxText+1)
	d := Document{
		UID: testUID,
		Facts: podfacts.Facts{
			Namespace: "a",
			Name:      "b",
			Volumes: []policy.Volume{{
				Name: "v", Claim: "c", Limits: &long,
				Places: []policy.Place{{Container: "b", Path: "rel/./x"}, {Container: "a", Path: "/z/"}, {Container: "a", Path: "/y"}, {Container: "a", Path: "/z"}, {Container: "a", Path: "/" + strings.Repeat("p", maxPath)}, {Container: "../x", Path: "/y"}},
				Class:  &policy.ClaimClass{Name: "gold", Rates: map[string]string{"rbps": strings.Repeat("1", MaxRate+1), "wbps": "1"}},

				Attachment: &policy.ClaimAttachment{Driver: "csi", Rates: map[string]string{"qos.linbit.com/rbps": strings.Repeat("1", MaxRate+1)}},
			}},
		},
	}
	d.Bound()
	equal(t, []policy.Volume{{
		Name: "v", Claim: "c", Places: []policy.Place{{Container: "a", Path: "/y"}, {Container: "a", Path: "/z"}, {Container: "b", Path: "/rel/x"}}, Class: &policy.ClaimClass{Name: "gold"}, Attachment: &policy.ClaimAttachment{Driver: "csi"},
		Omitted: map[string]string{PartLimits: "more than 4096 bytes", PartParameters: "a rate of more than 64 bytes", PartMetadata: "a rate of more than 64 bytes"},
	}}, d.Volumes)
	encoded(t, &d)
}

// FuzzBound verifies that whatever the texts are, the document can be encoded, and its bytes are the same again.
func FuzzBound(f *testing.F) {
	f.Add("* wbps=50Mi", "v", "wbps=1Mi", "/data", uint8(3))
	f.Add("\xff\x00\u2028<&>", "\xfe", strings.Repeat("\x01", 5000), "../..//x", uint8(200))
	f.Fuzz(func(t *testing.T, text, label, limits, path string, n uint8) {
		d := &Document{UID: testUID, Facts: podfacts.Facts{Namespace: "a", Name: "b", Annotations: many(int(n)), NamespaceLabels: map[string]string{"l": "x"}}}
		for _, key := range slices.Sorted(maps.Keys(d.Annotations)) {
			d.Annotations[key] = text
		}
		if len(label) <= 20 { // the API server bounds it, and each byte may become three
			d.NamespaceLabels["l"] = label
		}
		for i := range n {
			d.Volumes = append(d.Volumes, policy.Volume{
				Name: fmt.Sprintf("v%d", i), Claim: "c", Limits: &limits, Places: []policy.Place{{Container: "a", Path: path}},
				Class:      &policy.ClaimClass{Name: "gold", Rates: map[string]string{"wbps": text}},
				Attachment: &policy.ClaimAttachment{Driver: "csi", Rates: map[string]string{"qos.linbit.com/wbps": text}}, Size: int64(n),
			})
		}
		d.Bound()
		data := encoded(t, d)
		got, err := Format().Decode(data)
		if err != nil {
			t.Fatalf("%v: %q", err, data)
		}
		equal(t, d, got)
	})
}
