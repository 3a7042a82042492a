package node

import (
	"testing"

	"github.com/nri-blkio/nri-blkio/policy"
)

// claimsOf returns the claim "data" of the containers a and b, with this annotation, "" for none.
func claimsOf(text string) *policy.Claims {
	v := policy.ClaimVolume{Claim: "data", Places: []policy.Place{{Container: "a", Path: "/data"}, {Container: "b", Path: "/data"}}}
	if text != "" {
		v.Limits = &text
	}
	return policy.NewClaims([]policy.ClaimVolume{v})
}

// claim has the API server know these claims, and annotations as KEY, VALUE...
func (l *liveNode) claim(claims *policy.Claims, pairs ...string) {
	l.SetLive("u1", &Live{Namespace: "prod", Name: "db-0", Annotations: annotationsOf(pairs...), Claims: claims})
	l.pass(l.t.Context())
}

// TestClaimsAreNoEdit verifies that changed claims alone are not in the record of a pod, as edited labels are, and that the event of
// rejected claims names them.
func TestClaimsAreNoEdit(t *testing.T) {
	r := newRequest(FactsOf("prod", map[string]string{"tier": "a"}, "", ""), nil)
	claims := claimsOf("wbps=1Mi")
	if got := r.changed(r.facts.Labels, claims).record("sb"); got != nil {
		t.Errorf("the record of changed claims is %+v", got)
	}
	labelled := r.changed(map[string]string{"tier": "b"}, claims)
	for name, next := range map[string]*request{"labels": labelled, "claims after labels": labelled.changed(labelled.facts.Labels, claimsOf(""))} {
		if got := next.record("sb"); got == nil || got.Labels["tier"] != "b" {
			t.Errorf("%s: the record is %+v", name, got)
		}
	}
	rejected := edit{next: labelled, err: &rejectedEdit{partClaims, errNoAnswer}}
	const want = "the limits of a claim were changed, and those before stay in force: one of its disks does not answer"
	if got := rejected.text(); got != want {
		t.Errorf("the event is %q, want %q", got, want)
	}
}

// changed returns a request with the labels and claims of a live change.
func (r *request) changed(labels map[string]string, claims *policy.Claims) *request {
	facts := r.facts
	facts.Labels, facts.Claims = labels, claims
	return r.withFacts(&facts)
}
