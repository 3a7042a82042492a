package plugin

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/plugin/node"
	"github.com/nri-blkio/nri-blkio/plugin/poddoc"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/policy"
)

// TestLiveOf verifies that a part that a document omits is unknown, and that one that it does not have is empty.
func TestLiveOf(t *testing.T) {
	const key = "limits.blkio.noderesource.dev/containers"
	none := policy.NewClaims(nil)
	for name, tt := range map[string]struct {
		doc  poddoc.Document
		want node.Live
		err  string
	}{
		"nothing": {poddoc.Document{Namespace: "prod", Name: "db-0"}, node.Live{Namespace: "prod", Name: "db-0", Labels: map[string]string{}, Claims: none}, ""},
		"all": {
			poddoc.Document{Annotations: map[string]string{key: "a"}, Labels: map[string]string{"tier": "b"}, NamespaceLabels: map[string]string{"plan": "c"}},
			node.Live{Annotations: map[string]string{key: "a"}, Labels: map[string]string{"tier": "b"}, NamespaceLabels: map[string]string{"plan": "c"}, Claims: none},
			"",
		},
		"only the namespace": {
			poddoc.Document{
				Namespace: "prod", Name: "db-0", NamespaceLabels: map[string]string{"plan": "c"},
				Omitted: map[string]string{poddoc.PartAnnotations: poddoc.NotRead, poddoc.PartLabels: poddoc.NotRead, poddoc.PartVolumes: poddoc.NotRead},
			},
			node.Live{Namespace: "prod", Name: "db-0", NamespaceLabels: map[string]string{"plan": "c"}, OnlyNamespace: true},
			"",
		},
		"omitted": {
			poddoc.Document{Omitted: map[string]string{poddoc.PartAnnotations: "65 of them (maximum 64)", poddoc.PartLabels: "9000 bytes (maximum 8192)", poddoc.PartNamespaceLabels: "9001 bytes (maximum 8192)"}},
			node.Live{Claims: none},
			"too many annotations of this domain: 65 of them (maximum 64)",
		},
	} {
		got := liveOf(&tt.doc)
		if (got.Err == nil) != (tt.err == "") || got.Err != nil && got.Err.Error() != tt.err {
			t.Errorf("%s: error %v, want %q", name, got.Err, tt.err)
		}
		if (got.CanBeKnown == nil) != (tt.err == "") {
			t.Errorf("%s: CanBeKnown is set: %t", name, got.CanBeKnown != nil)
		}
		got.Err, got.CanBeKnown = nil, nil
		if d := cmp.Diff(&tt.want, got); d != "" {
			t.Errorf("%s: -want +got:\n%s", name, d)
		}
	}
}

// TestEditFits verifies that the record of a pod has room for the largest edit that a document can have, with the labels
// that the runtime adds.
func TestEditFits(t *testing.T) {
	d := poddoc.Document{
		UID: "0f9bd3ce-7a4e-4b0c-9f52-8d1d5f1c2b3a", Namespace: "prod", Name: "db-0",
		Annotations: map[string]string{"limits.blkio.noderesource.dev/containers": ""}, Labels: map[string]string{},
	}
	size := func(of map[string]string) int {
		return (&record.Edit{Annotations: of}).Size() - (&record.Edit{}).Size()
	}
	d.Annotations["limits.blkio.noderesource.dev/containers"] = strings.Repeat("x", 28<<10-size(d.Annotations))
	for size(d.Labels) < 8<<10-100 {
		d.Labels[fmt.Sprintf("%063d", len(d.Labels))] = ""
	}
	d.Bound()
	if len(d.Omitted) > 0 {
		t.Fatalf("omitted: %v", d.Omitted)
	}
	for _, key := range []string{"namespace", "name", "uid"} {
		d.Labels["io.kubernetes.pod."+key] = strings.Repeat("x", 253)
	}
	ofNamespace := map[string]*string{"a": new(strings.Repeat("x", 2*policy.MaxNamespaceLabels))} // of two policies, while one follows the other
	e := record.Edit{Sandbox: strings.Repeat("f", 64), Annotations: d.Annotations, Labels: d.Labels, NamespaceLabels: ofNamespace}
	if n := e.Size(); n > record.MaxEdit || n < 40<<10 {
		t.Errorf("%d bytes (maximum %d)", n, record.MaxEdit)
	}
}
