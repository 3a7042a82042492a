package admission

import "testing"

// TestReservedClaims verifies that in a reserved namespace a claim has no limits of its own, and needs no pod-total.
func TestReservedClaims(t *testing.T) {
	p := readValidating(t, "../kubernetes/admission.yaml")
	reserved := func(r *request) *request {
		r.namespace.Annotations = map[string]string{"pod-io-limit": "* wbps=50Mi"}
		return r
	}
	const denial = "the platform sets the limits in this namespace: remove limits.blkio.noderesource.dev"
	p.expect(t, "limits", reserved(createClaim(map[string]string{claimKey: "wbps=1Mi", limits: "x"})), denial)
	p.expect(t, "none", reserved(createClaim(map[string]string{limits: "x", required: "[]"})))
	p.expect(t, "no annotation", reserved(createClaim(nil)))
	r := reserved(createClaim(map[string]string{claimKey: "wbps=1Mi", "a": "b"}))
	r.old = claim(map[string]string{claimKey: "wbps=1Mi"})
	p.expect(t, "an older annotation", r)
	r.old = claim(map[string]string{claimKey: "wbps=2Mi"})
	p.expect(t, "a changed annotation", r, denial)
	p.expect(t, "a pod", reserved(create(map[string]string{total: "* wbps=50Mi", weight: "5"})), "the platform sets the limits in this namespace: remove "+weight)
	p.expect(t, "a pod without the limit", reserved(create(nil)), `pods of this namespace need limits.blkio.noderesource.dev/pod-total: "* wbps=50Mi"`)
}
