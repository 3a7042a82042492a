package node

import (
	"testing"

	"github.com/nri-blkio/nri-blkio/policy"
)

// rules returns a policy with classes and these rules.
func rules(t testing.TB, text string) *policy.Policy {
	t.Helper()
	p, err := policy.ParseFile([]byte(`apiVersion: blkio.noderesource.dev/v1alpha1
kind: NodePolicy
classes:
  bronze: {limits: ["* wbps=20Mi"], weight: 50}
  silver: {limits: ["* wbps=40Mi"]}
  data: {limits: ["/data wbps=5Mi"]}
` + text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

const inProd = "rules: [{name: prod, match: {namespaces: [prod], podSelector: {matchLabels: {tier: batch}}}, class: bronze}]\n"

// batch is a pod without annotations.
func batch() *Sandbox {
	sb := sandbox(nil)
	sb.Labels = map[string]string{"tier": "batch"}
	return sb
}

// TestRuleOncePerPolicy verifies that the rule of a pod is found once for each policy, not for each event.
func TestRuleOncePerPolicy(t *testing.T) {
	first, second := rules(t, inProd), rules(t, inProd)
	pod, _ := newPod(batch(), first)
	if one := pod.request.now.Load().Under(first); one != pod.request.now.Load().Under(first) || one.Rule() != "prod" || one == pod.request.now.Load().Under(second) {
		t.Errorf("%+v", one)
	}
}
