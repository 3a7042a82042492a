package cluster

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nri-blkio/nri-blkio/plugin/poddoc"
	"github.com/nri-blkio/nri-blkio/plugin/podfacts"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

// TestKept verifies that of each object only what the document needs is kept.
func TestKept(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	class := "gold"
	invalid := "../x"
	bound := newClaim("wbps=1Mi")
	bound.Spec.VolumeAttributesClassName = &class
	unnamed := newClaim("")
	unnamed.Spec.VolumeAttributesClassName = &invalid
	parameters := map[string]string{
		"rbps": "1", "blkio.noderesource.dev/wbps": "2", "example.com/riops": "3", "iops": "4", "wiops": long,
	}
	for name, tt := range map[string]struct{ object, want any }{
		"namespace":     {newNamespace(map[string]string{"a": "b"}), &poddoc.Document{Version: 1, Facts: podfacts.Facts{NamespaceLabels: map[string]string{"a": "b"}}}},
		"claim":         {bound, &claim{limits: new("wbps=1Mi"), class: "gold"}},
		"invalid class": {unnamed, &claim{limits: new("")}},
		"plain claim":   {&corev1.PersistentVolumeClaim{}, &claim{}},
		"long":          {newClaim(long), &claim{limits: new(long[:poddoc.MaxText+1])}},
		"class":         {&storagev1.VolumeAttributesClass{Parameters: parameters}, map[string]string{"rbps": "1", "blkio.noderesource.dev/wbps": "2", "wiops": long[:poddoc.MaxRate+1]}},
		"no parameters": {&storagev1.VolumeAttributesClass{}, map[string]string{}},
		"unknown":       {&corev1.Secret{}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := kept(tt.object)
			if a, ok := got.(*claim); ok {
				b := tt.want.(*claim)
				equal(t, "limits", b.limits, a.limits)
				b.limits, a.limits = nil, nil
				if *a != *b {
					t.Errorf("%+v, want %+v", *a, *b)
				}
				return
			}
			equal(t, "kept", tt.want, got)
		})
	}
}

// lookupOf returns a lookup of what is kept. All other objects do not exist.
func lookupOf(objects map[Ref]any) lookup {
	return func(r Ref) (any, bool) { return objects[r], true }
}

// TestRefs verifies that the class of a claim is needed as soon as the claim is known.
func TestRefs(t *testing.T) {
	p := reported(newTestPod("db-0", testUID, "a", "b")).pod
	first := []Ref{namespaceRef(), claimRef("a"), claimRef("b")}
	equal(t, "without claims", first, p.refs(lookupOf(nil), ""))
	got := p.refs(lookupOf(map[Ref]any{
		claimRef("a"): &claim{class: "gold"}, claimRef("b"): &claim{class: "gold"},
	}), "")
	equal(t, "with claims", []Ref{first[0], first[1], {AttributesClasses, "", "gold"}, first[2]}, got)
}

// TestDocument verifies that the same pod gives other documents with other objects, and is not changed.
func TestDocument(t *testing.T) {
	p := reported(newTestPod("db-0", testUID, "a")).pod
	p.doc.Omitted = map[string]string{podfacts.PartAnnotations: "x"}
	p.doc.Annotations = nil
	gold := Ref{AttributesClasses, "", "gold"}
	for name, tt := range map[string]struct {
		objects map[Ref]any
		want    func(*poddoc.Document)
	}{
		"nothing exists": {nil, func(*poddoc.Document) {}},
		"all": {
			map[Ref]any{
				namespaceRef(): kept(newNamespace(map[string]string{"tier": "gold"})), claimRef("a"): &claim{limits: new("wbps=1Mi"), class: "gold", size: 7},
				gold: map[string]string{"wbps": "2"},
			},
			func(d *poddoc.Document) {
				d.NamespaceLabels = map[string]string{"tier": "gold"}
				v := &d.Volumes[0]
				v.Limits, v.Size = new("wbps=1Mi"), 7
				v.Class = &policy.ClaimClass{Name: "gold", Rates: map[string]string{"wbps": "2"}}
			},
		},
		"absent class": {
			map[Ref]any{claimRef("a"): &claim{class: "gold"}},
			func(d *poddoc.Document) { d.Volumes[0].Class = &policy.ClaimClass{Name: "gold"} },
		},
		"large": {
			map[Ref]any{
				namespaceRef(): kept(newNamespace(manyLabels(1000))), gold: map[string]string{"wbps": strings.Repeat("1", 65)},
				claimRef("a"): &claim{class: "gold", limits: new(strings.Repeat("x", poddoc.MaxText+1))},
			},
			func(d *poddoc.Document) {
				d.Omitted[podfacts.PartNamespaceLabels] = "14892 bytes (maximum 8192)"
				d.Volumes[0].Class = &policy.ClaimClass{Name: "gold"}
				d.Volumes[0].Omitted = map[string]string{poddoc.PartLimits: "more than 4096 bytes", poddoc.PartParameters: "a rate of more than 64 bytes"}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			want := poddoc.Document{
				Version: 1, UID: testUID,
				Facts: podfacts.Facts{
					Namespace: "prod", Name: "db-0", Labels: map[string]string{},
					Omitted: map[string]string{podfacts.PartAnnotations: "x"},
					Volumes: []policy.ClaimVolume{{Name: "v-a", Claim: "a", Places: []policy.Place{{Container: "db", Path: "/a"}}}},
				},
			}
			tt.want(&want)
			got := p.document(lookupOf(tt.objects), testNode)
			equal(t, "document", &want, got)
			if _, err := poddoc.Format().Encode(got); err != nil {
				t.Error(err)
			}
			if len(p.doc.Omitted) != 1 || p.doc.Volumes[0].Limits != nil {
				t.Errorf("the pod has changed: %+v", p.doc)
			}
		})
	}
}

func manyLabels(n int) map[string]string {
	out := map[string]string{}
	for i := range n {
		out[fmt.Sprintf("l%d", i)] = "vvvvv"
	}
	return out
}

// TestWithoutVolumes verifies that a pod with too many claims keeps its annotations.
func TestWithoutVolumes(t *testing.T) {
	p := reported(newTestPod("db-0", testUID, "a")).pod
	d := p.withoutVolumes("no room").document(lookupOf(nil), "")
	if d.Annotations == nil || d.Volumes != nil || d.Omitted[podfacts.PartVolumes] != "no room" || len(p.doc.Volumes) != 1 || p.doc.Omitted != nil {
		t.Errorf("document %+v, pod %+v", d, p.doc)
	}
	equal(t, "objects", []Ref{namespaceRef()}, p.withoutVolumes("x").refs(lookupOf(nil), ""))
}

// TestParameters verifies that what the part passes on, the document takes.
func TestParameters(t *testing.T) {
	all := map[string]string{}
	for _, key := range annotation.Parameters() {
		all[key] = "1"
	}
	got, _ := kept(&storagev1.VolumeAttributesClass{ObjectMeta: metav1.ObjectMeta{Name: "x"}, Parameters: all}).(map[string]string)
	equal(t, "parameters", all, got)
	if poddoc.ClaimKey != "limits."+annotation.Domain {
		t.Error("the annotation of a claim is not of the domain")
	}
}
