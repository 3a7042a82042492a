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
	if one := pod.request.now.Load().under(first); one != pod.request.now.Load().under(first) || one.Rule() != "prod" || one == pod.request.now.Load().under(second) {
		t.Errorf("%+v", one)
	}
}

func TestQOSOf(t *testing.T) {
	for cgroup, want := range map[string]policy.QOS{
		"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice": policy.Burstable,
		"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1.slice": policy.BestEffort,
		"/kubepods.slice/kubepods-pod1.slice":                                      policy.Guaranteed,
		"kubepods-burstable-pod1.slice":                                            policy.Burstable,
		"/my.slice/my-kubepods.slice/my-kubepods-besteffort-pod1.slice":            policy.BestEffort,
		"/kubepods/burstable/pod1-2":                                               policy.Burstable,
		"/kubepods/besteffort/pod1":                                                policy.BestEffort,
		"/my/kubepods/pod1":                                                        policy.Guaranteed,
		"/system.slice":                                                            "",
		"/kubepods/burstable":                                                      "",
		"/other/pod1":                                                              "",
		"/kubepods.slice/kubepods-besteffort.slice":                                "",
		"":                          "",
		"kubepods-other-pod1.slice": "",
		"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod_pod-podx.slice": "",
	} {
		if got := qosOf(cgroup); got != want {
			t.Errorf("%q is %q, want %q", cgroup, got, want)
		}
	}
}
