package chart

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// pools are values with two node pools.
const pools = `
nodePools:
  label: karpenter.sh/nodepool
  policyFiles:
    fast: "apiVersion: blkio.noderesource.dev/v1alpha1\nkind: NodePolicy\nclasses: {fast: {weight: 1}}\n"
    slow: "apiVersion: blkio.noderesource.dev/v1alpha1\nkind: NodePolicy\nmode: observe\n"
`

// twoTerms is an affinity with alternatives.
const twoTerms = `
affinity:
  nodeAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      nodeSelectorTerms:
        - matchExpressions: [{key: a, operator: Exists}]
        - matchExpressions: [{key: karpenter.sh/nodepool, operator: Exists}]
    preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {matchExpressions: [{key: b, operator: Exists}]}}]
`

// runsOn reports whether a pod may run on a node with some labels.
func runsOn(t *testing.T, pod *corev1.PodSpec, node labels.Set) bool {
	t.Helper()
	if !labels.SelectorFromSet(pod.NodeSelector).Matches(node) {
		return false
	}
	if pod.Affinity == nil {
		return true
	}
	terms := pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	return slices.ContainsFunc(terms, func(term corev1.NodeSelectorTerm) bool {
		var all metav1.LabelSelector
		for _, e := range term.MatchExpressions {
			all.MatchExpressions = append(all.MatchExpressions, metav1.LabelSelectorRequirement{Key: e.Key, Operator: metav1.LabelSelectorOperator(e.Operator), Values: e.Values})
		}
		s, err := metav1.LabelSelectorAsSelector(&all)
		if err != nil {
			t.Fatal(err)
		}
		return s.Matches(node)
	})
}

// TestNodes verifies on which nodes pods run: on no virtual one, and in each node pool with its own policy.
func TestNodes(t *testing.T) {
	const pool = "karpenter.sh/nodepool"
	nodes := map[string]labels.Set{
		"plain": {"a": "b"}, "fast": {pool: "fast"}, "slow": {pool: "slow"}, "other": {pool: "other"},
		"Fargate": {"eks.amazonaws.com/compute-type": "fargate"}, "EC2": {"eks.amazonaws.com/compute-type": "auto"},
		"virtual": {"type": "virtual-kubelet"}, "Windows": {"kubernetes.io/os": "windows"},
	}
	for _, node := range nodes {
		if node["kubernetes.io/os"] == "" {
			node["kubernetes.io/os"] = "linux"
		}
	}
	real := []string{"EC2", "fast", "other", "plain", "slow"}
	for values, want := range map[string]map[string][]string{
		"":               {"nri-blkio": real, "nri-blkio-test": real},
		pools:            {"nri-blkio": {"EC2", "other", "plain"}, "nri-blkio-pool-fast": {"fast"}, "nri-blkio-pool-slow": {"slow"}, "nri-blkio-test": {"EC2", "other", "plain"}},
		pools + twoTerms: {"nri-blkio": {"other", "plain"}, "nri-blkio-pool-fast": {"fast"}, "nri-blkio-pool-slow": {"slow"}, "nri-blkio-test": {"other", "plain"}},
	} {
		everywhere := real
		if strings.Contains(values, "affinity") {
			everywhere = []string{"fast", "other", "plain", "slow"}
		}
		want = maps.Clone(want)
		want["nri-blkio-remove"], want["nri-blkio-cluster"], want["nri-blkio-validator"] = everywhere, everywhere, everywhere
		for name, on := range maps.Clone(want) {
			if name == "nri-blkio" || strings.Contains(name, "-pool-") {
				want[strings.Replace(name, "nri-blkio", "nri-blkio-writeback", 1)] = on
			}
		}
		got := map[string][]string{}
		for name, pod := range pods(t, values+"cluster: {enabled: true}\nvalidator: {enabled: true}\n") {
			_, name, _ = strings.Cut(name, " ")
			got[name] = nil
			for node, has := range nodes {
				if runsOn(t, pod, has) {
					got[name] = append(got[name], node)
				}
			}
			slices.Sort(got[name])
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: -want +got\n%s", values, d)
		}
	}
}

// TestNodePools verifies that the pods of a pool have its policy, and that DaemonSets select no pods of one another.
func TestNodePools(t *testing.T) {
	policies, sets := map[string]string{}, []*appsv1.DaemonSet{}
	for _, o := range objects(t, render(t, pools)) {
		switch o := o.decoded.(type) {
		case *corev1.ConfigMap:
			policies[o.Name] = o.Data["policy.yaml"]
		case *appsv1.DaemonSet:
			sets = append(sets, o)
		}
	}
	for pool, text := range map[string]string{"": "mode: enforce", "-pool-fast": "classes: {fast:", "-pool-slow": "mode: observe"} {
		if got := policies["nri-blkio-policy"+pool]; !strings.Contains(got, text) {
			t.Errorf("pool %q has the policy %q", pool, got)
		}
	}
	for _, set := range sets {
		selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
		if err != nil {
			t.Fatal(err)
		}
		for _, other := range sets {
			if got := selector.Matches(labels.Set(other.Spec.Template.Labels)); got != (set == other) {
				t.Errorf("%s selects pods of %s: %t", set.Name, other.Name, got)
			}
		}
		_, pool, _ := strings.Cut(set.Name, "-pool-")
		for _, v := range set.Spec.Template.Spec.Volumes {
			if want := strings.TrimSuffix("nri-blkio-policy-pool-"+pool, "-pool-"); v.ConfigMap != nil && v.ConfigMap.Name != want {
				t.Errorf("%s has the policy %s, want %s", set.Name, v.ConfigMap.Name, want)
			}
		}
	}
	if len(sets) != 7 {
		t.Errorf("%d DaemonSets", len(sets))
	}
}

// TestNames verifies that labels and nameOverride reach all objects, and that nothing else changes.
func TestNames(t *testing.T) {
	plain := map[string]object{}
	for _, o := range objects(t, render(t, all)) {
		plain[o.name()] = o
	}
	const override = "nameOverride: io\npodLabels: {a: b}\ncommonLabels: {c: d}\n"
	for _, o := range objects(t, render(t, all+override)) {
		before, ok := plain[strings.Replace(o.name(), " io", " nri-blkio", 1)]
		if !ok {
			before, ok = plain[o.name()]
			if ok = ok && strings.Contains(o.kind(), "AdmissionPolicy"); !ok {
				t.Errorf("%s has another name", o.name())
				continue
			}
		}
		want := labels.Merge(before.GetLabels(), labels.Set{"c": "d"})
		pod, _ := podOf(o.decoded)
		if _, isPod := o.decoded.(*corev1.Pod); isPod {
			want["a"] = "b"
		}
		if d := cmp.Diff(want, labels.Set(o.GetLabels())); d != "" {
			t.Errorf("%s: -want +got\n%s", o.name(), d)
		}
		if pod != nil && (pod.Labels["a"] != "b" || pod.Labels["c"] != "d" || pod.Labels["app.kubernetes.io/name"] == "") {
			t.Errorf("%s: its pods have the labels %v", o.name(), pod.Labels)
		}
	}
}

// TestUpdateStrategy verifies the values of updateStrategy in each DaemonSet.
func TestUpdateStrategy(t *testing.T) {
	for values, want := range map[string]string{"": "RollingUpdate 10% 0", "updateStrategy: {rollingUpdate: {maxUnavailable: 2}}\n": "RollingUpdate 2 0", "updateStrategy: {type: OnDelete}\n": "OnDelete"} {
		for _, o := range objects(t, render(t, all+values)) {
			set, ok := o.decoded.(*appsv1.DaemonSet)
			if !ok || set.Name == "nri-blkio-remove" {
				continue
			}
			got := string(set.Spec.UpdateStrategy.Type)
			if r := set.Spec.UpdateStrategy.RollingUpdate; r != nil {
				got += " " + r.MaxUnavailable.String() + " " + r.MaxSurge.String()
			}
			if got != want {
				t.Errorf("%s%s: %s, want %s", values, set.Name, got, want)
			}
		}
	}
}
