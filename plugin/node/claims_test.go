package node

import (
	"testing"

	"github.com/nri-blkio/nri-blkio/plugin/podfacts"
	"github.com/nri-blkio/nri-blkio/policy"
)

// claimsOf returns the claim "data" of the containers a and b, with this annotation, "" for none.
func claimsOf(text string) []policy.ClaimVolume {
	v := policy.ClaimVolume{Claim: "data", Places: []policy.Place{{Container: "a", Path: "/data"}, {Container: "b", Path: "/data"}}}
	if text != "" {
		v.Limits = &text
	}
	return []policy.ClaimVolume{v}
}

// claim has the API server know these claims, and annotations as KEY, VALUE...
func (l *liveNode) claim(claims []policy.ClaimVolume, pairs ...string) {
	l.SetLive("u1", &podfacts.Facts{Namespace: "prod", Name: "db-0", Annotations: annotationsOf(pairs...), Volumes: claims})
	l.pass(l.t.Context())
}

// TestRejectedClaims verifies that the event of rejected claims names them.
func TestRejectedClaims(t *testing.T) {
	rejected := edit{next: &podfacts.Request{}, err: &rejectedEdit{podfacts.Claims, errNoAnswer}}
	const want = "the limits of a claim were changed, and those before stay in force: one of its disks does not answer"
	if got := rejected.text(); got != want {
		t.Errorf("the event is %q, want %q", got, want)
	}
}
