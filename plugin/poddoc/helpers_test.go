package poddoc

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nri-blkio/nri-blkio/plugin/podfacts"
	"github.com/nri-blkio/nri-blkio/policy"
	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

const testUID = "0f9bd3ce-7a4e-4b0c-9f52-8d1d5f1c2b3a"

// sample returns a document with each field.
func sample() *Document {
	limits := "wbps=50Mi"
	return &Document{
		Version: Version,
		UID:     testUID,
		Facts: podfacts.Facts{
			Namespace:       "prod",
			Name:            "db-0",
			Annotations:     map[string]string{"limits.blkio.noderesource.dev/containers": "* wbps=20Mi; \"/a <b>\" riops=1k", "weight.blkio.noderesource.dev/containers": "50"},
			Labels:          map[string]string{"app": "db"},
			NamespaceLabels: map[string]string{"kubernetes.io/metadata.name": "prod", "tier": ""},
			Owner:           podfacts.Owner{Name: "virt-launcher-db", UID: "4c0fcb36-99a7-4ecd-9f6d-0d2a1d0d2f6e"},
			Volumes: []policy.Volume{
				{
					Name: "data", Claim: "data-db-0", Limits: &limits,
					Places: []policy.Place{{Container: "db", Path: "/var/lib/postgresql"}, {Container: "db", Path: "/wal"}, {Container: "init", Path: "/data"}},
					Class:  &policy.ClaimClass{Name: "gold", Rates: map[string]string{"wbps": "50Mi", annotation.OwnPrefix + "riops": "1k"}},
					Size:   10 << 30, Attachment: &policy.ClaimAttachment{Driver: "CSI.example.com", Rates: map[string]string{"qos.linbit.com/rbps": "7"}},
				},
				{Name: "gone", Claim: "gone"},
				{Name: "host", Places: []policy.Place{{Container: "db", Path: "/host"}}},
				{
					Name: "raw", Claim: "raw", Class: &policy.ClaimClass{Name: "absent"}, Omitted: map[string]string{PartLimits: "more than 4096 bytes"},
				},
			},
		},
	}
}

// encoded returns the bytes of a document, which has to be valid.
func encoded(t *testing.T, d *Document) []byte {
	t.Helper()
	data, err := Format().Encode(d)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// equal reports a difference.
func equal(t *testing.T, want, got any) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// contains reports an error without a text.
func contains(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %q", err, want)
	}
}
