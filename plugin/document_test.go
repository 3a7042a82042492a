package plugin

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/plugin/node"
	"github.com/nri-blkio/nri-blkio/plugin/poddoc"
)

// TestLiveOf verifies that a part that a document omits is unknown, and that one that it does not have is empty.
func TestLiveOf(t *testing.T) {
	const key = "limits.blkio.noderesource.dev/containers"
	for name, tt := range map[string]struct {
		doc  poddoc.Document
		want node.Live
		err  string
	}{
		"nothing": {poddoc.Document{Namespace: "prod", Name: "db-0"}, node.Live{Namespace: "prod", Name: "db-0", Labels: map[string]string{}}, ""},
		"all": {
			poddoc.Document{Annotations: map[string]string{key: "a"}, Labels: map[string]string{"tier": "b"}},
			node.Live{Annotations: map[string]string{key: "a"}, Labels: map[string]string{"tier": "b"}},
			"",
		},
		"omitted": {
			poddoc.Document{Omitted: map[string]string{poddoc.PartAnnotations: "65 of them (maximum 64)", poddoc.PartLabels: "9000 bytes (maximum 8192)"}},
			node.Live{},
			"too many annotations of this domain: 65 of them (maximum 64)",
		},
	} {
		got := liveOf(&tt.doc)
		if (got.Err == nil) != (tt.err == "") || got.Err != nil && got.Err.Error() != tt.err {
			t.Errorf("%s: error %v, want %q", name, got.Err, tt.err)
		}
		got.Err = nil
		if d := cmp.Diff(&tt.want, got); d != "" {
			t.Errorf("%s: -want +got:\n%s", name, d)
		}
	}
}
