package cluster

import (
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
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
		"requested":     {sized("5Gi", ""), &claim{limits: new(""), size: 5 << 30}},
		"expanded":      {sized("5Gi", "7Gi"), &claim{limits: new(""), size: 7 << 30}},
		"absurd size":   {sized("-5Gi", "-1"), &claim{limits: new("")}},
		"huge size":     {sized("1", "16E"), &claim{limits: new(""), size: math.MaxInt64}},
		"volume":        {newVolume("data"), &volume{driver: "csi.example.com", handle: "h", claim: "prod/data"}},
		"free volume":   {&corev1.PersistentVolume{Spec: newVolume("").Spec}, &volume{driver: "csi.example.com", handle: "h", claim: "prod/"}},
		"local volume":  {&corev1.PersistentVolume{}, nil},
		"attachment":    {newAttachment("5", "x"), map[string]string{"qos.linbit.com/wbps": "5"}},
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
			if !reflect.DeepEqual(got, tt.want) {
				t.Errorf("%+v, want %+v", got, tt.want)
			}
		})
	}
}

// sized returns a claim that asks for a size, and has one.
func sized(requested, capacity string) *corev1.PersistentVolumeClaim {
	c := newClaim("")
	c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(requested)}
	if capacity != "" {
		c.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(capacity)}
	}
	return c
}

// newVolume returns the volume that is bound to a claim.
func newVolume(claim string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: volumeRef().Name},
		Spec: corev1.PersistentVolumeSpec{
			ClaimRef:               &corev1.ObjectReference{Namespace: "prod", Name: claim},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "csi.example.com", VolumeHandle: "h"}},
		},
	}
}

// newAttachment returns the attachment of that volume, with a rate and a device in its metadata.
func newAttachment(wbps, device string) *storagev1.VolumeAttachment {
	return &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: attachmentRef().Name},
		Spec:       storagev1.VolumeAttachmentSpec{NodeName: testNode, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: new(volumeRef().Name)}},
		Status:     storagev1.VolumeAttachmentStatus{AttachmentMetadata: map[string]string{"qos.linbit.com/wbps": wbps, "qos.linbit.com/device": device}},
	}
}

func volumeRef() Ref { return Ref{Volumes, "", "pv"} }

// attachmentRef names the attachment of that volume: csi-, and the SHA-256 of "hcsi.example.comworker-1".
func attachmentRef() Ref {
	return Ref{Attachments, "", "csi-9566ce68649aa2ab555ae25cd6971a9d1014b5ad13d09f1cd1583ef20f11713e"}
}

// TestDocumentShares verifies that a document shares no places with what is kept of its pod: bounding a document writes them, while another
// goroutine compares the pod with its next version.
func TestDocumentShares(t *testing.T) {
	p := reported(newTestPod("db-0", testUID, "a")).pod
	d := p.document(lookupOf(nil), "")
	equal(t, "places", p.doc.Volumes[0].Places, d.Volumes[0].Places)
	if &p.doc.Volumes[0].Places[0] == &d.Volumes[0].Places[0] {
		t.Error("the places are shared")
	}
}

// TestAttachment verifies that the metadata of the attachment of a claim's volume to the node is in its document, on request, and
// that a claim has no part of the volume of another claim.
func TestAttachment(t *testing.T) {
	p := reported(newTestPod("db-0", testUID, "a")).pod
	objects := map[Ref]any{claimRef("a"): &claim{volume: "pv"}}
	equal(t, "claim", []Ref{namespaceRef(), claimRef("a"), volumeRef()}, p.refs(lookupOf(objects), testNode))
	equal(t, "not asked for", []Ref{namespaceRef(), claimRef("a")}, p.refs(lookupOf(objects), ""))
	objects[volumeRef()] = kept(newVolume("a"))
	equal(t, "volume", []Ref{namespaceRef(), claimRef("a"), volumeRef(), attachmentRef()}, p.refs(lookupOf(objects), testNode))
	objects[attachmentRef()] = kept(newAttachment("1048576", "/dev/drbd1000"))
	want := &policy.ClaimAttachment{Driver: "csi.example.com", Rates: map[string]string{"qos.linbit.com/wbps": "1048576"}}
	d := p.document(lookupOf(objects), testNode)
	equal(t, "attachment", want, d.Volumes[0].Attachment)
	if _, err := poddoc.Format().Encode(d); err != nil {
		t.Error(err)
	}
	equal(t, "not asked for", (*policy.ClaimAttachment)(nil), p.document(lookupOf(objects), "").Volumes[0].Attachment)
	objects[attachmentRef()] = kept(newAttachment(strings.Repeat("1", 1000), ""))
	d = p.document(lookupOf(objects), testNode)
	equal(t, "long", map[string]string{poddoc.PartMetadata: "a rate of more than 64 bytes"}, d.Volumes[0].Omitted)
	objects[volumeRef()] = kept(newVolume("b"))
	equal(t, "of another claim", []Ref{namespaceRef(), claimRef("a"), volumeRef()}, p.refs(lookupOf(objects), testNode))
	equal(t, "of another claim", (*policy.ClaimAttachment)(nil), p.document(lookupOf(objects), testNode).Volumes[0].Attachment)
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
					Volumes: []policy.Volume{{Name: "v-a", Claim: "a", Places: []policy.Place{{Container: "db", Path: "/a"}}}},
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
